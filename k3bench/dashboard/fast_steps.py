"""asv's step detection, to the last bit the same and several times faster.

asv fits a stepwise constant level to a series for ten or so penalties and keeps the fit with the
best information measure. Most of its time goes into that measure, a sum over all values that it
computes in Python for a dozen correlations per fit; the rest into the dynamic programme and into
moving bounds. Here the sum runs over arrays, in the same order of operations; fits that different
penalties share are judged once; and the dynamic programme runs over many series side by side.
Medians and distances are asv's own, compiled.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from asv import step_detect
from numpy.typing import NDArray

# asv's solver looks at intervals of up to so many values before it joins them.
_LONGEST = 20
_GOLDEN = 2 / (1 + math.sqrt(5))

# Right bounds (exclusive), levels, distances.
Fit = tuple[list[int], list[float], list[float]]
Solution = tuple[list[int], list[float], list[float], float | None]
Steps = list[tuple[int, int, float, float, float]]


@contextmanager
def fast_step_detection() -> Iterator[None]:
    """asv detects steps with ``solve`` inside the block, in processes forked there as well."""
    with _replaced_solver(solve):
        yield


def detect_many(series: Sequence[tuple[Sequence[Any], Sequence[Any] | None]]) -> list[Steps]:
    """``asv.step_detect.detect_steps`` of many series (values, weights), solved side by side.

    asv's function runs twice a series, without its solver: first for what it would solve, then
    with the solution.
    """
    asked: list[tuple[list[float], list[float]]] = []

    def ask(y: list[float], w: list[float]) -> Solution:
        asked.append((y, w))
        return [], [], [], None

    with _replaced_solver(ask):
        for values, weights in series:
            step_detect.detect_steps(values, weights)
    solutions = iter(solve_many(asked))
    with _replaced_solver(lambda y, w: next(solutions)):
        return [step_detect.detect_steps(values, weights) for values, weights in series]


def solve(y: Sequence[float], w: Sequence[float]) -> Solution:
    """As ``asv.step_detect.solve_potts_autogamma``: right bounds, levels, distances, penalty.

    Args:
        y: the series, none missing.
        w: their weights.
    """
    if not y:
        return [], [], [], None
    search = _Search(y, w)
    run = search.run()
    penalty = next(run)
    while True:
        bounds, _, _ = step_detect.solve_potts(
            y, w, penalty, min_size=1, max_size=_LONGEST, mu_dist=search.distances
        )
        try:
            penalty = run.send(bounds)
        except StopIteration:
            return search.solution


def solve_many(problems: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[Solution]:
    """``solve`` for many series: each searches its penalty, all partitions of a round at once."""
    searches = [_Search(y, w) if y else None for y, w in problems]
    table = short_distances([(y, w) for y, w in problems if y])
    active = [(search, search.run()) for search in searches if search is not None]
    for (search, _), row in zip(active, table, strict=True):
        search.know(row)
    penalties = [next(run) for _, run in active]
    rows = list(range(len(active)))
    while rows:
        found = _partitions(table[rows], np.array([penalties[row] for row in rows]))
        going = []
        for row, starts in zip(rows, found, strict=True):
            search, run = active[row]
            try:
                penalties[row] = run.send(_bounds(starts, search.size))
            except StopIteration:
                continue
            going.append(row)
        rows = going
    return [([], [], [], None) if search is None else search.solution for search in searches]


class _Search:
    """The search for one series' best penalty.

    ``run`` gives a penalty, is sent the right bounds of the best partition into short intervals at
    that penalty, and so on; ``solution`` holds the best so far.
    """

    def __init__(self, y: Sequence[float], w: Sequence[float]) -> None:
        self.size = len(y)
        self.distances = step_detect.get_mu_dist(y, w)
        self.solution: Solution = ([], [], [], None)
        self._dist = self.distances.dist
        self._short: list[list[float]] = []
        self._values = np.asarray(y, dtype=np.float64)
        self._weights = np.asarray(w, dtype=np.float64)
        self._moved: dict[tuple[int, ...], Fit] = {}
        self._log_errors: dict[tuple[int, ...], float] = {}
        self._best = math.inf

    def know(self, short: NDArray[np.float64]) -> None:
        """Takes distances of short intervals over, so that they are looked up and not asked for."""
        rows, ask = short.tolist(), self.distances.dist
        self._short = rows

        def dist(left: int, right: int) -> float:
            if right - left < _LONGEST:
                return float(rows[right][left - right - 1])
            return float(ask(left, right))

        self._dist = dist

    def run(self) -> Generator[float, list[int], None]:
        """A golden-section search on the logarithm of the penalty, rough on purpose."""
        step_cost = 4 * math.log(self.size) / self.size
        unit = self.distances.dist(0, self.size - 1) or 1.0  # no variance, no scale
        low = math.log(0.1 / self.size)
        search = _golden_section(low, 0.0, abs(low) * 0.1)
        exponent = next(search)
        while True:
            penalty = unit * math.exp(exponent)
            bounds = yield penalty
            fit = self._fit(bounds, penalty)
            measure = step_cost * len(fit[0]) + self._log_error(fit)
            if measure < self._best:
                self._best = measure
                self.solution = (*fit, penalty)
            try:
                exponent = search.send(measure)
            except StopIteration:
                return

    def _fit(self, bounds: list[int], penalty: float) -> Fit:
        """Short intervals joined, and the bounds that are left moved to where they fit best."""
        joined = tuple(self._joined(bounds, penalty))
        if joined not in self._moved:
            self._moved[joined] = self._with_bounds_moved(list(joined))
        return self._moved[joined]

    def _joined(self, bounds: list[int], penalty: float) -> list[int]:
        """Neighbours joined while that lowers the cost, the first local minimum first."""
        dist = self._dist
        bounds = list(bounds)
        starts = [0, *bounds[:-1]]
        alone = [dist(start, end - 1) for start, end in zip(starts, bounds, strict=True)]
        # What two neighbours cost as one interval, and as two but for the penalty.
        pairs = [
            (dist(starts[j], bounds[j + 1] - 1), alone[j] + alone[j + 1])
            for j in range(len(bounds) - 1)
        ]
        while True:
            lowest, place = 0.0, len(pairs)
            for at, (together, apart) in enumerate(pairs):
                if place < at - 1:
                    break
                change = together - (apart + penalty)
                if change <= lowest:
                    lowest, place = change, at
            if place == len(pairs):
                return bounds
            alone[place : place + 2] = [pairs[place][0]]
            del bounds[place], starts[place + 1], pairs[place]
            for j in (place - 1, place):
                if 0 <= j < len(pairs):
                    pairs[j] = (dist(starts[j], bounds[j + 1] - 1), alone[j] + alone[j + 1])

    def _with_bounds_moved(self, bounds: list[int]) -> Fit:
        """Every bound in turn where the two intervals beside it fit best, near where it was."""
        dist, mu = self._dist, self.distances.mu
        start = 0
        for j in range(1, len(bounds)):
            here, end = bounds[j - 1], bounds[j] - 1
            low, high = max(here - _LONGEST, start + 1), min(here + _LONGEST, end)
            costs = self._costs_of_bounds(start, low, high, end)
            lowest = costs[here - low]
            best = min(costs)
            if best < lowest:
                bounds[j - 1] = low + costs.index(best)
            start = bounds[j - 1]
        edges = list(zip([0, *bounds[:-1]], bounds, strict=True))
        levels = [mu(start, end - 1) for start, end in edges]
        return bounds, levels, [dist(start, end - 1) for start, end in edges]

    def _costs_of_bounds(self, start: int, low: int, high: int, end: int) -> list[float]:
        """Distance of start..bound - 1 plus that of bound..end, by bound from low to high."""
        bounds, short = range(low, high + 1), self._short
        if short and high - start <= _LONGEST and end - low < _LONGEST:
            after = short[end][low - end - 1 :]
            return [short[b - 1][start - b] + cost for b, cost in zip(bounds, after, strict=False)]
        dist = self._dist
        return [dist(start, b - 1) + dist(b, end) for b in bounds]

    def _log_error(self, fit: Fit) -> float:
        """Logarithm of the error that is left when correlated noise is allowed for."""
        key = tuple(fit[0])
        if key not in self._log_errors:
            self._log_errors[key] = self._computed_log_error(fit[0], fit[1])
        return self._log_errors[key]

    def _computed_log_error(self, bounds: list[int], levels: list[float]) -> float:
        sizes = np.diff(bounds, prepend=0)
        errors = self._values - np.repeat(np.asarray(levels, dtype=np.float64), sizes)
        terms = np.empty_like(errors)
        terms[0] = abs(errors[0]) * self._weights[0]

        def left(correlation: float) -> float:
            np.multiply(
                np.abs(errors[1:] - correlation * errors[:-1]), self._weights[1:], out=terms[1:]
            )
            # Added up from the left: numpy's sum adds in pairs, which rounds otherwise.
            return float(np.add.accumulate(terms)[-1])

        correlation = step_detect.golden_search(left, -1, 1, xatol=0.05, expand_bounds=True)
        if len(levels) > 2:
            floor = 0.1 * min(abs(after - before) for before, after in pairwise(levels))
        else:
            floor = 0.001 * min(map(abs, levels))
        return math.log(max(1e-300, floor) + left(correlation))


def _golden_section(a: float, b: float, tolerance: float) -> Generator[float, float, None]:
    """Points at which a function is wanted for its minimum between ``a`` and ``b``."""
    x0 = (_GOLDEN * a - (1 - _GOLDEN) * b) / (2 * _GOLDEN - 1)
    x3 = (_GOLDEN * b - (1 - _GOLDEN) * a) / (2 * _GOLDEN - 1)
    x1 = _GOLDEN * x0 + (1 - _GOLDEN) * x3
    x2 = (1 - _GOLDEN) * x0 + _GOLDEN * x3
    f1 = yield x1
    f2 = yield x2
    while abs(x0 - x3) >= tolerance:
        if f2 < f1:
            x0, x1, f1 = x1, x2, f2
            x2 = _GOLDEN * x1 + (1 - _GOLDEN) * x3
            f2 = yield x2
        else:
            x3, x2, f2 = x2, x1, f1
            x1 = _GOLDEN * x2 + (1 - _GOLDEN) * x0
            f1 = yield x1


def short_distances(
    series: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> NDArray[np.float64]:
    """[series, right end, 20]: ``RangeMedian.dist`` of every interval of up to 20 values.

    Of those that end at a place the longest comes first; infinite where there is none: before the
    start, and after a shorter series' end. For each length one value more is sorted into the
    intervals of all series at once; sums run in the order in which asv's compiled code adds.
    """
    size = max((len(y) for y, _ in series), default=0)
    values, weights = np.zeros((2, len(series), size))
    for row, (y, w) in enumerate(series):
        values[row, : len(y)], weights[row, : len(w)] = y, w
    table = np.full((len(series), size, _LONGEST), np.inf)
    ordered: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for length in range(1, min(_LONGEST, size) + 1):
        # One column a right end; the interval's first value is the one that is new.
        first = slice(0, size - length + 1)
        ordered = [(y[:, 1:], w[:, 1:]) if length > 1 else (y, w) for y, w in ordered]
        ordered = _sorted_in(ordered, values[:, first], weights[:, first])
        median = _weighted_median(ordered)
        distance = np.zeros_like(median)
        for place in range(length):
            part = slice(place, size - length + 1 + place)
            distance += weights[:, part] * np.abs(values[:, part] - median)
        table[:, length - 1 :, _LONGEST - length] = distance
    for row, (y, _) in enumerate(series):
        table[row, len(y) :] = np.inf
    return table


def _sorted_in(
    ordered: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
    value: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Sorted (value, weight) pairs with one more pair at its place, for all columns at once."""
    longer = []
    for known, known_weight in ordered:
        before = (value < known) | ((value == known) & (weight < known_weight))
        longer.append((np.where(before, value, known), np.where(before, weight, known_weight)))
        value, weight = np.where(before, known, value), np.where(before, known_weight, weight)
    return [*longer, (value, weight)]


def _weighted_median(
    ordered: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> NDArray[np.float64]:
    """The value at which half the weight is reached; the mean of two where it is met exactly."""
    total = np.zeros_like(ordered[0][1])
    for _, weight in ordered:
        total = total + weight
    half = total / 2
    reached = np.zeros_like(half)
    median = ordered[-1][0].copy()
    found = np.zeros(half.shape, dtype=bool)
    met = np.zeros(half.shape, dtype=bool)
    for value, weight in ordered:
        np.copyto(median, (value + median) / 2, where=met)
        reached = reached + weight
        here = ~found & (reached >= half)
        np.copyto(median, value, where=here)
        met = here & (reached == half)
        found |= here
    return median


def _partitions(table: NDArray[np.float64], penalties: NDArray[np.float64]) -> NDArray[np.int64]:
    """[series, right end]: where the last interval of the best partition up to there starts.

    Of equally good starts the last one, as in asv's programme.
    """
    count, size, longest = table.shape
    # Costs by exclusive right end, after ``longest`` - 1 places for what lies before the start.
    costs = np.full((count, longest + size), np.inf)
    costs[:, longest - 1] = -penalties
    starts = np.empty((count, size), dtype=np.int64)
    penalty, rows = penalties[:, None], np.arange(count)
    for right in range(size):
        candidates = costs[:, right : right + longest] + penalty
        candidates += table[:, right]
        back = np.argmin(candidates[:, ::-1], axis=1)
        starts[:, right] = right - back
        costs[:, right + longest] = candidates[rows, longest - 1 - back]
    return starts


def _bounds(starts: NDArray[np.int64], size: int) -> list[int]:
    """Right bounds of the partition that ``_partitions`` found for a series of this size."""
    bounds = []
    end = size
    while end > 0:
        bounds.append(end)
        end = int(starts[end - 1])
    return bounds[::-1]


@contextmanager
def _replaced_solver(solver: Any) -> Iterator[None]:
    theirs = step_detect.solve_potts_autogamma
    step_detect.solve_potts_autogamma = solver
    try:
        yield
    finally:
        step_detect.solve_potts_autogamma = theirs
