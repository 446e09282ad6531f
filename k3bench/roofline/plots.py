"""Costs and crossovers over the context, as SVG."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from k3bench.report.svg import BLUE, GREEN, GREY, ORANGE, RED, SKY, YELLOW, svg

_COLOURS = (BLUE, ORANGE, GREEN, RED, SKY, YELLOW, GREY)


def draw_lines(
    contexts: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    title: str,
    crossing: int | None = None,
) -> str:
    """Bounds in microseconds over contexts, both axes logarithmic; a mark where two cross."""
    return svg(
        functools.partial(_lines, contexts=contexts, lines=lines, title=title, crossing=crossing)
    )


def _lines(
    axes: Any,
    contexts: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    title: str,
    crossing: int | None,
) -> None:
    for number, (name, values) in enumerate(lines.items()):
        style = "-" if number < len(_COLOURS) else "--"
        axes.plot(contexts, values, style, color=_COLOURS[number % len(_COLOURS)], label=name)
    if crossing is not None:
        axes.axvline(crossing, color=GREY, linestyle=":")
        axes.annotate(f"{crossing:,}", (crossing, 0.02), xycoords=("data", "axes fraction"))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("bound, us (modelled)")
    axes.set_title(title, fontsize=9)
    axes.legend(frameon=False, fontsize=7, ncols=2)
