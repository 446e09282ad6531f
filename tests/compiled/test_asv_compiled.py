"""Compiled figures on their way to asv and the ledger: two kinds of record, no speed if refused."""

import math
from dataclasses import replace

import pytest

import k3bench.asv_compiled_families as families
import manifests
import workloads
from k3bench.asv_compiled import UNITS, CompiledCase, records_of, track, verdict_on, warm_up
from k3bench.asv_type import MANIFEST_VARIABLE, PointFailedError
from k3bench.compiled.tpu import CompiledError, CompiledResult, KdaPoint
from k3bench.compiled.verdicts import kept_verdict
from k3bench.journal import RUN_DIRECTORY_VARIABLE, RunJournal
from k3bench.ledger import ingest, open_ledger, select_results
from k3bench.measure import Correctness, WorkloadRef
from k3bench.paths import project_root

POINT = KdaPoint("flat", (100, 28), heads=8)
RIGHT = Correctness("ok", 1e-4, 5e-4, "the oracle", "o: 0.0001 from the oracle")
WRONG = Correctness("wrong", 0.5, 5e-4, "the oracle", "o: 0.5 from the oracle")
CASE = CompiledCase(
    benchmark="compiled_kda.Toy.track_modelled_ms", version="1", parameters={"S": 64},
    workload=WorkloadRef("toy", "a" * 64), tokens=128, point=POINT, check=lambda: RIGHT,
)  # fmt: skip
RESULT = CompiledResult(
    status="ok", point=POINT.to_json(), target="v6e", device="tpu-v6e", jax="0.10.2",
    libtpu="0.0.42.1", pinned=True, modelled_ms=0.5, modelled_error={"mean": 0.04, "worst": 0.1},
    kernel_cycles=700, stall_cycles=70, slots={"MXU": 0.25}, spill_stores=3, spill_fills=4,
    vmem_bytes=1024, hbm_bytes=4096, lower_bounds_ms={"hbm": 0.1}, breakdown={"mxu": 1.0},
    xla_ops={"count": 2}, assumed={"regions": 0}, padded_tokens=192, compile_s=3.0,
)  # fmt: skip
OOM = CompiledResult(
    status="oom", point=POINT.to_json(), target="v6e", device="tpu-v6e", jax="0.10.2",
    libtpu="0.0.42.1", pinned=True, detail="45.13M of 32.00M", wanted_vmem_bytes=45 << 20,
    limit_vmem_bytes=32 << 20,
)  # fmt: skip


@pytest.fixture(scope="session")
def manifest():
    return dict(manifests.capture(project_root()))


@pytest.fixture
def run(monkeypatch, tmp_path, manifest):
    """A run in progress: its journal, and a ledger of its own."""
    journal = RunJournal.create(tmp_path / "runs", {"started_at": "2026-08-01T00:00:00+00:00"})
    identity = manifests.manifest_id(manifest)
    journal.add_manifest(identity, manifest)
    monkeypatch.setenv("K3BENCH_DB", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv(RUN_DIRECTORY_VARIABLE, str(journal.directory))
    monkeypatch.setenv(MANIFEST_VARIABLE, identity)
    monkeypatch.setenv("ASV_COMMIT", "0123456789")
    monkeypatch.setenv("K3BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("K3BENCH_DRY_RUN", raising=False)
    return journal


@pytest.fixture
def compiled(monkeypatch):
    def answer(result):
        monkeypatch.setattr(families, "compile_points", lambda points, target, **_: [result])

    return answer


def rows():
    with open_ledger() as ledger, ledger.session() as session:
        return {row.kind: row for row in select_results(session)}


def test_a_point_becomes_one_compiled_and_one_modelled_row(run, compiled):
    compiled(RESULT)
    assert track(CASE, "modelled_ms") == 0.5
    found = rows()
    assert found.keys() == {"compiled", "modelled"}
    assert found["compiled"].median_s is None
    assert found["compiled"].figures["kernel_cycles"] == 700
    assert found["compiled"].figures["slot.MXU"] == 0.25
    assert found["modelled"].median_s == 0.0005
    assert found["modelled"].tokens_per_s == 128 / 0.0005
    assert found["modelled"].figures["model_error.mean"] == 0.04
    for row in found.values():
        assert (row.device, row.clock, row.n, row.preset) == ("tpu-v6e", None, 0, None)
        assert (row.correctness_status, row.max_abs_error) == ("ok", 1e-4)
        assert row.run_id == run.run_id


def test_a_modelled_row_states_its_rates_and_its_distance_from_the_roofline(run, compiled):
    compiled(RESULT)
    track(CASE, "modelled_ms")
    figures = rows()["modelled"].figures
    # The toy workload is nobody's: the bound is that of the compiled lengths.
    moved = POINT.required_hbm_bytes
    assert figures["hbm_bytes"] == figures["roofline.hbm_bytes"] == moved
    assert figures["hbm_bytes_per_s"] == moved / 0.0005
    assert figures["hbm_share_of_peak"] == pytest.approx(moved / 0.0005 / 1.64e12)
    assert figures["roofline.bound_s"] == pytest.approx(moved / 1.64e12)
    assert figures["roofline.times_bound"] == pytest.approx(0.0005 / (moved / 1.64e12))
    assert figures["roofline.limited_by"] == "hbm"
    assert figures["bound.hbm_s"] == 0.0001, "of this program, beside the problem's"
    assert "roofline.bound_s" not in rows()["compiled"].figures


def test_padding_is_no_part_of_a_pinned_workloads_bound(manifest):
    workload = workloads.get("kda-grid/S64_B4")
    padded = replace(RESULT, point=KdaPoint("flat", (64,) * 4 + (100,), heads=24).to_json())
    case = replace(CASE, workload=WorkloadRef(workload.id, workload.sha256))
    records = records_of(case, padded, RIGHT, manifest_id=None, commit=None, run_id=None)
    held = KdaPoint("flat", (64,) * 4, heads=24).required_hbm_bytes
    assert records[1]["figures"]["roofline.hbm_bytes"] == held


def test_only_the_modelled_time_leaves_records(run, compiled):
    compiled(RESULT)
    values = {figure: track(CASE, figure) for figure in UNITS if figure != "modelled_ms"}
    assert values == {
        "kernel_cycles": 700.0, "spill_stores": 3.0, "hbm_bytes": 4096.0, "vmem_bytes": 1024.0,
    }  # fmt: skip
    assert list(run.points()) == []


def test_the_journal_has_the_records_as_given_to_asv(run, compiled):
    compiled(RESULT)
    track(CASE, "modelled_ms")
    points = list(run.points())
    assert {point.record["kind"] for point in points} == {"compiled", "modelled"}
    assert all(point.delivered_at is not None for point in points)


def test_an_overflow_fails_in_asv_and_has_no_speed_in_the_ledger(run, compiled):
    compiled(OOM)
    with pytest.raises(PointFailedError, match=r"FAILED: .*flat: oom: 45\.13M of 32\.00M"):
        track(CASE, "modelled_ms")
    [(kind, row)] = rows().items()
    assert kind == "compiled"
    assert row.correctness_status == "failed" and row.median_s is None
    assert row.figures["limit_vmem_bytes"] == 32 << 20


def test_a_kernel_that_its_interpreter_finds_wrong_gets_no_time(run, compiled):
    compiled(RESULT)
    with pytest.raises(PointFailedError, match=r"WRONG: .*flat: o: 0\.5 from the oracle"):
        track(replace(CASE, check=lambda: WRONG), "modelled_ms")
    [(kind, row)] = rows().items()
    assert kind == "compiled"
    assert (row.correctness_status, row.median_s, row.tokens_per_s) == ("wrong", None, None)
    assert "kernel_cycles" not in row.figures


def test_a_version_of_the_kernels_is_checked_once(tmp_path):
    checks = []

    def check():
        checks.append(1)
        return RIGHT

    for _ in range(2):
        assert kept_verdict("flat", check, directory=tmp_path) == RIGHT
    assert len(checks) == 1
    assert kept_verdict("fused", lambda: WRONG, directory=tmp_path) == WRONG


def test_a_check_that_raises_is_a_failed_verdict_and_is_not_kept(tmp_path):
    def broken():
        raise RuntimeError("no such op\nsecond line")

    verdict = kept_verdict("flat", broken, directory=tmp_path)
    assert (verdict.status, verdict.detail) == ("failed", "RuntimeError: no such op")
    assert kept_verdict("flat", lambda: RIGHT, directory=tmp_path) == RIGHT


def test_a_point_that_is_not_taken_is_skipped_without_a_record(run, compiled, capsys):
    compiled(replace(OOM, status="unsupported", detail="heads is 6: must be a multiple of 8"))
    assert math.isnan(track(CASE, "modelled_ms"))
    assert "heads is 6" in capsys.readouterr().out
    assert list(run.points()) == []


def test_records_are_valid_for_every_status(manifest, tmp_path):
    identity = manifests.manifest_id(manifest)
    with open_ledger(str(tmp_path / "ledger.sqlite")) as ledger:
        for result, verdict in ((RESULT, RIGHT), (RESULT, WRONG), (OOM, verdict_on(CASE, OOM))):
            records = records_of(
                CASE, result, verdict, manifest_id=identity, commit="0123456789", run_id="run"
            )
            assert ingest(ledger, records, [manifest]).inserted == len(records)


def test_warming_up_leaves_failures_to_the_benchmarks(monkeypatch):
    asked = []

    def broken(points, target, *, jobs):
        asked.append((list(points), target.name, jobs >= 1))
        raise CompiledError("the compiler died")

    monkeypatch.setattr(families, "compile_points", broken)
    warm_up([CASE, replace(CASE, target="tpu7x")])
    assert asked == [([POINT], "v6e", True), ([POINT], "tpu7x", True)]
