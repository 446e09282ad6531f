"""The page: its numbers, its safety against hostile names, its being self-contained."""

import base64
import hashlib
import math
import re
import unicodedata
from html.parser import HTMLParser

import pytest
from attribution.compositions import (
    HOSTILE,
    composition,
    hostile,
    published_decode,
    published_prefill,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import shared_file

from k3bench.attribution.composition import CheckOutcome
from k3bench.attribution.render.figures import (
    LayerPoint,
    crossing,
    crossing_sentence,
    layer_points,
)
from k3bench.attribution.render.names import RenderError, escaped, visible
from k3bench.attribution.render.page import page
from k3bench.attribution.render.palette import colours_of, text_on

_VOID = {"meta"}


class Reader(HTMLParser):
    """Collects tags, attributes and texts, and insists that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


ALLOWED_ATTRIBUTES = frozenset(
    {"lang", "charset", "http-equiv", "content", "name", "class", "scope", "tabindex"}
    | {"viewbox", "role", "aria-label", "aria-hidden", "width", "height", "fill", "stroke"}
    | {"x", "y", "x1", "x2", "y1", "y2", "points", "cx", "cy", "r"}
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)


def assert_inert(text: str) -> Reader:
    """No script, handler, address or hidden character; one stylesheet, allowed by its hash."""
    read = Reader(text)
    assert not {"script", "iframe", "object", "embed", "link", "img", "a", "base", "form"} & set(
        read.tags
    )
    assert {name for name, _ in read.attributes} <= ALLOWED_ATTRIBUTES
    assert not re.search(r"https?:|url\(|@import|javascript:", text)
    hidden = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert hidden <= {"\n"}
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(value for name, value in read.attributes if name == "content")
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in str(policy)
    return read


def test_the_page_holds_the_numbers_of_every_context() -> None:
    compositions = published_decode(shared_file) + published_prefill(shared_file)
    read = assert_inert(page(compositions))
    text = " ".join(read.texts)
    for expected in ("21.23 (52.93%)", "3.542 (17.06%)", "884.39", "0.966", "1,047,552 tokens"):
        assert expected in text
    assert "A full-attention layer costs more at every context" in text
    assert "A full-attention layer is cheaper up to about 8,5" in text
    assert read.tags.count("figure") == 6
    assert read.tags.count("table") >= 4


@pytest.mark.parametrize("position", range(3))
def test_no_hostile_name_gets_out_of_its_place(position: int) -> None:
    compositions = [composition("a"), composition("b")]
    compositions.insert(position, hostile())
    read = assert_inert(page(compositions, HOSTILE))
    assert "alert(1)" in " ".join(read.texts), "the name is shown, as text"


@given(ANY_TEXT)
@settings(max_examples=60, deadline=None)
def test_any_name_is_shown_on_one_line_without_hidden_characters(name: str) -> None:
    shown = visible(name)
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    assert len(shown) <= 200 * 10
    assert not set(escaped(name)) & set("<>\"'")
    shown.encode()


@given(ANY_TEXT)
@settings(max_examples=25, deadline=None)
def test_any_name_makes_an_inert_page(name: str) -> None:
    assert_inert(page([composition(name, us={name: 1.0, "moe": 2.0}, device=name)], name))


def test_long_names_keep_both_ends() -> None:
    name = "Cijk_Ailk_Bljk" + "x" * 500 + "_MT256x16x64"
    shown = visible(name)
    assert len(shown) == 200
    assert shown.startswith("Cijk_Ailk_Bljk")
    assert shown.endswith("_MT256x16x64")


def test_a_failed_check_stands_at_the_top() -> None:
    bad = composition(checks=(CheckOutcome("total", "failed", "20.8 ms of 10.0 ms"),))
    text = " ".join(Reader(page([composition(), bad])).texts)
    assert "1 of 2 compositions failed a check" in text
    assert "20.8 ms of 10.0 ms" in text


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(RenderError, match="no composition"):
        page([])


@pytest.mark.parametrize("us", [{"moe": 0.0}, {}, {"a": 1e-3}, {"a": 1e12, "b": 1e-9}])
def test_degenerate_times_make_a_page(us: dict[str, float]) -> None:
    assert_inert(page([composition(us=us or {"x": 0.0})]))


def points(*rows: tuple[int, float, float]) -> list[LayerPoint]:
    return [LayerPoint(str(tokens), tokens, kda, full) for tokens, kda, full in rows]


def test_the_crossing_is_where_two_power_laws_meet() -> None:
    # KDA grows as n, full attention as n^2 / 4096: equal at 4096.
    rows = points(*((n, float(n), n * n / 4096) for n in (1024, 2048, 16384, 65536)))
    assert crossing(rows) == pytest.approx(4096)
    assert crossing_sentence(rows).startswith("A full-attention layer is cheaper up to about 4,096")


def test_a_crossing_the_other_way_is_found_too() -> None:
    rows = points((1000, 1.0, 2.0), (4000, 4.0, 2.0))
    assert crossing(rows) == pytest.approx(2000)
    assert crossing_sentence(rows).startswith("A KDA layer is cheaper up to about 2,000")


def test_without_a_crossing_none_is_claimed() -> None:
    rows = points((1000, 2.0, 1.0), (4000, 4.0, 2.0))
    assert crossing(rows) is None
    assert crossing_sentence(rows).startswith("A KDA layer costs more at every context")


def test_only_contexts_with_both_layers_and_a_length_make_points() -> None:
    assert layer_points([composition(input_tokens=None), composition(us={"moe": 1.0})]) == []
    assert len(layer_points([composition()])) == 1


def test_bars_fill_the_figure_and_grow_with_the_time() -> None:
    short = composition("s", us={"kda": 10.0, "moe": 30.0})
    long = composition("l", us={"kda": 20.0, "moe": 140.0}, input_tokens=8192)
    text = page([short, long])
    shares, times = re.findall(r'<svg viewBox="0 0 400 100".*?</svg>', text, re.DOTALL)
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"', shares)]
    assert [round(w + 0.75) for w in widths] == [100, 300, 50, 350]
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"', times)]
    assert [round(w + 0.75) for w in widths] == [25, 75, 50, 350]


def test_the_published_blocks_have_different_colours_with_legible_text() -> None:
    names = ["kda", "full_attn", "moe", "attn_residual", "other", "collective"]
    colours = colours_of(names)
    assert len(set(colours.values())) == len(names)
    for colour in colours.values():
        assert contrast(colour, {"black": 0.0, "white": 1.0}[text_on(colour)]) >= 4.5


def contrast(colour: str, other_luminance: float) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else math.pow((c + 0.055) / 1.055, 2.4) for c in channels]
    own = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    high, low = max(own, other_luminance), min(own, other_luminance)
    return (high + 0.05) / (low + 0.05)
