"""Fixtures: made-up sites built once, and a headless browser, which a machine may lack."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browsing import LAPTOP, Visit, served
from synthetic import IMAGE, LONG, RIGHT_TO_LEFT, SCRIPT, TEMPLATE, clone, fill

from k3bench.dashboard.build import build
from k3bench.ledger import Ledger, open_ledger
from k3bench.paths import project_root

CHROMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SUBJECTS = ["Start", "A plain one", "Another", "One more", "Again", "The newest"]
HOSTILE_SUBJECTS = ["Start", SCRIPT, f"{IMAGE} {RIGHT_TO_LEFT}", LONG, TEMPLATE, "</script>&amp;"]


@pytest.fixture(autouse=True)
def no_ledger_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("K3BENCH_DB", raising=False)


@pytest.fixture(scope="session")
def plain_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ledger, Path]]:
    """The whole grid over six commits, and the clone that knows them."""
    yield from _filled(tmp_path_factory.mktemp("plain"), SUBJECTS, hostile=False)


@pytest.fixture(scope="session")
def hostile_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ledger, Path]]:
    """The same, with names and commit messages that mean harm."""
    yield from _filled(tmp_path_factory.mktemp("hostile"), HOSTILE_SUBJECTS, hostile=True)


def _filled(root: Path, subjects: list[str], *, hostile: bool) -> Iterator[tuple[Ledger, Path]]:
    commits = clone(root / "clone", subjects)
    with open_ledger(str(root / "ledger.sqlite")) as ledger:
        fill(ledger, commits, hostile=hostile)
        yield ledger, root / "clone"


@pytest.fixture(scope="session")
def site_files(
    plain_ledger: tuple[Ledger, Path],
    hostile_ledger: tuple[Ledger, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Built sites: plain, hostile (all of plain and more), real (the project's ledger), empty."""
    root = tmp_path_factory.mktemp("sites")
    for name, (ledger, repository) in (("plain", plain_ledger), ("hostile", hostile_ledger)):
        build(ledger, root / name, repository=repository)
    shutil.copy(project_root() / "results.sqlite", root / "real.sqlite")
    with open_ledger(str(root / "real.sqlite")) as real:
        build(real, root / "real", repository=project_root())
    build(None, root / "empty", repository=root)
    return root


@pytest.fixture(scope="session")
def sites(site_files: Path) -> Iterator[dict[str, str]]:
    """Addresses of the built sites."""
    with served(site_files) as base:
        yield {name: f"{base}/{name}" for name in ("plain", "hostile", "real", "empty")}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium, the system's own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: the dev extra")
    chrome = next((path for name in CHROMES if (path := shutil.which(name))), None)
    if chrome is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # Containers often run as root, where Chromium's sandbox refuses to start.
        running = playwright.chromium.launch(executable_path=chrome, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def contexts(browser: Any) -> Callable[[int, bool], Any]:
    """One context a kind of screen, so that compiled scripts are kept from page to page."""
    known: dict[tuple[int, bool], Any] = {}

    def context(width: int, dark: bool) -> Any:
        if (width, dark) not in known:
            known[width, dark] = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if dark else "light",
                accept_downloads=True,
            )
        return known[width, dark]

    return context


@pytest.fixture
def visit(contexts: Callable[[int, bool], Any]) -> Iterator[Callable[..., Visit]]:
    """Opens a page: visit(base, width=1280, dark=False)."""
    visits = []

    def start(base: str, *, width: int = LAPTOP, dark: bool = False) -> Visit:
        visits.append(Visit.start(contexts(width, dark), base))
        return visits[-1]

    yield start
    for visited in visits:
        visited.page.close()
