"""The report: made of the ledger's rows alone, equal for equal rows, kinds never mixed."""

from pathlib import Path

import pytest

import manifests
from k3bench.asv_compiled import CompiledCase, records_of
from k3bench.compiled.tpu import CompiledResult, KdaPoint
from k3bench.compiled.tpu.breakdown import CATEGORIES
from k3bench.compiled.tpu.targets import V6E
from k3bench.ledger import Ledger, ingest, open_ledger
from k3bench.ledger.published import seed
from k3bench.measure import Correctness, WorkloadRef
from k3bench.paths import project_root
from k3bench.report import ReportError, collect_ladder, ladder_files, stale_files, write_files
from k3bench.report.ladder import HEADLINE, RUNGS
from k3bench.report.ladder_markdown import README_BEGIN, README_END

TIMES_MS = dict(zip(RUNGS, (32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.75), strict=True))


def result_of(rung: str, modelled_ms: float) -> CompiledResult:
    point = KdaPoint(rung, (2048,) * 4, heads=16)
    return CompiledResult(
        status="ok", point=point.to_json(), target="v6e", device="tpu-v6e", jax="0.10.2",
        libtpu="0.0.42.1", pinned=True, modelled_ms=modelled_ms,
        modelled_error={"mean": 0.04, "worst": 0.11}, kernel_cycles=int(modelled_ms * 1.75e6),
        stall_cycles=0, slots=dict.fromkeys(V6E.slots, 0.25), spill_stores=3, spill_fills=4,
        vmem_bytes=1 << 20, hbm_bytes=4_000_000, lower_bounds_ms={"hbm": 0.1, "mxu": 0.2},
        breakdown=dict.fromkeys(CATEGORIES, 1 / len(CATEGORIES)), xla_ops={"count": 2},
        assumed={"regions": 0}, padded_tokens=8192, compile_s=3.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def manifest():
    return dict(manifests.capture(project_root()))


@pytest.fixture
def ledger(tmp_path: Path, manifest):
    """A ledger with the published figures and one compiled ladder."""
    with open_ledger(str(tmp_path / "ledger.sqlite")) as opened:
        seed(opened)
        add_ladder(opened, manifest, TIMES_MS)
        yield opened


def add_ladder(ledger: Ledger, manifest, times_ms: dict[str, float]) -> None:
    right = Correctness("ok", 1e-4, 5e-4, "the oracle", "o")
    for rung, ms in times_ms.items():
        result = result_of(rung, ms)
        case = CompiledCase(
            benchmark="compiled_kda.Headline.track_modelled_ms", version="1", parameters={},
            workload=WorkloadRef(HEADLINE, "a" * 64), tokens=8192,
            point=KdaPoint(rung, (2048,) * 4, heads=16), check=lambda: right,
        )  # fmt: skip
        records = records_of(
            case, result, right, manifest_id=manifests.manifest_id(manifest),
            commit="0123456789", run_id="run",
        )  # fmt: skip
        ingest(ledger, records, [manifest])


def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "README.md").write_text(f"# Title\n\n{README_BEGIN}\nold\n{README_END}\n\nrest\n")
    return root


def written_report(report, root: Path) -> list[Path]:
    return write_files(ladder_files(report, root), root)


def collected(ledger: Ledger):
    with ledger.session() as session:
        return collect_ladder(session)


def test_the_ladder_is_in_order_beside_the_published_one(ledger: Ledger) -> None:
    rungs = collected(ledger).workloads[HEADLINE]
    assert [rung.implementation for rung in rungs] == list(RUNGS)
    assert [rung.modelled_ms for rung in rungs] == pytest.approx(list(TIMES_MS.values()))
    assert [rung.published_ms for rung in rungs[:6]] == pytest.approx(
        [33.61, 14.73, 11.79, 8.23, 5.02, 2.62]
    )
    assert rungs[6].published_ms is None


def test_the_newest_figures_win(ledger: Ledger, manifest) -> None:
    add_ladder(ledger, manifest, {"dyadic": 0.5})
    assert collected(ledger).workloads[HEADLINE][-1].modelled_ms == pytest.approx(0.5)


def test_writing_touches_only_the_readme_s_table_and_twice_changes_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    root = project(tmp_path)
    report = collected(ledger)
    written = {str(path) for path in written_report(report, root)}
    assert written == {
        "README.md", "docs/kda-ladder.md", "docs/plots/ladder.svg", "docs/plots/breakdown.svg",
        "docs/plots/model_error.svg",
    }  # fmt: skip
    readme = (root / "README.md").read_text()
    assert readme.startswith("# Title\n\n") and readme.endswith("\n\nrest\n")
    assert "old" not in readme
    assert "| `optimized` | 1,750,000 | 1.00 | 32.00x | 2.62 | 12.83x |" in readme
    assert "| `dyadic` | 1,312,500 | 0.75 | 42.67x |  |  |" in readme
    assert written_report(collected(ledger), root) == []


def test_every_column_of_figures_names_its_kind(ledger: Ledger, tmp_path: Path) -> None:
    root = project(tmp_path)
    written_report(collected(ledger), root)
    text = (root / "docs/kda-ladder.md").read_text()
    header = next(line for line in text.splitlines() if line.startswith("| rung | kernel cycles"))
    for column in header.strip("| ").split(" | ")[1:]:
        assert any(f"({kind})" in column for kind in ("compiled", "modelled", "published"))


def test_a_stale_file_is_found(ledger: Ledger, tmp_path: Path) -> None:
    root = project(tmp_path)
    written_report(collected(ledger), root)
    (root / "docs/kda-ladder.md").write_text("typed by hand")
    assert [str(path) for path in stale_files(ladder_files(collected(ledger), root), root)] == [
        "docs/kda-ladder.md"
    ]


def test_a_readme_without_the_markers_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    root = project(tmp_path)
    (root / "README.md").write_text("# Title\n")
    with pytest.raises(ReportError, match=r"README\.md: the markers"):
        written_report(collected(ledger), root)


def test_an_empty_ledger_says_what_to_run(tmp_path: Path) -> None:
    with (
        open_ledger(str(tmp_path / "empty.sqlite")) as ledger,
        pytest.raises(ReportError, match="asv run --bench compiled_kda"),
    ):
        collected(ledger)


def test_rungs_that_are_missing_leave_a_shorter_ladder(tmp_path: Path, manifest) -> None:
    with open_ledger(str(tmp_path / "part.sqlite")) as ledger:
        seed(ledger)
        add_ladder(ledger, manifest, {"flat": 2.0})
        (rung,) = collected(ledger).workloads[HEADLINE]
    assert (rung.implementation, rung.modelled_ms) == ("flat", pytest.approx(2.0))
