"""Every page in a real browser: at two widths, light and dark, on real, hostile and no data."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import LAPTOP, PAGES, PHONE, Visit

KINDS = ("measured", "compiled", "modelled", "published")


@pytest.mark.parametrize("width", [LAPTOP, PHONE])
@pytest.mark.parametrize("site", ["hostile", "real"])
def test_every_page_is_clean_and_fits(
    visit: Callable[..., Visit], sites: dict[str, str], site: str, width: int
) -> None:
    here = visit(sites[site], width=width, dark=width == PHONE)
    for page in PAGES:
        here.open(page)
        assert here.overflow() == 0, page
        here.must_be_clean()
        heading = here.page.inner_text("h1")
        assert heading and here.page.title() == f"{heading} - K3Bench"
        for about in here.page.query_selector_all("figure .about"):
            assert any(kind in about.inner_text() for kind in KINDS)


def test_pages_without_results_say_what_to_run(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["empty"], width=PHONE)
    for page in PAGES:
        here.open(page)
        here.must_be_clean()
        assert here.overflow() == 0, page
        if page != "point":
            assert "make" in here.page.inner_text(".empty pre"), page


def test_pages_open_from_a_disk_without_a_server(
    visit: Callable[..., Visit], site_files: Path
) -> None:
    here = visit(f"file://{site_files}/plain").open("latency")
    here.must_be_clean()
    assert here.page.query_selector("#latency-grid .main-svg")


def test_a_missing_data_file_is_said_on_the_page(
    visit: Callable[..., Visit], site_files: Path, tmp_path: Path
) -> None:
    shutil.copytree(site_files / "empty", tmp_path / "pages")
    (tmp_path / "pages/data/series.js").unlink()
    here = visit(f"file://{tmp_path}/pages").open("index")
    assert "data file series is missing" in here.page.inner_text("[role=alert]")


def test_hostile_names_are_shown_as_they_are(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["hostile"]).open("index")
    subjects = here.page.inner_text("main")
    assert "<script>window.hacked = 1</script>" in subjects
    assert '"><img src=x onerror="window.hacked = 2">' in subjects
    here.open("latency")
    here.page.click("#latency-grid summary")
    table = here.page.inner_text("#latency-grid table")
    assert "<script>window.hacked = 1</script>" in table and "__proto__" in table
    here.must_be_clean()


def test_every_page_links_to_every_other(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["plain"]).open("index")
    links: list[Any] = here.page.query_selector_all("nav a")
    assert {link.get_attribute("href") for link in links} == {f"{page}.html" for page in PAGES}
    assert here.page.get_attribute("nav a[aria-current]", "href") == "index.html"


def test_the_keyboard_reaches_skip_link_controls_and_tables(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["plain"]).open("ablation")
    reached = []
    for _ in range(40):
        here.page.keyboard.press("Tab")
        reached.append(
            here.page.evaluate(
                "() => document.activeElement.id || document.activeElement.textContent.trim()"
            )
        )
    for wanted in ("Skip to content", "choose-view", "choose-workload", "SVG", "CSV"):
        assert wanted in reached
    here.page.focus("#choose-workload")
    here.page.keyboard.press("ArrowDown")
    here.drawn()
    assert here.page.evaluate("() => document.activeElement.id") == "choose-workload"
    assert "workload=" in here.page.url
