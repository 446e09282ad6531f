"""Compiled GPU figures on their way to asv and the ledger, and the benchmarks that ask for them."""

import math
from dataclasses import replace

import pytest

import k3bench.asv_compiled_families as families
import manifests
from benchmarks import compiled_mla
from k3bench.asv_compiled import GPU_UNITS, CompiledCase, records_of, track, verdict_on, warm_up
from k3bench.asv_type import PointFailedError
from k3bench.compiled.amdgpu import GpuPoint, GpuResult
from k3bench.compiled.tpu import CompiledError, KdaPoint
from k3bench.journal import RUN_DIRECTORY_VARIABLE, RunJournal
from k3bench.ledger import ingest, open_ledger
from k3bench.measure import Correctness, WorkloadRef
from k3bench.paths import project_root

POINT = GpuPoint("mla-decode", "triton", (4096,))
RIGHT = Correctness("ok", 1e-6, 5e-5, "the fp32 reference", "o: 1e-06 away")
CASE = CompiledCase(
    benchmark="compiled_mla.Toy.track_modelled_us", version="1", parameters={"B": 1},
    workload=WorkloadRef("toy", "a" * 64), tokens=4096, point=POINT, check=lambda: RIGHT,
    target="gfx950",
)  # fmt: skip
KERNEL = {
    "name": "stage1", "vgpr": 236, "agpr": 0, "scratch_bytes": 0, "lds_bytes": 36864,
    "workgroups": 128, "resident_workgroups": 512, "rounds": 1, "round_trips": 1.0,
    "bytes_per_iteration": 36864, "bytes_in_flight_per_cu": 73728, "iterations": 1,
    "modelled_us": 8.0,
}  # fmt: skip
RESULT = GpuResult(
    status="ok", point=POINT.to_json(), target="gfx950", device="mi355x", triton="3.7.1",
    vgpr=236, agpr=0, rounds=1, round_trips=1.0, scratch_bytes=0, scratch_operations_in_loops=0,
    lds_bytes=36864, hbm_bytes=4096 * 1152, flops=10, mfma=36, lower_bound_us=1.0, modelled_us=14.0,
    modelled_error={"mean": 0.2, "worst": 0.5}, code_sha256="c" * 64, main_kernel="stage1",
    kernels=(KERNEL, {**KERNEL, "name": "stage2", "modelled_us": 6.0}), compile_s=2.0,
)  # fmt: skip
OOM = GpuResult(
    status="oom", point=POINT.to_json(), target="gfx950", device="mi355x", triton="3.7.1",
    detail="too much LDS", wanted_lds_bytes=200_000, limit_lds_bytes=163_840,
)  # fmt: skip


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A run in progress whose records nobody ingests."""
    journal = RunJournal.create(tmp_path / "runs", {"started_at": "2026-08-01T00:00:00+00:00"})
    monkeypatch.setenv(RUN_DIRECTORY_VARIABLE, str(journal.directory))
    monkeypatch.setenv("K3BENCH_DRY_RUN", "1")
    monkeypatch.setenv("K3BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASV_COMMIT", "0123456789")
    return journal


@pytest.fixture
def compiled(monkeypatch):
    def answer(result):
        monkeypatch.setattr(families, "compile_gpu_points", lambda points, target, **_: [result])

    return answer


def test_the_modelled_time_leaves_one_compiled_and_one_modelled_record(run, compiled):
    compiled(RESULT)
    assert track(CASE, "modelled_us") == 14.0
    records = {point.record["kind"]: point.record for point in run.points()}
    assert records.keys() == {"compiled", "modelled"}
    assert records["modelled"]["median_s"] == pytest.approx(14e-6)
    assert records["modelled"]["figures"]["model_error.mean"] == 0.2
    assert records["modelled"]["figures"]["stage2.modelled_us"] == 6.0
    assert records["compiled"]["figures"]["triton"] == "3.7.1"
    assert records["compiled"]["figures"]["stage1.bytes_in_flight_per_cu"] == 73728
    assert all(record["device"] == "mi355x" for record in records.values())


def test_the_exact_figures_leave_no_record(run, compiled):
    compiled(RESULT)
    values = {name: track(CASE, name) for name in GPU_UNITS if name != "modelled_us"}
    assert values == {
        "rounds": 1.0, "round_trips": 1.0, "scratch_operations_in_loops": 0.0,
        "scratch_bytes": 0.0, "lds_bytes": 36864.0, "hbm_bytes": 4096.0 * 1152, "flops": 10.0,
        "mfma": 36.0,
    }  # fmt: skip
    assert list(run.points()) == []


def test_too_much_lds_fails_and_has_no_time(run, compiled):
    compiled(OOM)
    with pytest.raises(PointFailedError, match=r"FAILED: .*triton: oom: too much LDS"):
        track(CASE, "modelled_us")
    [point] = run.points()
    assert point.record["kind"] == "compiled"
    assert point.record["figures"]["limit_lds_bytes"] == 163_840
    assert point.record["median_s"] is None


def test_a_point_that_is_not_taken_is_skipped(run, compiled, capsys):
    compiled(replace(OOM, status="unsupported", detail="page_size is 5"))
    assert math.isnan(track(CASE, "rounds"))
    assert "page_size is 5" in capsys.readouterr().out


def test_the_ledger_takes_records_of_every_status(tmp_path):
    manifest = dict(manifests.capture(project_root()))
    identity = manifests.manifest_id(manifest)
    wrong = Correctness("wrong", 1.0, 5e-5, "the fp32 reference", "o: 1 away")
    with open_ledger(str(tmp_path / "ledger.sqlite")) as ledger:
        for result, verdict in ((RESULT, RIGHT), (RESULT, wrong), (OOM, verdict_on(CASE, OOM))):
            records = records_of(
                CASE, result, verdict, manifest_id=identity, commit="0123456789", run_id="run"
            )
            assert ingest(ledger, records, [manifest]).inserted == len(records)


def test_launches_of_one_name_keep_figures_of_their_own():
    twice = replace(RESULT, kernels=(KERNEL, {**KERNEL, "vgpr": 100}))
    [compiled_record, _] = records_of(
        CASE, twice, RIGHT, manifest_id=None, commit=None, run_id=None
    )
    figures = compiled_record["figures"]
    assert (figures["stage1#0.vgpr"], figures["stage1#1.vgpr"]) == (236, 100)


@pytest.mark.parametrize(
    ("point", "limited_by", "way"),
    [
        (GpuPoint("mla-decode", "triton", (4096,) * 2), "hbm", "absorbed"),
        (GpuPoint("mla-prefill", "x", (2048,), (2048,)), "matrix", "decompressed"),
        (GpuPoint("kda-decode", "triton", (1,) * 64), "hbm", "token by token"),
    ],
    ids=lambda value: getattr(value, "operation", value),
)
def test_the_bound_of_every_operation_stands_beside_its_modelled_time(point, limited_by, way):
    whole, part = (
        replace(RESULT, point=replace(point, compute_units=units).to_json()) for units in (256, 32)
    )
    bounds = []
    for result in (whole, part):
        [_, modelled] = records_of(CASE, result, RIGHT, manifest_id=None, commit=None, run_id=None)
        figures = modelled["figures"]
        assert (figures["roofline.limited_by"], figures["roofline.way"]) == (limited_by, way)
        bounds.append(figures["roofline.bound_s"])
        assert figures["roofline.times_bound"] == pytest.approx(14e-6 / bounds[-1])
    assert bounds[1] == pytest.approx(8 * bounds[0]), "an eighth of the device"


def test_one_sweep_holds_points_of_one_family(monkeypatch):
    with pytest.raises(CompiledError, match="one kind at a time"):
        families.compile_any([POINT, KdaPoint("flat", (8,))], "gfx950")
    asked = []
    monkeypatch.setattr(
        families, "compile_gpu_points", lambda points, target, *, jobs: asked.append(target.name)
    )
    warm_up([CASE])
    assert asked == ["gfx950"]


@pytest.mark.parametrize(
    "name", ["Decode", "DecodeAt68K", "DecodeOnPartition", "Prefill", "LastChunk", "KdaDecode"]
)
def test_every_benchmark_names_cases_and_units(name):
    benchmark = getattr(compiled_mla, name)()
    first = [choices[0] for choices in benchmark.params]
    case = benchmark._case(*first)
    assert case.target == "gfx950"
    assert case.point.operation == benchmark.operation
    assert case.parameters.keys() == set(benchmark.param_names) - {"implementation"}
    methods = [name for name in dir(benchmark) if name.startswith("track_")]
    for method in methods:
        assert getattr(benchmark, method).unit == GPU_UNITS[method.removeprefix("track_")]
    assert f"track_{'modelled_us'}" in methods


@pytest.mark.slow
def test_the_interpreter_finds_our_kernels_right():
    pytest.importorskip("triton", reason="triton is the interpreter under test")
    from benchmarks._mla_interpreted import interpreted_verdict

    for operation in ("mla-decode", "kda-decode"):
        verdict = interpreted_verdict(operation, "triton")
        assert verdict.status == "ok", verdict.detail
    with pytest.raises(RuntimeError, match="give mla-decode, mla-prefill or kda-decode"):
        interpreted_verdict("x", "triton")
