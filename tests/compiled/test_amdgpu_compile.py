"""Real compiles for GPUs that are not here: figures, determinism, LDS limits, spills, failures."""

import os
from pathlib import Path

import pytest

from k3bench.compiled.amdgpu import GpuPoint, compile_gpu_points, get_gpu_target
from k3bench.compiled.amdgpu.compiler import Request, compile_requests
from k3bench.compiled.amdgpu.evaluate import evaluate

pytest.importorskip("triton", reason="triton is the compiler under test")

GFX950 = get_gpu_target("gfx950")
SPILLS = {"M": 128, "N": 256, "BLOCK": 16, "warps": 1}
TOO_MUCH_LDS = {"M": 128, "N": 128, "BLOCK": 256, "stages": 3}
FITS = {"M": 64, "N": 64, "BLOCK": 64, "stages": 2}


def toy(kind, **arguments):
    return Request("amdgpu_toys:launches", {"kind": kind, **arguments})


@pytest.fixture(scope="module", autouse=True)
def toys_on_the_path():
    with pytest.MonkeyPatch.context() as patch:
        here = str(Path(__file__).parent)
        patch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
        yield


REQUESTS = {
    "copy": toy("copy"),
    "gather": toy("gather"),
    "fits": toy("multiply", **FITS),
    "spills": toy("multiply", **SPILLS),
    "lds": toy("multiply", **TOO_MUCH_LDS),
    "broken": toy("broken"),
    "refused": Request("amdgpu_toys:refused", {}),
}


@pytest.fixture(scope="module")
def results(toys_on_the_path):
    answers = compile_requests(list(REQUESTS.values()), GFX950)
    return {
        name: evaluate(answer, {"implementation": name}, GFX950)
        for name, answer in zip(REQUESTS, answers, strict=True)
    }


def test_a_pass_without_a_loop_has_its_bytes_and_no_matrix_instructions(results):
    result = results["copy"]
    assert (result.status, result.detail) == ("ok", None)
    assert (result.mfma, result.scratch_bytes, result.lds_bytes) == (0, 0, 0)
    [kernel] = result.kernels
    assert kernel["round_trips_are_of"] == "pass"
    assert kernel["whole_pass"]["mix"]["global_load"] == 4
    assert kernel["whole_pass"]["data_bytes"] == 1024 * 4


def test_a_dependent_gather_has_two_round_trips_an_iteration(results):
    result = results["gather"]
    [kernel] = result.kernels
    assert result.round_trips == 2
    assert kernel["main_loop"]["index_loads"] >= 1
    assert kernel["bytes_per_iteration"] == 16 * 64 * 4
    # The grid is one workgroup, however many a compute unit could hold.
    assert kernel["residency_per_compute_unit"] > 1
    assert result.bytes_in_flight_per_cu == 16 * 64 * 4


def test_a_matrix_product_counts_its_flops_and_bytes(results):
    [kernel] = results["fits"].kernels
    loop = kernel["main_loop"]
    # 64 x 64 x 64 a workgroup of four waves.
    assert loop["mfma_flops"] * 4 == 2 * 64**3
    assert kernel["bytes_per_iteration"] == 2 * 64 * 64 * 2
    assert results["fits"].scratch_operations_in_loops == 0
    assert sum(loop["mfma"].values()) == results["fits"].mfma


def test_a_kernel_that_spills_shows_scratch_in_its_loop(results):
    result = results["spills"]
    assert result.status == "ok"
    assert result.scratch_bytes > 0
    assert result.scratch_operations_in_loops > 0
    assert result.round_trips > results["fits"].round_trips


def test_too_much_lds_is_oom_with_both_figures(results):
    result = results["lds"]
    assert result.status == "oom"
    assert result.wanted_lds_bytes > result.limit_lds_bytes == 160 << 10
    assert (result.modelled_us, result.rounds) == (None, None)
    assert str(result.wanted_lds_bytes) in result.detail


def test_a_failure_and_a_refusal_are_one_line_each_and_stop_nothing_else(results):
    assert results["broken"].status == "error"
    assert results["broken"].detail == "ValueError: this launch"
    assert results["refused"].status == "unsupported"
    assert results["refused"].detail == "heads is 5: must be even"


def test_a_process_that_dies_costs_its_own_request_only():
    answers = compile_requests([toy("copy"), toy("dies"), toy("copy")], GFX950)
    assert [answer["status"] for answer in answers] == ["ok", "error", "ok"]
    assert "ended with code 7" in answers[1]["detail"]


def test_the_same_kernel_in_a_fresh_process_has_the_same_fingerprint(results):
    names = ("gather", "fits")
    answers = compile_requests([REQUESTS[name] for name in names], GFX950)
    for name, answer in zip(names, answers, strict=True):
        again = evaluate(answer, {"implementation": name}, GFX950)
        assert again.fingerprint == results[name].fingerprint


def test_bounds_are_below_the_modelled_time(results):
    for name in ("copy", "gather", "fits", "spills"):
        assert 0 < results[name].lower_bound_us < results[name].modelled_us
        assert results[name].modelled_error["mean"] > 0


def test_gfx942_is_read_by_the_same_code_and_not_judged():
    target = get_gpu_target("gfx942")
    [answer] = compile_requests([REQUESTS["gather"]], target)
    result = evaluate(answer, {"implementation": "gather"}, target)
    assert (result.status, result.device, result.modelled_error) == ("ok", "mi300x", None)
    assert result.round_trips == 2


def test_sm_90_has_registers_and_bounds_and_no_loops():
    target = get_gpu_target("sm_90")
    [answer] = compile_requests([REQUESTS["fits"]], target)
    result = evaluate(answer, {"implementation": "fits"}, target)
    assert (result.status, result.device) == ("ok", "h200")
    assert result.vgpr > 0 and result.resident_workgroups > 0
    assert (result.round_trips, result.modelled_us, result.mfma) == (None, None, None)


OURS = {
    "kda": (GpuPoint("kda-decode", "triton", (1,) * 4), ["step"]),
    "prefill": (
        GpuPoint("mla-prefill", "triton_decompressed", (512,), prefix_lengths=(64,)),
        ["decompressed-causal"],
    ),
    "batch invariant": (
        GpuPoint("mla-decode", "triton_batch_invariant", (512, 0)),
        ["stage1", "stage2"],
    ),
}
NOT_TAKEN = {
    "torch": (
        GpuPoint("mla-decode", "torch_dense", (512,)),
        "its launches are not described",
    ),
    "page size": (GpuPoint("mla-decode", "triton", (512,), page_size=5), "page_size is 5"),
    "no tokens": (GpuPoint("mla-prefill", "triton_absorbed", (0,)), "nothing is launched"),
}


@pytest.fixture(scope="module")
def described():
    points = {name: point for name, (point, _) in (*OURS.items(), *NOT_TAKEN.items())}
    results = compile_gpu_points(list(points.values()), GFX950, use_cache=False)
    return dict(zip(points, results, strict=True))


@pytest.mark.parametrize("name", OURS)
def test_every_operation_is_described_to_the_compiler(described, name):
    result = described[name]
    assert (result.status, result.detail) == ("ok", None)
    assert [kernel["name"] for kernel in result.kernels] == OURS[name][1]
    assert result.scratch_operations_in_loops == 0


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_an_implementation_does_not_take_is_unsupported_with_its_reason(described, name):
    assert described[name].status == "unsupported"
    assert NOT_TAKEN[name][1] in described[name].detail


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Our own decode at the facts' points, through the cache."""
    points = {
        "64K": GpuPoint("mla-decode", "triton", (65_536,)),
        "21 splits": GpuPoint("mla-decode", "triton", (69_632,) * 24, num_kv_splits=21),
        "22 splits": GpuPoint("mla-decode", "triton", (69_632,) * 24, num_kv_splits=22),
    }
    directory = tmp_path_factory.mktemp("cache")
    found = compile_gpu_points(list(points.values()), GFX950, directory=directory)
    assert compile_gpu_points(list(points.values()), GFX950, directory=directory) == found
    return dict(zip(points, found, strict=True))


def test_our_stage_1_has_one_round_trip_and_72_kib_in_flight(ours):
    result = ours["64K"]
    assert [kernel["name"] for kernel in result.kernels] == ["stage1", "stage2"]
    assert result.main_kernel == "stage1"
    assert result.round_trips == 1
    assert (result.scratch_bytes, result.scratch_operations_in_loops) == (0, 0)
    assert result.bytes_in_flight_per_cu >= 72 << 10
    # 32 keys of 576 bf16: the tile is loaded once, for scores and values alike.
    assert result.kernels[0]["bytes_per_iteration"] == 32 * 1152


def test_our_launch_falls_off_the_cliff_between_21_and_22_splits_too(ours):
    assert [ours[name].kernels[0]["workgroups"] for name in ("21 splits", "22 splits")] == [
        504,
        528,
    ]
    assert [ours[name].rounds for name in ("21 splits", "22 splits")] == [1, 2]
    assert ours["22 splits"].modelled_us > ours["21 splits"].modelled_us


def test_stage_2_reads_what_stage_1_has_just_written(ours):
    stage1, stage2 = ours["64K"].kernels
    assert (stage1["reads_what_was_just_written"], stage2["reads_what_was_just_written"]) == (
        False,
        True,
    )
