"""Fixtures of the export's tests: a project that really ran, once for all of them."""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from harness.asv_project import ToyProject
from ledger.conftest import database, postgres  # noqa: F401  (fixtures)

import k3bench.export.asv_files as asv_files
from k3bench.export import ExportReport, export_asv
from k3bench.export.suite import Suite, discover
from k3bench.ledger import Ledger, open_ledger


@dataclass(frozen=True)
class Ran:
    """A toy project with results of three commits, the last with a wrong kernel."""

    project: ToyProject
    commits: tuple[str, str, str]

    @property
    def results(self) -> Path:
        return self.project.root / ".asv" / "results"

    @property
    def ledger(self) -> Path:
        return self.project.root / "results.sqlite"


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    project = ToyProject.create(tmp_path_factory.mktemp("ran"))
    first = project.git("rev-parse", "HEAD")
    second = project.commit("A slower kernel", seconds=0.003)
    third = project.commit("A wrong kernel", seconds=0.001, error=0.25)
    # Named, because benchmark processes run in directories of asv's, outside of the project.
    ledger = str(project.root / "results.sqlite")
    output = project.asv("run", "--record-samples", "ALL", expect=2, K3BENCH_DB=ledger)
    assert "18 points in the ledger (15 ok, 3 wrong)" in output
    return Ran(project, (first, second, third))


def cloned(ran: Ran, directory: Path) -> ToyProject:
    """The same repository elsewhere, with the ledger and nothing of asv's."""
    root = directory / "clone"
    subprocess.run(["git", "clone", "-q", ran.project.root, root], check=True)
    for part in ("results.sqlite", "results.sqlite-wal"):
        if (ran.project.root / part).exists():
            shutil.copy(ran.project.root / part, root / part)
    return ToyProject(root, directory / "log.txt")


@pytest.fixture
def clone(ran: Ran, tmp_path: Path) -> ToyProject:
    return cloned(ran, tmp_path)


@pytest.fixture(scope="session")
def suite(ran: Ran) -> Suite:
    """asv's discovery of the toy, which takes seconds, once for the tests that only need it."""
    return discover(ran.project.root, "smoke", ran.commits)


@pytest.fixture
def ledger(clone: ToyProject) -> Iterator[Ledger]:
    with open_ledger(str(clone.root / "results.sqlite")) as opened:
        yield opened


@pytest.fixture
def export(
    clone: ToyProject, ledger: Ledger, suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., ExportReport]:
    """export_asv into the clone, with the discovery that is known already."""

    def known(project_root: Path, preset: str, commits: Iterable[str]) -> Suite:
        assert preset == "smoke"
        dates = {each: suite.dates[each] for each in commits if each in suite.dates}
        return replace(suite, dates=dates, results_dir=project_root / ".asv" / "results")

    monkeypatch.setattr(asv_files, "discover", known)

    def run(**options: object) -> ExportReport:
        return export_asv(ledger, clone.root, **options)

    return run
