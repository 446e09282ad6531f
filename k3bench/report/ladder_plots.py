"""The ladder report's plots."""

import functools
from typing import Any

from k3bench.report.ladder import HEADLINE, LadderReport
from k3bench.report.svg import BLUE, GREEN, GREY, ORANGE, SKY, YELLOW, svg

_SHARES = {
    "mxu": BLUE, "vector": ORANGE, "layout": GREEN, "memory": SKY, "other": YELLOW, "stall": GREY,
}  # fmt: skip


def draw_plots(report: LadderReport) -> dict[str, str]:
    """File name to SVG text."""
    return {
        "ladder.svg": svg(functools.partial(_ladder, report=report)),
        "breakdown.svg": svg(functools.partial(_breakdown, report=report)),
        "model_error.svg": svg(functools.partial(_model_error, report=report)),
    }


def _ladder(axes: Any, report: LadderReport) -> None:
    rungs = report.workloads[HEADLINE]
    places = range(len(rungs))
    width = 0.38
    modelled = [rung.modelled_ms for rung in rungs]
    published = [rung.published_ms or float("nan") for rung in rungs]
    for offset, values, colour, label in (
        (-width / 2, modelled, BLUE, "ours, modelled from the v6e schedule"),
        (width / 2, published, ORANGE, "published v6e median"),
    ):
        bars = axes.bar(
            [place + offset for place in places], values, width, color=colour, label=label
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set_yscale("log")
    axes.set_ylabel("ms a call (log)")
    axes.set_xticks(list(places), [rung.implementation for rung in rungs])
    axes.legend(frameon=False)


def _breakdown(axes: Any, report: LadderReport) -> None:
    rungs = report.workloads[HEADLINE]
    names = [rung.implementation for rung in rungs]
    left = [0.0] * len(rungs)
    for share, colour in _SHARES.items():
        values = [100 * float(rung.compiled[f"share.{share}"]) for rung in rungs]
        axes.barh(names, values, left=left, color=colour, label=share, edgecolor="white")
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("% of scheduled cycles (compiled)")
    axes.legend(frameon=False, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _model_error(axes: Any, report: LadderReport) -> None:
    names = sorted({point.partition("/")[0] for point in report.errors})
    for place, name in enumerate(names):
        errors = [100 * e for p, e in report.errors.items() if p.partition("/")[0] == name]
        axes.plot(errors, [place] * len(errors), "o", color=BLUE, alpha=0.6)
    axes.axvline(0, color=GREY)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("modelled / published - 1, %")
