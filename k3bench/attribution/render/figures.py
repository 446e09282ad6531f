"""The page's two figures as SVG: blocks stacked over context, and one layer of each kind.

Drawn for a width of 400 units and 12-unit text, which stays legible on a phone; no scripts, no
links, no fonts to fetch. Names are escaped here and nowhere later.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from k3bench.attribution.composition import Composition
from k3bench.attribution.render.names import escaped
from k3bench.attribution.render.palette import colours_of, text_on

_WIDTH = 400
_BAR_HEIGHT, _ROW_HEIGHT = 24, 50
_SMALLEST_LABELLED = 30  # units: room for "12%"
_LINEAR_BLOCKS = ("kda", "full_attn")


@dataclass(frozen=True)
class LayerPoint:
    """One layer of each kind at one context: input tokens, and microseconds a layer."""

    label: str
    tokens: int
    kda_us: float
    full_attn_us: float


def block_names(compositions: Sequence[Composition]) -> list[str]:
    """Every block of the compositions, in the order of first appearance."""
    return list(dict.fromkeys(b.name for c in compositions for b in c.blocks))


def stacked_bars(compositions: Sequence[Composition], *, shares: bool) -> str:
    """One horizontal bar a composition, its blocks side by side.

    ``shares``: every bar as wide as the figure, parts in per cent; else bars in proportion to the
    time of a step, so that growth shows.
    """
    colours = colours_of(block_names(compositions))
    longest = max((c.total_us for c in compositions), default=0.0)
    rows = []
    for n, composition in enumerate(compositions):
        top = n * _ROW_HEIGHT
        title = f"{escaped(composition.label, 24)} · {milliseconds(composition.total_us)}"
        rows.append(f'<text x="0" y="{top + 14}">{title}</text>')
        full = composition.total_us if shares else longest
        left = 0.0
        for block in composition.blocks:
            width = _WIDTH * block.us / full if full else 0.0
            rows.append(_segment(block.name, block.us, block.share, left, top, width, colours))
            left += width
    height = len(compositions) * _ROW_HEIGHT
    what = "Share of each block" if shares else "Milliseconds of each block"
    return _svg(height, f"{what}, one bar for each context; the table holds the numbers", rows)


def _segment(
    name: str,
    us: float,
    share: float,
    left: float,
    top: float,
    width: float,
    colours: dict[str, str],
) -> str:
    colour = colours[name]
    y = top + 20
    parts = [
        f'<rect x="{left:.2f}" y="{y}" width="{max(0.0, width - 0.75):.2f}" '
        f'height="{_BAR_HEIGHT}" fill="{colour}">'
        f"<title>{escaped(name)}: {milliseconds(us)}, {share:.1%}</title></rect>"
    ]
    if width >= _SMALLEST_LABELLED:
        parts.append(
            f'<text class="in {text_on(colour)}" x="{left + width / 2:.2f}" y="{y + 16}">'
            f"{share:.0%}</text>"
        )
    return "".join(parts)


def layer_points(compositions: Sequence[Composition]) -> list[LayerPoint]:
    """One layer of each kind at every context that says how many tokens and layers it has."""
    points = []
    for composition in compositions:
        kda, full = (composition.block(name) for name in _LINEAR_BLOCKS)
        if kda is None or full is None or not composition.input_tokens:
            continue
        if kda.us_per_layer and full.us_per_layer:
            points.append(
                LayerPoint(
                    composition.label,
                    composition.input_tokens,
                    kda.us_per_layer,
                    full.us_per_layer,
                )
            )
    return sorted(points, key=lambda point: point.tokens)


def crossing(points: Sequence[LayerPoint]) -> float | None:
    """Input tokens at which the dearer kind of layer changes for the first time.

    Between two measured contexts both costs are taken as straight in log-log; None where one kind
    costs more at every measured context.
    """
    for a, b in itertools.pairwise(points):
        before = math.log(a.full_attn_us / a.kda_us)
        after = math.log(b.full_attn_us / b.kda_us)
        if (before <= 0) != (after <= 0):
            fraction = before / (before - after)
            return float(a.tokens * (b.tokens / a.tokens) ** fraction)
    return None


def crossing_sentence(points: Sequence[LayerPoint]) -> str:
    """The figure's message in words (plain text)."""
    first, last = points[0], points[-1]
    at = crossing(points)
    ratios = (
        f"full attention over KDA goes from {first.full_attn_us / first.kda_us:.2f} at "
        f"{first.tokens:,} tokens to {last.full_attn_us / last.kda_us:.2f} at {last.tokens:,}"
    )
    if at is not None:
        cheaper = "KDA" if first.kda_us < first.full_attn_us else "full-attention"
        return (
            f"A {cheaper} layer is cheaper up to about {at:,.0f} tokens (interpolated); {ratios}."
        )
    dearer = "full-attention" if first.full_attn_us > first.kda_us else "KDA"
    return f"A {dearer} layer costs more at every context: {ratios}."


def crossing_figure(points: Sequence[LayerPoint]) -> str:
    """Microseconds of one layer over input tokens, both axes logarithmic, at least two points."""
    colours = colours_of(_LINEAR_BLOCKS)
    left, right, top, bottom = 52, _WIDTH - 12, 14, 226
    xs = _LogAxis(points[0].tokens, points[-1].tokens, left, right)
    values = [us for point in points for us in (point.kda_us, point.full_attn_us)]
    ys = _LogAxis(min(values), max(values), bottom, top, padded=True)
    parts = [
        f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" class="plot"/>'
    ]
    for value in ys.ticks():
        y = ys.at(value)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{left - 6}" y="{y + 4:.1f}">{_tick(value)}</text>')
    shown_until = -math.inf
    for point in points:
        x = xs.at(point.tokens)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        if x - shown_until >= 34:
            parts.append(
                f'<text class="in" x="{x:.1f}" y="{bottom + 16}">{_short(point.tokens)}</text>'
            )
            shown_until = x
    at = crossing(points)
    if at is not None:
        x = xs.at(at)
        parts.append(f'<line class="cross" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
    series = (
        ("kda", "one KDA layer", [p.kda_us for p in points]),
        ("full_attn", "one full-attention layer", [p.full_attn_us for p in points]),
    )
    for name, title, data in series:
        spots = [(xs.at(p.tokens), ys.at(us)) for p, us in zip(points, data, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{line}" stroke="{colours[name]}"/>')
        for (x, y), point, us in zip(spots, points, data, strict=True):
            hint = f"<title>{title}, {escaped(point.label, 24)}: {us:,.1f} us</title>"
            parts.append(_marker(name, x, y, colours[name], hint))
    parts.append(f'<text class="in" x="{(left + right) / 2}" y="{bottom + 34}">input tokens</text>')
    for n, (name, title, _) in enumerate(series):
        x, y = left + n * 140, bottom + 54
        parts.append(_marker(name, x + 5, y - 4, colours[name], ""))
        parts.append(f'<text x="{x + 16}" y="{y}">{title}</text>')
    parts.append('<text x="0" y="10">us</text>')
    return _svg(bottom + 62, crossing_sentence(points), parts)


def _marker(name: str, x: float, y: float, colour: str, inside: str) -> str:
    """A disc for KDA, a square for full attention: shape tells them apart without colour."""
    if name == "kda":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}">{inside}</circle>'
    return (
        f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{colour}">'
        f"{inside}</rect>"
    )


class _LogAxis:
    """Maps values to positions, logarithmically."""

    def __init__(
        self, low: float, high: float, start: float, end: float, *, padded: bool = False
    ) -> None:
        self._low, self._high = math.log10(low), math.log10(high)
        if padded or self._high - self._low < 1e-9:
            margin = 0.08 * max(self._high - self._low, 1.0)
            self._low, self._high = self._low - margin, self._high + margin
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        fraction = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + fraction * (self._end - self._start)

    def ticks(self) -> list[float]:
        """1, 2 and 5 times powers of ten within the axis, thinned to the powers over 2 decades."""
        wide = self._high - self._low > 2
        decades = range(math.floor(self._low), math.ceil(self._high) + 1)
        every = [digit * 10.0**d for d in decades for digit in ((1,) if wide else (1, 2, 5))]
        return [value for value in every if self._low <= math.log10(value) <= self._high]


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    # crossing_sentence and the fixed labels hold no name from outside, but cost nothing to escape.
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escaped(label, 400)}">'
        + "".join(parts)
        + "</svg>"
    )


def milliseconds(us: float) -> str:
    """Four significant digits, 20.77 ms, and never an exponent."""
    ms = us / 1e3
    decimals = 3 if ms <= 0 else min(6, max(0, 3 - math.floor(math.log10(ms))))
    return f"{ms:,.{decimals}f} ms"


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _short(tokens: int) -> str:
    if tokens >= 1 << 20 or tokens > 1_000_000:
        return f"{tokens / (1 << 20):.0f}M"
    return f"{tokens / 1024:.0f}K" if tokens >= 1024 else str(tokens)
