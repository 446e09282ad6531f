"""Markdown for a CI summary: hostile names stay words, and the length is bounded."""

import numpy as np
import pytest
from gate.points import lognormal, point, row
from hypothesis import given, settings
from hypothesis import strategies as st

from k3bench.gate import Rules, compare
from k3bench.gate.markdown import MAX_CHARACTERS, escaped, to_markdown

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


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_words_and_never_markup(name):
    text = to_markdown(report_of(name))
    for active in ("<", "](", "![", "@s", " #1 ", "\x1b", "\u202e", "\0", "https:", "www.", "~~"):
        assert active not in text, active
    table_lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table_lines}) == 1, "no cell breaks out of its column"


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_fits_a_cell(text):
    cell = escaped(text)
    assert not set(cell) & set("|<>`[]\n\r\\*$~") and len(cell) < 160 * 14
    assert cell.isprintable()


def test_ordinary_names_read_as_they_are():
    assert escaped("S=64, B=4 (cpu) 1.030x") == "S=64, B=4 (cpu) 1.030x"


def test_the_length_is_bounded_and_says_what_is_missing():
    text = to_markdown(report_of("<" * 150, points=300))
    assert len(text) <= MAX_CHARACTERS
    assert "more are not shown" in text or "does not fit" in text


def test_the_summary_leads_with_the_verdict():
    text = to_markdown(report_of("first"))
    assert text.startswith("## Benchmarks: failed\n")
    assert "### Worse (1)" in text and "time&#95;s slower" in text
