"""Whether an implementation moved as a whole, against those that took turns with it.

Implementations of a point take turns in one process, so what the machine does to one it does to
the others; and every point is a process of its own. The difference between an implementation's
shift and its neighbours' is therefore free of most of what both suffered, and independent from
point to point: a signed-rank test over points needs no model of the noise and no second run.

What it cannot know is that a busier machine slows one implementation more than another. So a
significant difference counts only under like conditions: it is no smaller than what the neighbours
moved, and the runs agree about it or, where a side has one run, its samples spread as they did.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from k3bench.gate.distributions import signed_rank, two_means
from k3bench.gate.noise import Integers, Layout
from k3bench.gate.select import Array

# With fewer points the smallest one-sided p (0.5^points) is above half the usual budget.
POINTS_NEEDED = 9
# A move of everything is worth a word from here on.
_TOGETHER_P = 0.001
# One-sided, over runs: not a test of its own but a check that no single run decides.
_RUNS_AGREE = 0.01
# Samples that spread this much wider come from a machine in another state.
_LIKE_SPREAD = 1.25


@dataclass(frozen=True)
class FamilyTest:
    """One implementation of one benchmark module on one device, over all its points.

    Shifts are logarithms, positive where head is slower: ``against`` the neighbours (with its 95%
    interval), its ``own`` and its neighbours' medians. ``unlike`` says what was not the same for
    both sides; None under like conditions.
    """

    family: int
    points: int
    p_slower: float
    p_faster: float
    against: float
    low: float
    high: float
    own: float
    neighbours: float
    unlike: str | None


@dataclass(frozen=True)
class Together:
    """A move of everything: median shift over all points, p, and runs a side behind the p.

    ``p`` is two-sided: over runs where there are several, over points where there is one a side,
    which says that the two runs differ but not whether code or machine did it.
    """

    shift: float
    p: float
    over_runs: bool


def family_tests(
    shift: Array,
    layout: Layout,
    spread: Array,
    runs: tuple[Sequence[Array], Sequence[Array]] | None,
    in_turns: bool = False,
) -> list[FamilyTest]:
    """A test for every family that took turns with others at nine or more points.

    ``spread``: per point, the logarithm of head's spread within runs over base's. ``runs``: per
    side, one array of log medians a run; None where a side has one run or points lack some.
    ``in_turns``: base and head took turns themselves, so the shift needs no neighbours beside it.
    """
    others = np.zeros(len(shift)) if in_turns else _median_of_others(shift, layout.group)
    beside = None if runs is None else _beside_neighbours(runs, layout)
    tests = []
    for family in range(int(layout.family.max()) + 1):
        rows = np.flatnonzero((layout.family == family) & np.isfinite(others))
        if len(rows) < POINTS_NEEDED:
            continue
        contrast = shift[rows] - others[rows]
        low, middle, high = _walsh_interval(contrast)
        neighbours = float(np.median(others[rows]))
        tests.append(
            FamilyTest(
                family=family,
                points=len(rows),
                p_slower=signed_rank(contrast, "greater"),
                p_faster=signed_rank(contrast, "less"),
                against=middle,
                low=low,
                high=high,
                own=float(np.median(shift[rows])),
                neighbours=neighbours,
                unlike=None
                if in_turns
                else _unlike(middle, neighbours, spread[rows], beside, rows),
            )
        )
    return tests


def _beside_neighbours(
    runs: tuple[Sequence[Array], Sequence[Array]], layout: Layout
) -> tuple[Array, Array]:
    """Per side, runs x points: the log median beside that of what took turns, in the same run."""
    base, head = (
        np.array([run - _median_of_others(run, layout.group) for run in side]) for side in runs
    )
    return base, head


def _unlike(
    against: float,
    neighbours: float,
    spread: Array,
    beside: tuple[Array, Array] | None,
    rows: Integers,
) -> str | None:
    if abs(against) < abs(neighbours):
        return f"its neighbours moved, too: {np.expm1(neighbours):+.1%}"
    if beside is not None:
        base, head = (side[:, rows].mean(axis=1).tolist() for side in beside)
        agreed = np.ptp([*base, *head]) == 0 or two_means(base, head) <= 2 * _RUNS_AGREE
        return None if agreed else "its runs do not agree"
    wider = float(np.median(spread))
    if abs(wider) > np.log(_LIKE_SPREAD):
        return f"one run was busier: its samples spread {np.exp(abs(wider)):.1f} times as wide"
    return None


def moved_together(
    shift: Array, layout: Layout, runs: tuple[Sequence[Array], Sequence[Array]] | None
) -> Together | None:
    """Whether all points moved one way; None where there are too few to say.

    ``runs``: per side, one array of log medians a run, over the same points; None where a side has
    a single run.
    """
    per_group = np.bincount(layout.group, shift) / np.bincount(layout.group)
    if runs is not None:
        centre = np.mean([*runs[0], *runs[1]], axis=0)
        base, head = ([float(np.mean(run - centre)) for run in side] for side in runs)
        if len(base) + len(head) < 4 or np.ptp([*base, *head]) == 0:
            return None
        p = two_means(base, head)
        return Together(float(np.median(shift)), p, over_runs=True)
    if len(per_group) < POINTS_NEEDED:
        return None
    return Together(float(np.median(per_group)), signed_rank(per_group, "two-sided"), False)


def is_together(together: Together | None, threshold: float) -> bool:
    """Whether two single runs differ as a whole, so that code and machine cannot be told apart."""
    return (
        together is not None
        and not together.over_runs
        and together.p < _TOGETHER_P
        and together.shift >= threshold
    )


def _walsh_interval(values: Array) -> tuple[float, float, float]:
    """Hodges-Lehmann's centre and its 95% interval: order statistics of the pairwise means."""
    if len(values) > 400:
        at = (np.arange(400) + 0.5) / 400
        used = np.quantile(values, at)
    else:
        used = values
    first, second = np.triu_indices(len(used))
    means = np.sort((used[first] + used[second]) / 2)
    n = len(values)
    width = 1.96 * np.sqrt((2 * n + 1) / (6 * n * (n + 1)))
    low, high = np.quantile(means, [max(0.0, 0.5 - width), min(1.0, 0.5 + width)])
    return float(low), float(np.median(means)), float(high)


def _median_of_others(shift: Array, group: Integers) -> Array:
    """Per point, the median shift of the other points of its group; NaN where it is alone."""
    result = np.full(len(shift), np.nan)
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    for size in np.unique(sizes[sizes > 1]).tolist():
        # Points of all groups of one size at once: a row a group, and each column left out in turn.
        members = order[sizes[group[order]] == size].reshape(-1, size)
        for column in range(size):
            others = np.delete(members, column, axis=1)
            result[members[:, column]] = np.median(shift[others], axis=1)
    return result
