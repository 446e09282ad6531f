"""sglang's kernels through the same analysis: the measured cliff, the LDS limit, spills, no sglang.

What needs sglang skips where it is not installed (docs/mla.md says how); the same claims are tested
with toys and pinned geometry in test_amdgpu_compile.py and test_amdgpu_residency.py.
"""

import importlib.util
import json

import pytest

from k3bench.compiled.amdgpu import GpuPoint, cache, compile_gpu_points, get_gpu_target
from k3bench.compiled.amdgpu.cache import provider_sha256
from k3bench.compiled.amdgpu.compiler import Request, compile_requests
from k3bench.compiled.amdgpu.evaluate import evaluate
from k3bench.compiled.amdgpu.sweep import FACTORY

pytest.importorskip("triton", reason="triton is the compiler under test")

GFX950 = get_gpu_target("gfx950")
CLIFF = (69_632,) * 24
needs_sglang = pytest.mark.skipif(
    importlib.util.find_spec("sglang") is None, reason="sglang is not installed: see docs/mla.md"
)


def decode(implementation="sglang", lengths=(65_536,), **asked):
    return GpuPoint("mla-decode", implementation, lengths, **asked)


POINTS = {
    "64K": decode(),
    "21 splits": decode(lengths=CLIFF, num_kv_splits=21),
    "22 splits": decode(lengths=CLIFF, num_kv_splits=22),
    "tuned": decode("sglang_tuned", CLIFF),
    "tuned, 22 splits": decode("sglang_tuned", CLIFF, num_kv_splits=22),
    "scheduled": decode(lengths=CLIFF),
    "lean": decode("sglang_lean", CLIFF),
    "too much LDS": decode(block_n=128, num_stages=4),
    "spills": GpuPoint("mla-prefill", "sglang_extend", (4096,), prefix_lengths=(4096,), block_n=64),
    "extend": GpuPoint("mla-prefill", "sglang_extend", (4096,)),
    "kda": GpuPoint("kda-decode", "sglang", (1,)),
    "kda, 8": GpuPoint("kda-decode", "sglang", (1,) * 8),
    "empty": decode(lengths=(0, 64)),
}


@pytest.fixture(scope="module")
def found():
    return dict(
        zip(POINTS, compile_gpu_points(list(POINTS.values()), GFX950, use_cache=False), strict=True)
    )


@needs_sglang
@pytest.mark.parametrize(
    ("splits", "workgroups", "rounds"),
    [("21 splits", 504, 1), ("22 splits", 528, 2), ("tuned", 504, 1), ("tuned, 22 splits", 528, 2)],
)
def test_the_measured_cliff_lies_between_21_and_22_splits(found, splits, workgroups, rounds):
    result = found[splits]
    assert (result.status, result.resident_workgroups) == ("ok", 512)
    assert (result.kernels[0]["workgroups"], result.rounds) == (workgroups, rounds)


@needs_sglang
@pytest.mark.parametrize("kind", ["", "tuned"])
def test_22_splits_are_modelled_slower_than_21(found, kind):
    fast, slow = ("tuned", "tuned, 22 splits") if kind else ("21 splits", "22 splits")
    assert found[slow].modelled_us > 1.2 * found[fast].modelled_us


@needs_sglang
def test_workgroups_that_return_at_once_fill_no_round(found):
    # 9 splits of the 256 that the server's buffers have room for.
    stage1 = found["scheduled"].kernels[0]
    assert (stage1["grid"], stage1["workgroups"]) == ([24, 1, 256], 9 * 24)
    assert found["scheduled"].rounds == 1


@needs_sglang
def test_too_many_keys_a_tile_are_oom(found):
    result = found["too much LDS"]
    assert result.status == "oom"
    assert result.wanted_lds_bytes > result.limit_lds_bytes == 160 << 10


@needs_sglang
def test_64_keys_an_iteration_spill_in_the_absorbed_extend(found):
    result = found["spills"]
    assert (result.status, result.scratch_bytes > 0) == ("ok", True)
    assert result.kernels[0]["main_loop"]["scratch_operations"] > 0
    assert result.round_trips >= 15
    assert found["extend"].scratch_operations_in_loops == 0


@needs_sglang
def test_the_default_stage_1_has_three_round_trips_and_the_merge_is_unrolled(found):
    stage1, stage2 = found["64K"].kernels
    assert stage1["round_trips"] == 3
    assert stage1["main_loop"]["index_loads"] > 0
    # The loop loads two splits of 512 floats where the source has one an iteration.
    assert stage2["bytes_per_iteration"] == 2 * 512 * 4
    assert stage2["iterations"] == 205


@needs_sglang
def test_lean_merges_what_its_programs_leave(found):
    [lean] = found["lean"].kernels
    assert (lean["name"], lean["grid"]) == ("lean", [256, 1, 1])


@needs_sglang
def test_the_recurrence_is_48_workgroups_and_larger_batches_are_not_tritons(found):
    assert found["kda"].kernels[0]["workgroups"] == 48
    assert found["kda, 8"].status == "unsupported"
    assert "C++ kernel" in found["kda, 8"].detail
    assert found["empty"].status == "unsupported"


@needs_sglang
def test_a_cache_over_2_gib_is_loaded_from_by_other_instructions():
    arguments = {**POINTS["64K"].to_json(), "target_arch": "gfx950", "target_compute_units": 256}
    requests = [Request(FACTORY, {**arguments, "pool_tokens": n}) for n in (None, 1 << 22)]
    small, large = (
        evaluate(answer, POINTS["64K"].to_json(), GFX950)
        for answer in compile_requests(requests, GFX950)
    )
    assert small.code_sha256 != large.code_sha256
    assert large.round_trips >= small.round_trips


def test_without_sglang_a_point_is_unsupported_and_says_how_to_get_it(tmp_path, monkeypatch):
    """A package that cannot be imported stands before the real one, if there is one."""
    (tmp_path / "sglang.py").write_text("raise ImportError('no such thing here')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    [result] = compile_gpu_points([POINTS["64K"]], GFX950, use_cache=False)
    assert result.status == "unsupported"
    assert "no such thing here" in result.detail and "\n" not in result.detail


def test_the_key_of_a_provider_depends_on_its_sources_and_on_its_being_there(tmp_path, monkeypatch):
    assert provider_sha256("triton") is None
    monkeypatch.setattr(cache.importlib.util, "find_spec", lambda name: None)
    assert provider_sha256("sglang_tuned") is None

    class Spec:
        origin = str(tmp_path / "__init__.py")

    kernels = tmp_path / "kernels" / "ops" / "attention"
    kernels.mkdir(parents=True)
    (kernels / "decode_attention.py").write_text("1\n")
    monkeypatch.setattr(cache.importlib.util, "find_spec", lambda name: Spec())
    first = provider_sha256("sglang")
    (kernels / "decode_attention.py").write_text("2\n")
    assert None is not first != provider_sha256("sglang")


def test_results_of_providers_are_plain_json():
    point = decode("sglang_tuned", CLIFF, num_warps=2)
    assert GpuPoint.from_json(json.loads(json.dumps(point.to_json()))) == point
