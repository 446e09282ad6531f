"""Medians and distances of all short intervals of many series, and the best partitions into them.

As asv's compiled ``RangeMedian``, to the last bit: sums run in the order in which it adds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# asv's solver looks at intervals of up to so many values before it joins them.
LONGEST = 20
# Series whose tables are made at once: their arrays stay in the caches.
_SERIES_AT_ONCE = 24

Series = Sequence[tuple[Sequence[float], Sequence[float]]]


@dataclass(frozen=True)
class ShortIntervals:
    """Of each interval of up to 20 values, by [right end, length, series].

    Lengths count down from 20, so that [r, left - r + 19, s] is the interval left..r of series s.
    Distances are infinite where there is no interval: before the start, and after a shorter
    series' end.
    """

    medians: NDArray[np.float64]
    distances: NDArray[np.float64]


def short_intervals(series: Series) -> ShortIntervals:
    """Of series (values, weights); every value finite, every weight finite and above nought."""
    size = max((len(y) for y, _ in series), default=0)
    medians = np.zeros((size, LONGEST, len(series)))
    distances = np.full((size, LONGEST, len(series)), np.inf)
    for first in range(0, len(series), _SERIES_AT_ONCE):
        part = slice(first, first + _SERIES_AT_ONCE)
        _fill(series[part], medians[:, :, part], distances[:, :, part])
    for number, (y, _) in enumerate(series):
        distances[len(y) :, :, number] = np.inf
    return ShortIntervals(medians, distances)


def _fill(series: Series, medians: NDArray[np.float64], distances: NDArray[np.float64]) -> None:
    """For each length one value more is sorted into the intervals of all series at once."""
    size, _, count = distances.shape
    values, weights = np.zeros((2, size, count))
    for number, (y, w) in enumerate(series):
        values[: len(y), number], weights[: len(w), number] = y, w
    # A value's place among all of its series, sorted by value and weight: what is compared.
    order = np.lexsort((weights, values), axis=0)
    places = np.empty((size, count), dtype=np.int32)
    ranks = np.arange(size * count, dtype=np.int32).reshape(size, count)
    np.put_along_axis(places, order, ranks, axis=0)
    sorted_values = np.take_along_axis(values, order, axis=0).ravel()
    sorted_weights = np.take_along_axis(weights, order, axis=0).ravel()

    # Of the interval that ends at each place: its values in order, and the weight up to each.
    ordered = np.empty((LONGEST, size, count), dtype=np.int32)
    reached = np.empty((LONGEST, size, count))
    for length in range(1, min(LONGEST, size) + 1):
        ends = slice(length - 1, size)
        # The interval's first value is the one that is new; it goes to its place from below.
        carried = places[: size - length + 1]
        for place in range(length - 1):
            known = ordered[place, ends]
            lower = np.minimum(known, carried)
            carried = np.maximum(known, carried)
            known[...] = lower
        ordered[length - 1, ends] = carried
        total = reached[0, ends]
        np.take(sorted_weights, ordered[0, ends], out=total)
        for place in range(1, length):
            reached[place, ends] = total + sorted_weights[ordered[place, ends]]
            total = reached[place, ends]
        median = _median(ordered[:length, ends], reached[:length, ends], sorted_values)
        distance = np.zeros_like(median)
        for place in range(length):
            part = slice(place, size - length + 1 + place)
            distance += weights[part] * np.abs(values[part] - median)
        medians[ends, LONGEST - length] = median
        distances[ends, LONGEST - length] = distance


def _median(
    ordered: NDArray[np.int32], reached: NDArray[np.float64], sorted_values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The value at which half the weight is reached; the mean of two where it is met exactly."""
    half = reached[-1] / 2
    place = np.zeros(half.shape, dtype=np.int8)
    for weight in reached[:-1]:
        place += weight < half
    at = place[None].astype(np.intp)
    median: NDArray[np.float64] = sorted_values[np.take_along_axis(ordered, at, axis=0)[0]]
    met = np.take_along_axis(reached, at, axis=0)[0] == half
    if met.any():
        after = np.minimum(at + 1, len(ordered) - 1)
        following = sorted_values[np.take_along_axis(ordered, after, axis=0)[0]]
        median = np.where(met & (place < len(ordered) - 1), (following + median) / 2, median)
    return median


def best_partitions(
    distances: NDArray[np.float64], penalties: NDArray[np.float64]
) -> NDArray[np.int64]:
    """[series, right end]: where the last interval of the best partition up to there starts.

    Of equally good starts the last one, as in asv's programme.

    Args:
        distances: of ``ShortIntervals``.
        penalties: what an interval costs, by series.
    """
    size, longest, count = distances.shape
    # Costs by exclusive right end, after ``longest`` - 1 places for what lies before the start; a
    # penalty is added to each, as any interval that goes on from there pays it.
    costs = np.full((longest + size, count), np.inf)
    costs[longest - 1] = -penalties + penalties
    candidates = np.empty((longest, count))
    starts = np.empty((size, count), dtype=np.int64)
    for right in range(size):
        np.add(costs[right : right + longest], distances[right], out=candidates)
        best = candidates.min(axis=0)
        np.add(best, penalties, out=costs[right + longest])
        starts[right] = right - (candidates[::-1] == best).argmax(axis=0)
    return starts.T
