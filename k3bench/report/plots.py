"""The report's plots, as SVG that is the same for the same figures."""

import io
from collections.abc import Callable
from typing import Any

from k3bench.report.ladder import HEADLINE, LadderReport

# Okabe and Ito's colours: told apart by readers with any colour vision.
BLUE, ORANGE, GREEN, YELLOW, SKY, RED, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#F0E442", "#56B4E9", "#D55E00", "#BBBBBB",
)  # fmt: skip
_SHARES = {
    "mxu": BLUE, "vector": ORANGE, "layout": GREEN, "memory": SKY, "other": YELLOW, "stall": GREY,
}  # fmt: skip


def draw_plots(report: LadderReport) -> dict[str, str]:
    """File name to SVG text."""
    return {
        "ladder.svg": _svg(_ladder, report),
        "breakdown.svg": _svg(_breakdown, report),
        "model_error.svg": _svg(_model_error, report),
    }


def _svg(draw: Callable[[Any, LadderReport], None], report: LadderReport) -> str:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    # A fixed salt and no date: equal figures give equal bytes. Text stays text.
    with plt.rc_context({"svg.hashsalt": "k3bench", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
        draw(axes, report)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
    # Trailing blanks would be dirt in every commit.
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


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
