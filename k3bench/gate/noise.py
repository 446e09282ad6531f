"""How far a point moves between two runs of the same code, and how well that is known.

Samples of one process share its memory layout, its neighbours and the minute they were taken in;
tests within a run do not see that. In this order:

repeats  runs of the same commit in the same environment, either side's own or recorded earlier:
         their variance, moderated towards the mean over all points;
control  one run a side, but at least 20 other points and 11 processes: what those moved between
         the very same two runs, and, at least, what the implementations moved that took turns with
         the point;
assumed  neither: Settings.assumed_run_noise, and what took turns with the point.

Where base and head took turns in one process (`k3bench ab`), that is so for their ratio: what a run
does to both is gone from it. What is left is where each side's code and buffers happen to lie.
Then repeats are further such runs, and what else moved in the process is no bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from k3bench.gate.ranks import RankTest
from k3bench.gate.select import Array
from k3bench.gate.settings import Settings

Basis = Literal["repeats", "control", "assumed"]
Integers = NDArray[np.intp]

CONTROLS_NEEDED = 20
# With fewer the test over everything cannot reach its level (2 / 2^groups < 0.001): a common move
# would be taken for noise, and nobody would say so.
_GROUPS_NEEDED = 11
# Degrees of freedom that the mean variance over all points lends to each (as in limma).
_LENT = 4.0
# Of the repeats, in the middle: below it a variance says next to nothing.
_REPEATS_NEEDED = 2.0
# Points of one run are not independent: more of them do not make their spread better known.
_CONTROL_DEGREES = 30.0


@dataclass(frozen=True)
class Scale:
    """Per point: standard error of the shift, its degrees of freedom, and where it comes from."""

    standard_error: Array
    degrees: Array
    basis: Basis


@dataclass(frozen=True)
class Layout:
    """Who belongs together, as indices: point -> group (taken in turns) and -> family."""

    group: Integers
    family: Integers


def scale_of(
    test: RankTest,
    layout: Layout,
    repeats: Sequence[Sequence[Sequence[float]]],
    runs: tuple[Array, Array],
    settings: Settings,
    in_turns: bool = False,
) -> Scale:
    """The standard error of every shift between the two sides of one device and preset.

    ``repeats``: per point, the log medians of repeated runs, one list a commit; in turns, one list
    of the shifts that the runs found. ``runs``: per point, the number of runs of base and of head.
    """
    squares, degrees = _within_commits(repeats)
    if np.median(degrees) >= _REPEATS_NEEDED:
        variance, known = _moderated(squares, degrees)
        between = np.sqrt(variance * (1 / runs[0] + (0 if in_turns else 1 / runs[1])))
        return Scale(np.maximum(test.standard_error, between), known, "repeats")
    if in_turns:
        # No control: what moves other points, too, is the code, for the machine is gone from it.
        error = np.hypot(test.standard_error, settings.assumed_turn_noise)
        return Scale(error, np.full(len(error), np.inf), "assumed")
    neighbours = _largest_of_others(np.abs(test.shift), layout.group)
    spread, controls = _spread_of_others(test.shift, layout)
    basis: Basis = "control"
    if controls.min() < CONTROLS_NEEDED or layout.group.max() + 1 < _GROUPS_NEEDED:
        spread = np.full(len(spread), settings.assumed_run_noise * np.sqrt(2.0))
        known, basis = np.full(len(spread), np.inf), "assumed"
    else:
        known = np.minimum(controls, _CONTROL_DEGREES)
    error = np.maximum(np.maximum(test.standard_error, spread), neighbours)
    return Scale(error, known, basis)


def _within_commits(repeats: Sequence[Sequence[Sequence[float]]]) -> tuple[Array, Array]:
    squares, degrees = np.zeros(len(repeats)), np.zeros(len(repeats))
    for index, commits in enumerate(repeats):
        for medians in commits:
            if len(medians) > 1:
                mean = sum(medians) / len(medians)
                squares[index] += sum((value - mean) ** 2 for value in medians)
                degrees[index] += len(medians) - 1
    return squares, degrees


def _moderated(squares: Array, degrees: Array) -> tuple[Array, Array]:
    if len(squares) < CONTROLS_NEEDED:
        # Too few to lend anything; a point without repeats of its own takes what there is.
        pooled, total = squares.sum() / degrees.sum(), degrees.sum()
        own = degrees > 0
        variance = np.where(own, squares / np.maximum(degrees, 1.0), pooled)
        return variance, np.where(own, degrees, np.minimum(total, _LENT))
    mean = squares.sum() / degrees.sum()
    return (_LENT * mean + squares) / (_LENT + degrees), _LENT + degrees


def _largest_of_others(sizes: Array, group: Integers) -> Array:
    """Per point, the largest of ``sizes`` among the other points of its group; 0 if alone."""
    order = np.lexsort((-sizes, group))
    first = np.ones(len(order), dtype=bool)
    first[1:] = group[order][1:] != group[order][:-1]
    largest = np.zeros(group.max() + 1)
    second = np.zeros(group.max() + 1)
    largest[group[order[first]]] = sizes[order[first]]
    runner_up = np.zeros(len(order), dtype=bool)
    runner_up[1:] = first[:-1] & ~first[1:]
    second[group[order[runner_up]]] = sizes[order[runner_up]]
    holder = np.zeros(len(sizes), dtype=bool)
    holder[order[first]] = True
    return np.where(holder, second[group], largest[group])


def _spread_of_others(shift: Array, layout: Layout) -> tuple[Array, Array]:
    """Root mean square shift over the points of other groups and other families, and how many.

    About zero, not about their mean: what moves everything is part of the noise of two runs.
    """
    squares = shift**2
    total = squares.sum() - _summed(squares, layout.group) - _summed(squares, layout.family)
    count = len(shift) - _summed(np.ones_like(shift), layout.group)
    count -= _summed(np.ones_like(shift), layout.family)
    # The point itself was taken off twice: once with its group, once with its family.
    others = count + 1
    return np.sqrt(np.maximum(total + squares, 0.0) / np.maximum(others, 1.0)), others


def _summed(values: Array, index: Integers) -> Array:
    return np.bincount(index, values).astype(np.float64)[index]
