"""GPU results through JSON and the cache: what the key depends on, resuming, refusing damage."""

import json
import os
from dataclasses import replace
from pathlib import Path

import joblib
import pytest

import mla_rocm
from k3bench.compiled.amdgpu import GpuPoint, GpuResult, cache, get_gpu_target, sweep
from k3bench.compiled.amdgpu.cache import cache_key, gpu_cache
from k3bench.compiled.amdgpu.sweep import compile_gpu_points
from k3bench.compiled.errors import CompiledError, CompiledFormatError

GFX950 = get_gpu_target("gfx950")
POINT = GpuPoint("mla-decode", "triton", (4096, 0), num_kv_splits=4)
ASKED = ("k3bench.compiled.amdgpu.launches:build", POINT.to_json(), GFX950, "3.7.1")


def result_for(point, status="ok"):
    return GpuResult(
        status=status, point=point.to_json(), target="gfx950", device="mi355x", triton="3.7.1",
        vgpr=200, rounds=1, round_trips=1.0, compile_s=0.5,
        kernels=({"name": "stage1", "main_loop": {"mfma": {"16x16x32 bf16": 44}}},),
    )  # fmt: skip


def test_a_result_survives_json_exactly():
    result = result_for(POINT)
    again = GpuResult.from_json(json.loads(json.dumps(result.to_json())))
    assert again == result
    assert again.gpu_point() == POINT


def test_the_fingerprint_leaves_out_the_compile_time_and_nothing_else():
    result = result_for(POINT)
    assert replace(result, compile_s=9.0).fingerprint == result.fingerprint
    for change in ({"vgpr": 201}, {"triton": "3.8.0"}, {"status": "oom"}, {"kernels": ()}):
        assert replace(result, **change).fingerprint != result.fingerprint


@pytest.mark.parametrize("damage", [{"vgpr": 8}, {"extra": 1}], ids=["value", "key"])
def test_a_changed_document_is_refused(damage):
    with pytest.raises(CompiledFormatError):
        GpuResult.from_json({**result_for(POINT).to_json(), **damage})


def test_the_key_depends_on_everything_a_result_depends_on(monkeypatch):
    factory, arguments, target, triton = ASKED
    keys = {
        cache_key(*ASKED),
        cache_key("k3bench.compiled.amdgpu.point:build", arguments, target, triton),
        cache_key(factory, replace(POINT, heads=16).to_json(), target, triton),
        cache_key(factory, replace(POINT, num_kv_splits=5).to_json(), target, triton),
        cache_key(factory, arguments, get_gpu_target("gfx942"), triton),
        cache_key(factory, arguments, replace(target, clock_hz=1e9), triton),
        cache_key(factory, arguments, target, "3.8.0"),
    }
    monkeypatch.setattr(cache, "PARSER_VERSION", 99)
    keys.add(cache_key(*ASKED))
    monkeypatch.setattr(cache, "_constants", lambda: "0" * 64)
    keys.add(cache_key(*ASKED))
    monkeypatch.setattr(cache, "room_sha256", lambda package: "0" * 64)
    keys.add(cache_key(*ASKED))
    assert len(keys) == 10
    assert cache_key(*ASKED) in keys


def test_a_tpu_result_under_the_key_of_a_gpu_result_counts_as_none(tmp_path):
    store = gpu_cache(tmp_path)
    store.put("ab" * 32, result_for(POINT))
    assert store.get("ab" * 32) == result_for(POINT)
    [path] = tmp_path.rglob("*.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "libtpu": "1"}))
    assert store.get("ab" * 32) is None


@pytest.fixture
def compiler(monkeypatch):
    """Stands in for the compiling process; ``batches`` lists what each was asked for."""

    class Compiler:
        def __init__(self):
            self.batches = []
            self.paths = set()

        def __call__(self, requests, target, *, path):
            self.paths.add(path)
            self.batches.append([request.arguments["heads"] for request in requests])
            return [{"point": dict(request.arguments)} for request in requests]

    def judged(answer, point, target, *, compute_units):
        return result_for(GpuPoint.from_json(point))

    stand_in = Compiler()
    monkeypatch.setattr(sweep, "compile_requests", stand_in)
    monkeypatch.setattr(sweep, "evaluate", judged)
    return stand_in


def points(count):
    return [replace(POINT, heads=1 + number) for number in range(count)]


def test_points_share_processes_and_equal_points_are_compiled_once(tmp_path, compiler):
    wanted = [*points(3), points(3)[1]]
    results = compile_gpu_points(wanted, GFX950, directory=tmp_path)
    assert [result.point["heads"] for result in results] == [1, 2, 3, 2]
    assert compiler.batches == [[1, 2, 3]]


def test_processes_run_in_parallel_where_the_caller_says_so(tmp_path, compiler):
    with joblib.parallel_backend("threading", n_jobs=2):
        results = compile_gpu_points(points(4), GFX950, directory=tmp_path)
    assert [result.point["heads"] for result in results] == [1, 2, 3, 4]
    assert sorted(compiler.batches) == [[1, 2], [3, 4]]
    # All of them import what the caller imports, not what a worker would find.
    [path] = compiler.paths
    assert path.split(os.pathsep)[0] == str(Path(mla_rocm.__file__).parents[1])


def test_a_second_sweep_compiles_only_what_is_new(tmp_path, compiler):
    first = compile_gpu_points(points(2), GFX950, directory=tmp_path)
    assert compile_gpu_points(points(3), GFX950, directory=tmp_path)[:2] == first
    assert compiler.batches == [[1, 2], [3]]


def test_without_the_cache_everything_is_compiled_and_nothing_kept(tmp_path, compiler):
    for _ in range(2):
        compile_gpu_points(points(1), GFX950, directory=tmp_path, use_cache=False)
    assert compiler.batches == [[1], [1]]
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operation": "mla"}, "operation is 'mla'"),
        ({"lengths": ()}, "lengths has 0 entries"),
        ({"lengths": (5, -1)}, "negative"),
        ({"heads": 0}, "heads is 0"),
        ({"page_size": 0}, "page_size is 0"),
        ({"num_kv_splits": 0}, "num_kv_splits is 0"),
        ({"compute_units": 0}, "compute_units is 0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"prefix_lengths": (1, 1)}, "belongs to mla-prefill"),
        ({"operation": "kda-decode"}, "num_kv_splits belongs to mla-decode"),
        (
            {"operation": "mla-prefill", "num_kv_splits": None, "prefix_lengths": (1,)},
            "differ in number",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_point_that_cannot_be_is_refused_by_name(change, message):
    with pytest.raises(CompiledError, match=message):
        replace(POINT, **change)
