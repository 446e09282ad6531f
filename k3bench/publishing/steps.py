"""asv's step detection, to the last bit the same and many times faster.

asv fits a stepwise constant level to a series for ten or so penalties and keeps the fit with the
best information measure. Here many series go through each round of that search side by side:
``step_short`` has their short intervals and the dynamic programme, ``step_fits`` joins
these to fits and measures them. Fits that several penalties share are made once.
"""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from asv import step_detect

from k3bench.publishing.step_fits import Fit, Fits, Problem

T = TypeVar("T")

# Values of series that are solved side by side. More share numpy's calls among more, and leave the
# caches.
VALUES_AT_ONCE = 60_000
_GOLDEN = 2 / (1 + math.sqrt(5))

# Right bounds (exclusive), levels, distances, penalty.
Solution = tuple[list[int], list[float], list[float], float | None]
# Where each starts (inclusive) and ends (exclusive), its level, its least value, its error.
Steps = list[tuple[int, int, float, float, float]]


class InfiniteSeries(ValueError):  # noqa: N818 - what it is, not that it is one
    """asv's step detection would not end."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"series {number} holds infinite values, or so large that their distances are: "
            "remove these results; asv's step detection would not end"
        )
        self.number = number


def detect_many(series: Sequence[tuple[Sequence[Any], Sequence[Any] | None]]) -> list[Steps]:
    """``asv.step_detect.detect_steps`` of many series (values, weights), solved side by side."""
    places = [_present(values, weights) for values, weights in series]
    problems = [
        ([values[at] for at in present], _normalised(weights, present))
        for (values, weights), present in zip(series, places, strict=True)
    ]
    return [
        _steps(present, y, solution)
        for present, (y, _), solution in zip(places, problems, solve_many(problems), strict=True)
    ]


def solved_together(work: Callable[[], T]) -> T:
    """What ``work`` returns; the series in which it has asv detect steps are solved side by side.

    It is called twice, the first time finding no steps in any series. Which series it looks at, and
    in which order, must not hang on them.
    """
    asked: list[Problem] = []

    def ask(y: list[float], w: list[float]) -> Solution:
        asked.append((y, w))
        return [], [], [], None

    with _solver(ask):
        work()
    solutions = iter(solve_many(asked))
    with _solver(lambda y, w: next(solutions)):
        return work()


@contextmanager
def _solver(solver: Callable[[list[float], list[float]], Solution]) -> Iterator[None]:
    theirs = step_detect.solve_potts_autogamma
    step_detect.solve_potts_autogamma = solver
    try:
        yield
    finally:
        step_detect.solve_potts_autogamma = theirs


def _present(values: Sequence[Any], weights: Sequence[Any] | None) -> list[int]:
    """Where there is a value whose weight, if it has one, is above nought."""
    if weights is None:
        return [at for at, value in enumerate(values) if value is not None and value == value]
    return [
        at
        for at, (value, weight) in enumerate(zip(values, weights, strict=True))
        if value is not None and value == value and not (weight is not None and weight <= 0)
    ]


def _normalised(weights: Sequence[Any] | None, present: Sequence[int]) -> list[float]:
    """Weights of the values that are there, by the median of all; 1 where one is missing."""
    if weights is None:
        return [1.0] * len(present)
    known = [weight for weight in weights if weight is not None and weight == weight]
    median = (step_detect.median(known) if known else 1.0) or 1.0
    return [
        1.0 if weights[at] is None or weights[at] != weights[at] else weights[at] / median
        for at in present
    ]


def _steps(present: Sequence[int], y: Sequence[float], solution: Solution) -> Steps:
    steps = []
    start = 0
    for end, level, distance in zip(*solution[:3], strict=True):
        steps.append(
            (
                present[start],
                present[end - 1] + 1,
                level,
                min(y[start:end]),
                abs(distance / (end - start)),
            )
        )
        start = end
    return steps


def solve_many(problems: Sequence[Problem]) -> list[Solution]:
    """``asv.step_detect.solve_potts_autogamma`` of many series (values, weights), none missing.

    Right bounds, levels, distances and the penalty of each. Weights so small that they are nought
    are left to asv, whose medians take them as they come.

    Raises:
        InfiniteSeries: a series' distances are more than a double holds.
    """
    for number, (y, w) in enumerate(problems):
        if y and not math.isfinite((max(y) - min(y)) * sum(w)):
            raise InfiniteSeries(number)
    solutions: dict[int, Solution] = {}
    ordinary = [at for at, (y, w) in enumerate(problems) if y and min(w) > 0]
    ordinary.sort(key=lambda at: len(problems[at][0]))
    for part in _parts(ordinary, [len(problems[at][0]) for at in ordinary]):
        solutions |= zip(part, _solved([problems[at] for at in part]), strict=True)
    return [
        solutions[at] if at in solutions else step_detect.solve_potts_autogamma(*problem)
        for at, problem in enumerate(problems)
    ]


def _parts(places: Sequence[int], sizes: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut so that each part's number of places times its last, largest size stays small."""
    first = 0
    for at, size in enumerate(sizes):
        if at > first and (at + 1 - first) * size > VALUES_AT_ONCE:
            yield places[first:at]
            first = at
    if first < len(places):
        yield places[first:]


def _solved(problems: Sequence[Problem]) -> list[Solution]:
    fits = Fits(problems)
    searches = [_Search(len(y), fits.whole(number)) for number, (y, _) in enumerate(problems)]
    while any(search.penalty is not None for search in searches):
        penalties = [search.penalty for search in searches]
        for search, fit in zip(searches, fits.at(penalties), strict=True):
            if fit is not None:
                search.judge(fit)
    return [
        (*fits.with_distances(number, search.best), search.best_penalty)
        for number, search in enumerate(searches)
    ]


class _Search:
    """One series' golden-section search on the logarithm of the penalty, rough on purpose.

    ``penalty`` is the one to try next, and None at the end.
    """

    def __init__(self, size: int, whole: float) -> None:
        self.best: Fit = Fit([], [], math.inf)
        self.best_penalty: float | None = None
        self._least = math.inf
        self._step_cost = 4 * math.log(size) / size
        self._unit = whole or 1.0  # no variance, no scale
        low = math.log(0.1 / size)
        self._run = _golden_section(low, 0.0, abs(low) * 0.1)
        self.penalty: float | None = self._unit * math.exp(next(self._run))

    def judge(self, fit: Fit) -> None:
        """Takes the fit at ``penalty``."""
        measure = self._step_cost * len(fit.bounds) + fit.log_error
        if measure < self._least:
            self._least = measure
            self.best, self.best_penalty = fit, self.penalty
        try:
            self.penalty = self._unit * math.exp(self._run.send(measure))
        except StopIteration:
            self.penalty = None


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
