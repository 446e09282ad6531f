"""Markdown for a CI summary: hostile names stay words, the length is bounded, the verdict leads."""

import json

import numpy as np
import pytest
from gate.points import lognormal, point, row
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from k3bench.gate import Rules, compare
from k3bench.gate.markdown import MAX_BYTES, escaped, to_markdown

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a | b | c\n| new | row |",
    "[click](https://evil.example)",
    "![x](https://evil.example/x.png)",
    "`code` ``` fence",
    "@someone and #1",
    "www.evil.example",
    "\x1b[31mred\x1b[0m \u202egnp.exe \0",
    "<!-- hide",
    "&lt;b&gt; $x$ ~~gone~~ :boom:",
]


def report_of(name, slow=2.0, points=1):
    random = np.random.default_rng(0)
    base, head = {}, {}
    for index in range(points):
        key = point({"S": index, name: name}, name, benchmark=name)
        base[key] = [row(lognormal(random))]
        head[key] = [row(lognormal(random) * slow)]
    return compare((name, "b" * 40), base, head, {}, lambda _: {}, Rules())


def compiled_sides(base, head, name="first", points=1):
    """Both sides with the same compiled figures at every point."""
    place = {"kind": "compiled", "device": "tpu-v6e", "preset": None}
    return tuple(
        {point(index, name, **place): [row(figures=json.dumps(figures))] for index in range(points)}
        for figures in (base, head)
    )


def judged(base, head, **rules):
    return compare(("a" * 40, "b" * 40), base, head, {}, lambda _: {}, Rules(**rules))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_words_and_never_markup(name):
    text = to_markdown(report_of(name))
    check_no_markup(text)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_of_explanatory_figures_are_words_too(name):
    sides = compiled_sides({name: "a", f"{name} 2": 1}, {name: name, f"{name} 2": 2}, name)
    text = to_markdown(judged(*sides))
    assert "Explanatory figures that changed: 2 of 1 points" in text
    check_no_markup(text)


def check_no_markup(text):
    for ours in ("<details>", "</details>", "<summary>", "</summary>"):
        assert text.count(ours) <= 1
        text = text.replace(ours, "")
    for active in ("<", "](", "![", "@s", " #1 ", "\x1b", "\u202e", "\0", "https:", "www.", "~~"):
        assert active not in text, active
    table_lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table_lines}) <= 1, "no cell breaks out of its column"


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_fits_a_cell(text):
    cell = escaped(text)
    assert not set(cell) & set("|<>`[]\n\r\\*$~") and len(cell) < 160 * 14
    assert cell.isprintable()


@given(st.text(alphabet="a_ .é1", max_size=12))
def test_underscores_never_emphasise(text):
    rendered = MarkdownIt("commonmark").renderInline(escaped(text))
    assert "<em>" not in rendered and "<strong>" not in rendered
    assert rendered == " ".join(text.split())


def test_ordinary_names_read_as_they_are():
    assert escaped("S=64, B=4 (cpu) 1.030x") == "S=64, B=4 (cpu) 1.030x"
    assert escaped("kda_prefill.kernel_cycles") == "kda_prefill.kernel_cycles"


@pytest.mark.parametrize("name", ["<" * 150, "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 150, "@" * 150])
@pytest.mark.parametrize("points", [1, 300])
def test_the_length_is_bounded_and_says_what_is_missing(name, points):
    text = to_markdown(report_of(name, points=points))
    assert len(text.encode()) <= MAX_BYTES
    if points == 300:
        shown = sum("slower" in line for line in text.splitlines() if line.startswith("|"))
        assert f"{300 - shown:,} more are not shown; `--json` has all." in text


def test_every_section_at_its_worst_stays_in_bounds_and_closes_its_tags():
    random = np.random.default_rng(0)
    name = "&" * 150
    base, head = compiled_sides({"hbm_bytes": 1, name: 1}, {"hbm_bytes": 2, name: 2}, name, 500)
    for index in range(300):
        place = {"parameters": {name: index}, "benchmark": name}
        base[point(**place, implementation="slower")] = [row(lognormal(random))]
        head[point(**place, implementation="slower")] = [row(lognormal(random) * 2)]
        base[point(**place, implementation="faster")] = [row(lognormal(random) * 2)]
        head[point(**place, implementation="faster")] = [row(lognormal(random))]
        base[point(**place, implementation=f"{name} gone")] = [row(lognormal(random))]
        head[point(**place, implementation=f"{name} new")] = [row(lognormal(random))]
        base[point(**place, device=f"{name} {index}")] = [row(lognormal(random))]
    text = to_markdown(judged(base, head))
    assert 30_000 < len(text.encode()) <= MAX_BYTES
    assert text.count("<details>") == text.count("</details>") == 1
    assert "more are not shown; `--json` has all." in text


def test_the_summary_leads_with_the_verdict():
    text = to_markdown(report_of("first"))
    assert text.startswith("## Benchmarks: failed\n")
    assert "### What decides\n\n1 fail, 0 could not be judged; the worst first.\n" in text
    assert "| time_s slower |" in text


def test_many_explanatory_figures_are_one_line_a_point_behind_the_verdict():
    names = [f"slot.S{number}" for number in range(40)]
    before = {"kernel_cycles": 12_345_678, "code_sha256": "a", **dict.fromkeys(names, 0.5)}
    after = {**before, "kernel_cycles": 12_345_679, "code_sha256": "b"}
    after |= {name: 0.5 + 0.001 * number for number, name in enumerate(names)}
    text = to_markdown(judged(*compiled_sides(before, after, points=3)))
    assert "3 points compared: 3 worse, 120 explanatory figures of 3 points" in text
    lines = text.splitlines()
    assert len(lines) < 30
    decides = lines.index("### What decides")
    assert sum("kernel_cycles worse" in line for line in lines[decides:]) == 3
    assert (
        "| kernel_cycles worse | 1.000x (+1) | kda.Grid.time(S=0) first | 12,345,678 | 12,345,679 "
        "| compiled, tpu-v6e |" in lines
    )
    folded = [line for line in lines[lines.index("<details>") :] if line.startswith("- ")]
    assert len(folded) == 3
    assert folded[0] == (
        "- kda.Grid.time(S=0) first (compiled, tpu-v6e): slot.S39 0.5 to 0.539, "
        "slot.S38 0.5 to 0.538, slot.S37 0.5 to 0.537, 37 more"
    )


def test_the_worst_comes_first_whatever_its_kind():
    place = {"kind": "compiled", "device": "tpu-v6e", "preset": None}
    random = np.random.default_rng(0)
    base = {
        point(1): [row(lognormal(random))],
        point(2): [row(lognormal(random))],
        point(3, **place): [row(figures='{"hbm_bytes":100,"occupancy":8}')],
    }
    head = {
        point(1): [row(lognormal(random) * 1.5)],
        point(2): [row((), status="wrong")],
        point(3, **place): [row(figures='{"hbm_bytes":120,"occupancy":1}')],
    }
    text = to_markdown(judged(base, head))
    found = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    assert found[1:] == [
        "| correctness wrong", "| occupancy worse", "| time_s slower", "| hbm_bytes worse",
    ]  # fmt: skip


def test_points_refused_for_one_reason_fold_into_one_line():
    random = np.random.default_rng(0)
    base = {point(index): [row(lognormal(random))] for index in range(100)}
    head = {key: [row(lognormal(random), clock="device")] for key in base}
    text = to_markdown(judged(base, head))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert sum(line.startswith("| all incomparable |") for line in rows) == 5
    assert any(line.startswith("| 95 more incomparable |") for line in rows)
    assert "not shown" not in text
