"""Every control does what it says, and the numbers shown are the ledger's."""

import csv
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from browsing import PHONE, Visit
from synthetic import BATCHES, LENGTHS, RUNGS, SCRIPT

import manifests
import workloads
from k3bench.ledger import Ledger, load_manifest, load_samples, select_results
from k3bench.roofline.machine import machine_of
from k3bench.roofline.recorded import recorded_call

GRID = "kda_prefill.FixedGrid"
Filled = tuple[Ledger, Path]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def newest(ledger: Ledger, **conditions: str):
    with ledger.session() as session:
        return select_results(session, latest=True, **conditions)


def figures_in(svg: str) -> str:
    """All text of an SVG, which must be well formed and bring nothing from elsewhere."""
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "<script" not in svg and "javascript:" not in svg
    assert not re.search(r'(?:href|src)="(?!#|data:)', svg)
    return " ".join(root.itertext())


@pytest.mark.parametrize(
    ("page", "figures", "kind"),
    [
        ("latency", ["latency-grid", "latency-replay"], "measured"),
        ("speedup", ["speedup-grid", "speedup-replay"], "measured"),
        ("ablation", ["ablation"], "measured"),
        ("mla", ["mla-bandwidth"], "measured"),
        ("roofline", ["roofline-plot", "roofline-distance"], "measured"),
        ("roofline", ["roofline-k3"], "published over modelled"),
        ("composition", ["composition-0", "composition-1"], "published"),
        ("history", ["history"], "measured"),
    ],
)
def test_figures_are_saved_as_svg_and_csv_that_say_their_kind(
    visit: Callable[..., Visit], sites: dict[str, str], page: str, figures: list[str], kind: str
) -> None:
    here = visit(sites["plain"]).open(page)
    for figure in figures:
        assert kind in figures_in(here.saved(figure, "SVG"))
        rows = rows_of(here.saved(figure, "CSV"))
        assert rows and {row["kind"] for row in rows} == {kind}
        assert all(row["device"] for row in rows)
    here.must_be_clean()


def test_the_latency_csv_holds_the_ledger_s_medians(
    visit: Callable[..., Visit], sites: dict[str, str], plain_ledger: Filled
) -> None:
    shown = rows_of(visit(sites["plain"]).open("latency").saved("latency-grid", "CSV"))
    stored = {row.id: row for row in newest(plain_ledger[0], benchmark=GRID)}
    assert len(shown) == len(LENGTHS) * len(BATCHES) * len(RUNGS)
    for row in shown:
        record = stored[row["result"]]
        for name, value in (("median s", record.median_s), ("p10 s", record.p10_s)):
            assert (float(row[name]) if row[name] else None) == value
        assert row["commit"] == record.commit and row["workload"] == record.workload_id


def test_every_panel_shows_every_rung(visit: Callable[..., Visit], sites: dict[str, str]) -> None:
    here = visit(sites["plain"]).open("latency")
    panels = here.page.evaluate(
        "() => document.querySelector('#latency-grid .chart').data.filter((line) => line.name)"
        ".map((line) => [line.xaxis, line.name, line.x.length])"
    )
    assert len(panels) == len(LENGTHS) * len(RUNGS)
    assert {name for _, name, _ in panels} == set(RUNGS)
    # One point of ``fused`` is wrong, and so has no time.
    assert sorted({count for _, _, count in panels}) == [len(BATCHES) - 1, len(BATCHES)]


def test_speedup_cards_say_range_mean_and_largest_case_apart(
    visit: Callable[..., Visit], sites: dict[str, str], plain_ledger: Filled
) -> None:
    here = visit(sites["plain"]).open("speedup", baseline="mxu_port", candidate="fused")
    cards = [card.inner_text() for card in here.page.query_selector_all(".card")]
    assert [card.splitlines()[0] for card in cards] == [
        "Fixed lengths",
        "sharegpt-k3 (ShareGPT-derived)",
        "sharegpt-k3-surrogate (surrogate of ShareGPT-derived)",
    ]
    by_point = {
        (row.workload_id, row.implementation): row.median_s
        for row in newest(plain_ledger[0], benchmark=GRID)
    }
    ratios = [
        slow / fast
        for (workload, implementation), slow in by_point.items()
        if implementation == "mxu_port" and (fast := by_point[workload, "fused"]) is not None
    ]
    assert len(ratios) == 55
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    assert f"{mean:.3f}x over 55 of 56 points" in cards[0]
    assert f"{min(ratios):.3f}x to {max(ratios):.3f}x" in cards[0]
    # The largest point is wrong; of the next largest, the first in the grid's order.
    assert "Largest case (S = 512, B = 64)" in cards[0]
    assert "wrong" in here.page.inner_text("#speedup-grid .chart")


def test_swapping_baseline_and_implementation_inverts_the_figure(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["plain"]).open("speedup")
    here.choose("baseline", "optimized")
    here.choose("candidate", "original")
    rows = rows_of(here.saved("speedup-grid", "CSV"))
    assert {(row["baseline"], row["implementation"]) for row in rows} == {("optimized", "original")}
    assert all(float(row["speed-up"]) < 1 for row in rows)


def test_another_kind_is_laid_beside_only_when_it_is_chosen(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["real"]).open("ablation")
    assert not here.page.query_selector("#ablation-beside")
    view = next(
        value
        for value, text in zip(
            here.options("beside"),
            here.page.locator("#choose-beside option").all_inner_texts(),
            strict=True,
        )
        if text.startswith("published")
    )
    here.choose("beside", view)
    here.choose("workload", "kda-headline")
    own = here.page.inner_text("#ablation .about")
    other = here.page.inner_text("#ablation-beside .about")
    assert other.startswith("published") and not own.startswith("published")
    rows = rows_of(here.saved("ablation-beside", "CSV"))
    assert {row["kind"] for row in rows} == {"published"}
    assert [row["implementation"] for row in rows] == list(RUNGS)
    here.must_be_clean()


@pytest.mark.parametrize("page", ["latency", "speedup", "ablation", "schedule", "mla", "history"])
def test_every_option_of_every_control_draws(
    visit: Callable[..., Visit], sites: dict[str, str], page: str
) -> None:
    here = visit(sites["hostile"], width=PHONE).open(page)
    names = [
        control.get_attribute("name") for control in here.page.query_selector_all("#page select")
    ]
    assert names
    for name in names:
        here.open(page)
        # First, middle and last: hundreds of workloads differ in nothing but their numbers.
        options = here.options(name)
        for value in dict.fromkeys((options[0], options[len(options) // 2], options[-1])):
            here.choose(name, value)
            assert here.overflow() == 0
    here.must_be_clean()


def test_the_history_marks_the_commit_that_made_flat_slower(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["plain"]).open(
        "history", benchmark=f"{GRID}.device_prefill", point="kda-grid/S512_B16",
        implementation="flat", view='["measured","tpu-v6e","device","device"]',
    )  # fmt: skip
    rows = rows_of(here.saved("history", "CSV"))
    changed = [row for row in rows if row["change point"]]
    assert [row["subject"] for row in rows][::-1] == [
        "Start", "A plain one", "Another", "One more", "Again", "The newest",
    ]  # fmt: skip
    assert [row["subject"] for row in changed] == ["One more"]
    assert re.match(r"1\.2\d+x since [0-9a-f]{10}, worse", changed[0]["change point"])
    assert "One change point" in here.page.inner_text("#history .note")


def test_a_point_shows_its_samples_to_the_last_bit(
    visit: Callable[..., Visit], sites: dict[str, str], plain_ledger: Filled
) -> None:
    row = newest(plain_ledger[0], benchmark=GRID, implementation="flat")[0]
    here = visit(sites["plain"]).open("point", id=row.id)
    with plain_ledger[0].session() as session:
        samples = load_samples(session, row.id)
    shown = [float(line["s"]) for line in rows_of(here.saved("samples", "CSV"))]
    assert tuple(shown) == samples
    percentiles = {
        line["percentile"]: line["s"] for line in rows_of(here.saved("percentiles", "CSV"))
    }
    assert float(percentiles["50"]) == pytest.approx(row.median_s, rel=1e-12)
    assert float(percentiles["10"]) == pytest.approx(row.p10_s, rel=1e-12)
    assert here.page.inner_text("#reproduce") == f"k3bench reproduce {row.id}"
    assert here.page.inner_text("#asv-command") == (
        "K3BENCH_PRESET=device asv run --record-samples --bench "
        rf"'^kda_prefill\.FixedGrid\.device_prefill\b' '{row.commit}^!'"
    )
    here.page.click("#reproduce + button")
    here.page.wait_for_selector(".command [role=status]:not(:empty)")
    assert here.page.inner_text(".command [role=status]").strip() in (
        "copied", "selected: copy it with the keyboard",
    )  # fmt: skip


def test_a_manifest_diff_says_what_the_manifests_room_says(
    visit: Callable[..., Visit], sites: dict[str, str], hostile_ledger: Filled
) -> None:
    ledger, _ = hostile_ledger
    row = newest(ledger, benchmark=GRID, implementation="flat")[0]
    here = visit(sites["hostile"]).open("point", id=row.id)
    (_, other) = here.options("other")
    here.choose("other", other)
    with ledger.session() as session:
        comparable, differences = manifests.comparable(
            load_manifest(session, row.manifest_id), load_manifest(session, other)
        )
    assert not comparable
    said = here.page.inner_text("#diff")
    deciding = [difference.path for difference in differences if not difference.comparable]
    assert f"Not comparable: {len(deciding)} of {len(differences)} differences" in said
    assert all(difference.path in said for difference in differences)
    assert here.page.locator("#diff tr.decides th").all_inner_texts() == deciding
    here.must_be_clean()


def test_a_table_links_to_the_point_and_the_search_finds_it(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["plain"]).open("latency")
    here.page.click("#latency-grid summary")
    link = here.page.locator("#latency-grid tbody a").first
    identity = link.get_attribute("href").partition("id=")[2]
    link.click()
    here.drawn()
    assert here.page.input_value("#find") == identity
    here.page.fill("#find", "no such id")
    here.page.keyboard.press("Enter")
    here.page.wait_for_selector("[role=alert]")
    here.page.fill("#find", identity[:12])
    here.page.keyboard.press("Enter")
    here.page.wait_for_selector("#reproduce")
    assert identity in here.page.inner_text("#reproduce")
    here.page.fill("#manifest-filter", "cpu.model")
    assert "environment.cpu.model" in here.page.inner_text("#manifest table")
    here.must_be_clean()


def test_a_formula_in_a_name_is_defused_in_the_csv(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    text = visit(sites["hostile"]).open("latency").saved("latency-grid", "CSV")
    names = {row["implementation"] for row in rows_of(text)}
    assert any(name.startswith("'=HYPERLINK") for name in names)
    assert not any(name.startswith("=") for name in names)
    assert SCRIPT in names


def test_the_roofline_page_sorts_by_distance_and_its_numbers_follow_from_the_ledger(
    visit: Callable[..., Visit], sites: dict[str, str], plain_ledger: Filled
) -> None:
    ledger, _ = plain_ledger
    here = visit(sites["plain"]).open("roofline")
    for option in here.options("view"):
        here.choose("view", option)
        rows = rows_of(here.saved("roofline-distance", "CSV"))
        distances = [float(row["times the bound"]) for row in rows]
        assert distances == sorted(distances, reverse=True) and len(rows) > 5
        stored = {row.id: row for row in newest(ledger, kind="measured")}
        for row in rows[:3] + rows[-3:]:
            record = stored[row["result"]]
            pinned = workloads.get(record.workload_id)
            call = recorded_call(pinned.id, pinned.sha256, record.parameters)
            machine = machine_of(record.device)
            assert call is not None and machine is not None and record.median_s is not None
            found = call.bound(machine)
            assert float(row["bound s (modelled)"]) == pytest.approx(found.bound.seconds)
            expected = record.median_s / found.bound.seconds
            assert float(row["times the bound"]) == pytest.approx(expected)
            assert float(row["GFLOP/s"]) == pytest.approx(found.cost.flops / record.median_s / 1e9)
    # The table is open, and its first row is the farthest point.
    assert here.page.query_selector("#roofline-distance details[open] table")
    here.must_be_clean()


def test_kinds_and_devices_have_rooflines_of_their_own(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["plain"], width=PHONE).open("roofline")
    first, second = here.options("view")[:2]
    here.choose("view", first).choose("beside", second)
    abouts = [here.page.inner_text(f"#roofline-plot{suffix} .about") for suffix in ("", "-beside")]
    assert "tpu-v6e" in abouts[0] and "mi355x" in abouts[1]
    for suffix in ("", "-beside"):
        devices = {row["device"] for row in rows_of(here.saved(f"roofline-plot{suffix}", "CSV"))}
        assert len(devices) == 1
    assert here.overflow() == 0
    here.must_be_clean()


def test_a_device_without_known_peaks_has_rates_and_no_roof(
    visit: Callable[..., Visit], sites: dict[str, str]
) -> None:
    here = visit(sites["real"]).open("roofline")
    labels = here.page.eval_on_selector_all(
        "#choose-view option", "found => found.map((option) => [option.value, option.innerText])"
    )
    [cpu] = [value for value, text in labels if "cpu" in text]
    here.choose("view", cpu)
    assert "peaks of cpu are not known" in here.page.inner_text("#roofline-plot .note")
    assert here.page.query_selector("#roofline-distance") is None
    rows = rows_of(here.saved("roofline-plot", "CSV"))
    assert rows and {row["times the bound"] for row in rows} == {""}
    assert {row["why no bound"] for row in rows} == {
        "the peaks of cpu are not known, so there is no bound"
    }
