"""Publishing: the fast way writes what asv writes, and asv's explorer works offline beside ours."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asv import step_detect
from asv_history import asv_project
from browsing import LAPTOP, PHONE, Visit, served
from hypothesis import given, settings
from hypothesis import strategies as st

from k3bench.dashboard.errors import DashboardError
from k3bench.dashboard.explorer import link_to_pages
from k3bench.dashboard.fast_publish import fast_publishing
from k3bench.dashboard.fast_steps import detect_many, short_distances, solve

FAST = (
    "import sys; from k3bench.cli import COMMANDS, main; "
    "COMMANDS.setdefault('publish', ('publish', '')); main(['publish', *sys.argv[1:]])"
)


def run(root: Path, *command: str) -> None:
    # asv walks through sets: their order, and so the order of regressions, hangs on the seed.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "K3BENCH_DB": str(root / "none.sqlite")}
    done = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project published twice: plain/ by asv, html/ by us."""
    root = tmp_path_factory.mktemp("asv") / "project"
    asv_project(root, commits=60, benchmarks=4, parameters=5)
    run(root, "-m", "asv", "publish", "--no-pull", "-o", "plain")
    run(root, "-c", FAST, "--no-pull")
    return root


def test_the_fast_way_writes_asv_s_graphs_byte_for_byte(project: Path) -> None:
    plain, fast = project / "plain", project / "html"
    names = [path.relative_to(plain) for path in (plain / "graphs").rglob("*.json")]
    assert names
    assert {path.relative_to(fast) for path in (fast / "graphs").rglob("*.json")} == set(names)
    for name in [*names, Path("index.json"), Path("regressions.json"), Path("regressions.xml")]:
        assert (fast / name).read_bytes() == (plain / name).read_bytes(), name
    assert "Bench0.time_it" in (plain / "regressions.json").read_text()


def test_asv_is_as_it_was_afterwards() -> None:
    before = (step_detect.solve_potts_autogamma, step_detect.detect_steps)
    with fast_publishing():
        pass
    assert (step_detect.solve_potts_autogamma, step_detect.detect_steps) == before


def series(draw: random.Random, size: int, form: int) -> tuple[list, list]:
    """Noise round a level that steps, of several forms, with missing values and weights."""
    level = 10 ** draw.uniform(-6, 3)
    step = draw.randrange(size + 1)
    noise = draw.choice([0.0, 1e-9, 0.02, 0.3])
    values = [
        level * (1.3 if at >= step else 1.0) * (1 + draw.gauss(0, noise)) for at in range(size)
    ]
    if form == 1:  # many equal values
        values = [round(value / level * 5) for value in values]
    weights = [1.0] * size if form == 2 else [draw.random() + 0.1 for _ in range(size)]
    for given_list in (values, weights):
        for at in range(size):
            if draw.random() < 0.03:
                given_list[at] = draw.choice([None, float("nan")])
    return values, weights


@given(st.integers(0, 2**32), st.sampled_from([0, 1, 2]))
@settings(max_examples=25, deadline=None)
def test_steps_are_asv_s_to_the_last_bit(seed: int, form: int) -> None:
    draw = random.Random(seed)
    many = [series(draw, draw.choice([0, 1, 2, 3, 19, 20, 21, 60, 150]), form) for _ in range(6)]
    assert detect_many(many) == [step_detect.detect_steps(*one) for one in many]


def test_one_series_alone_is_solved_as_asv_solves_it() -> None:
    draw = random.Random(11)
    for _ in range(10):
        values = [1 + draw.gauss(0, 0.1) for _ in range(draw.choice([1, 7, 90]))]
        weights = [draw.random() + 0.1 for _ in values]
        assert solve(values, weights) == step_detect.solve_potts_autogamma(values, weights)


def test_short_distances_are_those_of_asv_s_compiled_code() -> None:
    draw = random.Random(5)
    many = []
    for size in (1, 5, 20, 33):
        values = [draw.choice([0.5, 1.0, draw.random()]) for _ in range(size)]
        many.append((values, [draw.choice([1.0, 0.5, draw.random()]) for _ in range(size)]))
    table = short_distances(many)
    for row, (values, weights) in zip(table, many, strict=True):
        distances = step_detect.get_mu_dist(values, weights)
        for right in range(len(values)):
            for left in range(max(0, right - 19), right + 1):
                assert row[right, left - right - 1] == distances.dist(left, right)


def test_the_index_is_linked_once_and_only_where_there_is_one(tmp_path: Path) -> None:
    with pytest.raises(DashboardError, match="run `asv publish` first"):
        link_to_pages(tmp_path)
    (tmp_path / "index.html").write_text("<html><body>x</body></html>")
    link_to_pages(tmp_path)
    link_to_pages(tmp_path)
    assert (tmp_path / "index.html").read_text().count("k3bench/index.html") == 1


@pytest.fixture(scope="module")
def address(project: Path) -> Iterator[str]:
    with served(project / "html") as base:
        yield base


@pytest.mark.parametrize("width", [LAPTOP, PHONE])
def test_asv_s_explorer_works_offline_and_leads_to_the_kernel_pages_and_back(
    visit: Callable[..., Visit], address: str, width: int, tmp_path: Path
) -> None:
    here = visit(address, width=width)
    here.page.goto(f"{address}/index.html")
    here.page.wait_for_selector("#root *")
    shown = set()
    for tab in ("Explore", "Heatmap", "Grid", "Multiples", "Compare", "Regressions", "Inventory",
                "Overview"):  # fmt: skip
        here.page.get_by_role("button", name=tab, exact=True).first.click()
        here.page.wait_for_timeout(400)
        shown.add(here.page.inner_text("#root"))
    assert len(shown) == 8  # every tab is another page
    here.page.screenshot(path=str(tmp_path / "explorer.png"))
    assert here.messages == [] and here.foreign == []
    here.page.click("#k3bench-pages")
    here.drawn()
    assert here.page.inner_text("h1") == "Kernel results"
    here.page.click("nav a:text-is('Explorer (asv)')")
    here.page.wait_for_selector("#root *")
    here.must_be_clean()
