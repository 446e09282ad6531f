"""Publishing: the fast way writes what asv writes, and asv's explorer works offline beside ours."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asv_history import asv_project, published_both_ways
from browsing import LAPTOP, PHONE, Visit, served

from k3bench.dashboard.errors import DashboardError
from k3bench.dashboard.explorer import link_to_pages


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project published twice: plain/ by asv, html/ by us."""
    root = tmp_path_factory.mktemp("asv") / "project"
    asv_project(root, commits=60, benchmarks=4, parameters=5)
    published_both_ways(root)
    return root


def test_the_fast_way_writes_asv_s_graphs_byte_for_byte(project: Path) -> None:
    plain, fast = project / "plain", project / "html"
    names = [path.relative_to(plain) for path in (plain / "graphs").rglob("*.json")]
    assert names
    assert {path.relative_to(fast) for path in (fast / "graphs").rglob("*.json")} == set(names)
    for name in [*names, Path("index.json"), Path("regressions.json"), Path("regressions.xml")]:
        assert (fast / name).read_bytes() == (plain / name).read_bytes(), name
    assert "Bench0.time_it" in (plain / "regressions.json").read_text()


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
