"""A figure as SVG that is the same, byte for byte, for the same numbers."""

import io
from collections.abc import Callable
from typing import Any

# Okabe and Ito's colours: told apart by readers with any colour vision.
BLUE, ORANGE, GREEN, YELLOW, SKY, RED, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#F0E442", "#56B4E9", "#D55E00", "#BBBBBB",
)  # fmt: skip


def svg(draw: Callable[[Any], None]) -> str:
    """``draw`` fills one pair of matplotlib axes; returns the SVG's text."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    # A fixed salt and no date: equal figures give equal bytes. Text stays text.
    with plt.rc_context({"svg.hashsalt": "k3bench", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
        draw(axes)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
    # Trailing blanks would be dirt in every commit.
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
