"""The figures that stand for a list of samples, recomputed here so that no record can lie."""

import math
from collections.abc import Sequence
from typing import NamedTuple

RELATIVE_TOLERANCE = 1e-12


class Summary(NamedTuple):
    """Linearly interpolated 10th, 50th and 90th percentile, in the unit of the samples.

    A tuple, because one is made and compared for every point that comes in.
    """

    p10: float
    median: float
    p90: float


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The ``fraction`` quantile of an ascending, non-empty sequence, linearly interpolated.

    The same definition as numpy's default; plain Python, because for the 20 to 100 samples of a
    point numpy's call overhead is ten times the work.
    """
    position = (len(ordered) - 1) * fraction
    below = int(position)
    weight = position - below
    if weight == 0.0:
        return ordered[below]
    low = ordered[below]
    return low + (ordered[below + 1] - low) * weight


def summarise(samples_s: Sequence[float]) -> Summary:
    """The summary of a non-empty sequence of seconds, in any order."""
    ordered = sorted(samples_s)
    return Summary(percentile(ordered, 0.1), percentile(ordered, 0.5), percentile(ordered, 0.9))


def agrees(given: float, computed: float) -> bool:
    """Equal but for the rounding of the last few bits."""
    return given == computed or math.isclose(
        given, computed, rel_tol=RELATIVE_TOLERANCE, abs_tol=0.0
    )
