"""The MLA report: made of the ledger's rows and the published points, kinds never mixed."""

from pathlib import Path

import pytest

import manifests
from k3bench.asv_compiled import CompiledCase, records_of
from k3bench.compiled.amdgpu import GpuPoint, GpuResult
from k3bench.compiled.amdgpu.fit import POINTS_FILE
from k3bench.ledger import Ledger, ingest, open_ledger
from k3bench.measure import Correctness, WorkloadRef
from k3bench.paths import project_root
from k3bench.report import ReportError, collect_mla, mla_files

RIGHT = Correctness("ok", 1e-6, 5e-5, "the fp32 reference", "o and lse")
CONTEXTS = {"4K": 4096, "64K": 65_536}


def result_of(point: GpuPoint, stages: dict[str, float], **changes) -> GpuResult:
    kernel = {
        "vgpr": 236, "agpr": 0, "scratch_bytes": 0, "lds_bytes": 36_864, "workgroups": 410,
        "resident_workgroups": 512, "rounds": 1, "round_trips": 1.0, "bytes_per_iteration": 36_864,
        "bytes_in_flight_per_cu": 73_728, "iterations": 5,
    }  # fmt: skip
    figures = {
        "vgpr": 236, "agpr": 0, "sgpr": 56, "scratch_bytes": 0, "scratch_operations_in_loops": 0,
        "lds_bytes": 36_864, "occupancy": 2, "main_kernel": next(iter(stages)),
        "resident_workgroups": 512, "rounds": 1, "round_trips": 1.0,
        "bytes_in_flight_per_cu": 73_728, "mfma": 44, "hbm_bytes": 1152 * sum(point.lengths),
        "flops": 10**9, "lower_bound_us": 1.5, "modelled_us": sum(stages.values()),
        "modelled_error": {"mean": 0.16, "worst": 0.7}, "code_sha256": "c" * 64,
    }  # fmt: skip
    return GpuResult(
        status="ok", point=point.to_json(), target="gfx950", device="mi355x", triton="3.7.1",
        kernels=tuple({**kernel, "name": name, "modelled_us": us} for name, us in stages.items()),
        **{**figures, **changes},
    )  # fmt: skip


@pytest.fixture(scope="module")
def manifest():
    return dict(manifests.capture(project_root()))


def add(
    ledger: Ledger, manifest, benchmark: str, parameters: dict, point: GpuPoint, stages, **figures
):
    case = CompiledCase(
        benchmark=f"compiled_mla.{benchmark}.track_modelled_us", version="1",
        parameters=parameters, workload=WorkloadRef(str(parameters), "a" * 64),
        tokens=point.tokens, point=point, check=lambda: RIGHT, target="gfx950",
    )  # fmt: skip
    records = records_of(
        case, result_of(point, stages, **figures), RIGHT,
        manifest_id=manifests.manifest_id(manifest), commit="0123456789", run_id="run",
    )  # fmt: skip
    ingest(ledger, records, [manifest])


@pytest.fixture
def ledger(tmp_path: Path, manifest):
    with open_ledger(str(tmp_path / "ledger.sqlite")) as opened:
        for context, length in CONTEXTS.items():
            for name, slower in (("triton", 1), ("sglang", 4)):
                point = GpuPoint("mla-decode", name, (length,))
                stages = {"stage1": 10.0 * slower, "stage2": 5.0}
                add(opened, manifest, "Decode", {"context": context, "B": 1}, point, stages)
        for splits, rounds in ((21, 1), (22, 2)):
            point = GpuPoint("mla-decode", "sglang", (69_632,) * 24, num_kv_splits=splits)
            shape = {"B": 24, "splits": splits}
            add(opened, manifest, "DecodeAt68K", shape, point, {"stage1": 300.0}, rounds=rounds)
        for form, us in (("decompressed", 4000.0), ("absorbed", 11_000.0)):
            point = GpuPoint(
                "mla-prefill", f"triton_chunked_{form}", (16_384,), prefix_lengths=(16_384,)
            )
            add(opened, manifest, "LastChunk", {"context": "32K"}, point, {f"{form}-prefix": us})
        point = GpuPoint("kda-decode", "triton", (1,))
        add(opened, manifest, "KdaDecode", {"B": 1}, point, {"step": 7.0})
        yield opened


def written(ledger: Ledger) -> dict[str, str]:
    with ledger.session() as session:
        files = mla_files(collect_mla(session))
    return {str(path): text for path, text in files.items()}


def test_both_stages_of_every_kernel_stand_on_one_scale(ledger: Ledger) -> None:
    text = written(ledger)["docs/mla-mi355x.md"]
    assert "| 64K | `triton` | 10.0 | 5.0 | 15.0 | 1.5 | 5.03 | 63% |" in text
    assert "| 64K | `sglang` | 40.0 | 5.0 | 45.0 |" in text
    assert "- 64K: `triton` takes 1/3.0 of `sglang`'s modelled time" in text


def test_the_cliff_is_shown_by_the_exact_metric(ledger: Ledger) -> None:
    text = written(ledger)["docs/mla-mi355x.md"]
    assert "| `sglang` | 24 | 21 | 410 | 512 | 1 | 300 |" in text
    assert "| `sglang` | 24 | 22 | 410 | 512 | 2 | 300 |" in text


def test_the_form_s_costs_are_computed_and_its_ratio_is_that_of_the_rows(ledger: Ledger) -> None:
    text = written(ledger)["docs/mla-mi355x.md"]
    assert "`absorbed`, 1.05e+13 FLOPs, 10.2 times the first chunk's" in text
    assert "at most 170 new tokens" in text
    assert "takes 2.8 times as long" in text


def test_every_published_point_is_there_with_its_source(ledger: Ledger) -> None:
    with ledger.session() as session:
        report = collect_mla(session)
    text = written(ledger)["docs/mla-mi355x.md"]
    assert len(report.published) > 10
    assert all(f"| {point.id} |" in text for point in report.published)
    assert all(source in text for source in report.sources.values()), POINTS_FILE


def test_equal_rows_give_equal_files_and_columns_of_figures_name_their_kind(ledger: Ledger) -> None:
    files = written(ledger)
    assert files == written(ledger)
    assert set(files) == {
        "docs/mla-mi355x.md", "docs/plots/mla_decode.svg", "docs/plots/mla_bandwidth.svg",
        "docs/plots/mla_form.svg", "docs/plots/mla_model.svg",
    }  # fmt: skip
    headers = [line for line in files["docs/mla-mi355x.md"].splitlines() if " us" in line]
    assert all("modelled" in line or "published" in line for line in headers if "|" in line)


def test_without_a_provider_the_report_is_ours_alone(tmp_path: Path, manifest) -> None:
    with open_ledger(str(tmp_path / "ours.sqlite")) as ledger:
        point = GpuPoint("mla-decode", "triton", (4096,))
        stages = {"stage1": 10.0, "stage2": 5.0}
        add(ledger, manifest, "Decode", {"context": "4K", "B": 1}, point, stages)
        text = written(ledger)["docs/mla-mi355x.md"]
    assert "`triton`" in text and "of `sglang`'s modelled time" not in text


def test_an_empty_ledger_says_what_to_run(tmp_path: Path) -> None:
    with (
        open_ledger(str(tmp_path / "empty.sqlite")) as ledger,
        ledger.session() as session,
        pytest.raises(ReportError, match="asv run --bench compiled_mla"),
    ):
        collect_mla(session)
