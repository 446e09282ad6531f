"""Fits of stepwise constant levels to many series at given penalties, as asv's solver makes them.

A fit starts as the best partition into short intervals. Neighbours are joined while that pays,
bounds move to where the intervals beside them fit best, and the error that is left is measured,
correlated noise allowed for. Every sum runs in asv's order, so that results are its to the last
bit. Intervals too long for ``step_short`` are asked of asv's own compiled code.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from asv import step_detect
from numpy.typing import NDArray

from k3bench.publishing.step_errors import left_errors
from k3bench.publishing.step_short import LONGEST, best_partitions, short_intervals
from k3bench.publishing.step_splits import likely_splits

# Values and weights.
Problem = tuple[list[float], list[float]]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Fit:
    """Right bounds (exclusive), levels between them, logarithm of the error that is left."""

    bounds: list[int]
    levels: list[float]
    log_error: float


class Fits:
    """Fits to some series, by penalty.

    Args:
        problems: series, none empty; values finite, weights finite and above nought.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._sizes = [len(y) for y, _ in problems]
        self._short = short_intervals(problems)
        # Its items are Python's floats, and quicker to get than an array's.
        self._table: Any = memoryview(self._short.distances)  # type: ignore[arg-type]
        # In a cycle of references these would crash Python's collector: they free themselves twice.
        self._compiled = [step_detect.get_mu_dist(y, w) for y, w in problems]
        self._asked: list[dict[tuple[int, int], float]] = [{} for _ in problems]
        self._known: list[dict[tuple[int, ...], Fit]] = [{} for _ in problems]
        self._values, self._weights = np.zeros((2, len(problems), max(self._sizes)))
        for row, (y, w) in enumerate(problems):
            self._values[row, : len(y)], self._weights[row, : len(w)] = y, w

    def whole(self, number: int) -> float:
        """Distance of a whole series from its median."""
        return self._distance(number, 0, self._sizes[number] - 1)

    def at(self, penalties: Sequence[float | None]) -> list[Fit | None]:
        """A fit to each series at its penalty; none where that is None."""
        joined = self._joined(penalties)
        new = {
            (number, tuple(bounds)): bounds
            for number, bounds in joined.items()
            if tuple(bounds) not in self._known[number]
        }
        made = self._made([number for number, _ in new], [list(bounds) for bounds in new.values()])
        for (number, key), fit in zip(new, made, strict=True):
            self._known[number][key] = fit
        return [
            self._known[number][tuple(joined[number])] if number in joined else None
            for number in range(len(penalties))
        ]

    def with_distances(self, number: int, fit: Fit) -> tuple[list[int], list[float], list[float]]:
        """A fit's bounds, levels, and the distance of the values from each."""
        edges = pairwise([0, *fit.bounds])
        return fit.bounds, fit.levels, [self._distance(number, a, b - 1) for a, b in edges]

    def _distance(self, number: int, left: int, right: int) -> float:
        """asv's distance of a series' values left..right from their median."""
        if right - left < LONGEST:
            return float(self._table[right, left - right + LONGEST - 1, number])
        asked = self._asked[number]
        if (left, right) not in asked:
            asked[left, right] = self._compiled[number].dist(left, right)
        return asked[left, right]

    def _distances(self, numbers: Integers, left: Integers, right: Integers) -> NDArray[np.float64]:
        return self._looked_up(self._short.distances, self._distance, numbers, left, right)

    def _levels(self, numbers: Integers, left: Integers, right: Integers) -> list[float]:
        def median(number: int, first: int, last: int) -> float:
            return float(self._compiled[number].mu(first, last))

        found: list[float] = self._looked_up(
            self._short.medians, median, numbers, left, right
        ).tolist()
        return found

    @staticmethod
    def _looked_up(
        table: NDArray[np.float64],
        ask: Callable[[int, int, int], float],
        numbers: Integers,
        left: Integers,
        right: Integers,
    ) -> NDArray[np.float64]:
        """What a table of short intervals says, and for long ones what asv's code says."""
        found: NDArray[np.float64] = table[
            right, np.maximum(left - right + LONGEST - 1, 0), numbers
        ]
        for at in np.flatnonzero(right - left >= LONGEST).tolist():
            found[at] = ask(int(numbers[at]), int(left[at]), int(right[at]))
        return found

    def _joined(self, penalties: Sequence[float | None]) -> dict[int, list[int]]:
        """Right bounds, by series: the best short intervals, joined."""
        known = np.array([0.0 if penalty is None else penalty for penalty in penalties])
        starts = best_partitions(self._short.distances, known).tolist()
        bounds = {
            number: _bounds(starts[number], self._sizes[number])
            for number, penalty in enumerate(penalties)
            if penalty is not None
        }
        flat = _Flat(list(bounds), list(bounds.values()))
        alone = self._distances(flat.numbers, flat.left, flat.right)
        # Two neighbours as one interval; the last of a series has none.
        together = np.zeros_like(alone)
        first = flat.not_last
        together[first] = self._distances(
            flat.numbers[first], flat.left[first], flat.right[first + 1]
        )
        changes = np.zeros_like(alone)
        changes[first] = together[first] - (
            alone[first] + alone[first + 1] + known[flat.numbers[first]]
        )
        alone_list, together_list, changes_list = map(
            flat.split, (alone.tolist(), together.tolist(), changes.tolist())
        )
        for number, *costs in zip(bounds, alone_list, together_list, changes_list, strict=True):
            self._join(number, bounds[number], float(known[number]), *costs)
        return bounds

    def _join(
        self,
        number: int,
        bounds: list[int],
        penalty: float,
        alone: list[float],
        together: list[float],
        changes: list[float],
    ) -> None:
        """Joins neighbours while that lowers the cost, the first local minimum first.

        Args:
            number: of the series.
            bounds: changed in place.
            penalty: saved by each joint.
            alone: cost of each interval.
            together: cost of each with the next one as one interval.
            changes: what joining each with the next one adds to the costs.
        """
        del together[-1], changes[-1]
        begin = 0  # before it no joint pays
        while True:
            lowest, place = 0.0, len(changes)
            for at in range(begin, len(changes)):
                if place < at - 1:
                    break
                if changes[at] <= lowest:
                    if place == len(changes):
                        begin = max(at - 1, 0)
                    lowest, place = changes[at], at
            if place == len(changes):
                return
            alone[place : place + 2] = [together[place]]
            del bounds[place], together[place], changes[place]
            for at in (place - 1, place):
                if 0 <= at < len(changes):
                    left = bounds[at - 1] if at else 0
                    together[at] = self._distance(number, left, bounds[at + 1] - 1)
                    changes[at] = together[at] - (alone[at] + alone[at + 1] + penalty)

    def _made(self, numbers: list[int], bounds: list[list[int]]) -> list[Fit]:
        """Fits with these bounds, which move in place; series may repeat."""
        if not numbers:
            return []
        self._move(numbers, bounds)
        flat = _Flat(numbers, bounds)
        levels = flat.split(self._levels(flat.numbers, flat.left, flat.right))
        rows = np.array(numbers)
        errors = left_errors(
            self._values[rows], self._weights[rows], [self._sizes[n] for n in numbers], bounds,
            levels,
        )  # fmt: skip
        return [
            Fit(right, level, math.log(max(1e-300, _noise_floor(level)) + error))
            for right, level, error in zip(bounds, levels, errors, strict=True)
        ]

    def _move(self, numbers: list[int], bounds: list[list[int]]) -> None:
        """Moves every bound in turn to where the two intervals beside it fit best, near by.

        Few move. So all are first looked at as if none before it had moved.
        """
        flat = _Flat(numbers, bounds)
        at = flat.not_last
        series, start, here, end = (
            flat.numbers[at],
            flat.left[at],
            flat.right[at] + 1,
            flat.right[at + 1],
        )
        low, high = np.maximum(here - LONGEST, start + 1), np.minimum(here + LONGEST, end)
        is_short = (high - start <= LONGEST) & (end - low < LONGEST)
        to = np.full(len(flat.left), 0)
        short = np.flatnonzero(is_short)
        to[at[short]] = self._short_moves(
            *(part[short] for part in (series, start, low, here, high, end))
        )
        long = np.flatnonzero(~is_short)
        likely = likely_splits(
            self._values, self._weights,
            *(part[long] for part in (series, start, low, high, end)),
        )  # fmt: skip
        places = dict(zip(at[long].tolist(), likely, strict=True))
        to[flat.last] = flat.right[flat.last] + 1
        for row in np.unique(flat.rows[to != flat.right + 1]).tolist():
            part = flat.part(row)
            self._move_in_turn(
                numbers[row],
                bounds[row],
                [places.get(place, [to[place]]) for place in range(part.start, part.stop)],
            )

    def _short_moves(
        self,
        series: Integers,
        start: Integers,
        low: Integers,
        here: Integers,
        high: Integers,
        end: Integers,
    ) -> Integers:
        """The best place of each bound between low and high, here where none is better."""
        table = self._short.distances
        # All have at most 20 places; past the last one it is repeated, and so never the first best.
        places = np.minimum(low[:, None] + np.arange(LONGEST), high[:, None])
        costs = table[places - 1, start[:, None] - places + LONGEST, series[:, None]]
        costs += table[end[:, None], places - end[:, None] + LONGEST - 1, series[:, None]]
        best = costs.argmin(axis=1)
        rows = np.arange(len(costs))
        return np.where(costs[rows, best] < costs[rows, here - low], low + best, here)

    def _move_in_turn(self, number: int, bounds: list[int], likely: list[list[int]]) -> None:
        """Moves one fit's bounds; ``likely`` is where to, if none moves before."""
        start, has_moved = 0, False
        for at in range(len(bounds) - 1):
            here, end = bounds[at], bounds[at + 1] - 1
            places = likely[at]
            if has_moved:
                places = self._likely(number, start, here, end)
            if places != [here]:
                bounds[at] = self._best_place(number, start, here, end, places)
            start, has_moved = bounds[at], bounds[at] != here

    def _likely(self, number: int, start: int, here: int, end: int) -> list[int]:
        low, high = max(here - LONGEST, start + 1), min(here + LONGEST, end)
        if high - start <= LONGEST and end - low < LONGEST:
            return list(range(low, high + 1))
        limits = (np.array([limit]) for limit in (number, start, low, high, end))
        return likely_splits(self._values, self._weights, *limits)[0]

    def _best_place(
        self, number: int, start: int, here: int, end: int, places: Sequence[int]
    ) -> int:
        """The best of some places for a bound between start and end; here if none is better."""

        def cost(place: int) -> float:
            return self._distance(number, start, place - 1) + self._distance(number, place, end)

        best, lowest = here, cost(here)
        for place in places:
            if place != here and (found := cost(place)) < lowest:
                best, lowest = place, found
        return best


class _Flat:
    """Intervals of many fits in one array: their series, first and last places, and the fit."""

    def __init__(self, numbers: Sequence[int], bounds: Sequence[Sequence[int]]) -> None:
        counts = [len(one) for one in bounds]
        self._offsets = [0, *accumulate(counts)]
        self.rows = np.repeat(np.arange(len(counts)), counts)
        self.numbers = np.array(numbers, dtype=np.int64)[self.rows]
        ends = np.array([end for one in bounds for end in one], dtype=np.int64)
        self.right = ends - 1
        self.left = np.roll(ends, 1)
        self.left[self._offsets[:-1]] = 0
        self.last = np.array(self._offsets[1:], dtype=np.int64) - 1
        is_last = np.zeros(len(ends), dtype=bool)
        is_last[self.last] = True
        self.not_last = np.flatnonzero(~is_last)

    def part(self, row: int) -> slice:
        """Where a fit's intervals are."""
        return slice(self._offsets[row], self._offsets[row + 1])

    def split(self, values: list[Any]) -> list[list[Any]]:
        """Values of all intervals, a list a fit."""
        return [values[start:end] for start, end in pairwise(self._offsets)]


def _bounds(starts: list[int], size: int) -> list[int]:
    """Right bounds of the partition whose intervals start there, by their ends."""
    bounds = []
    end = size
    while end > 0:
        bounds.append(end)
        end = starts[end - 1]
    return bounds[::-1]


def _noise_floor(levels: Sequence[float]) -> float:
    """What is added to the error that is left, so that no fit is taken to be without any."""
    if len(levels) > 2:
        return 0.1 * min(abs(after - before) for before, after in pairwise(levels))
    return 0.001 * min(map(abs, levels))
