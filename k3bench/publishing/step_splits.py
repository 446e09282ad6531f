"""Where intervals are best split in two: all places but a few are ruled out without asv's medians.

asv's distances are sums that it rounds in its own order, and are slow to get for long intervals.
Here they are computed in any order, for many intervals and places at once, and only places whose
cost is the lowest to within what rounding could change are left for asv's own figures to judge.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Share of all distances added up that the errors of rounding stay below: with n values they are
# under 10 n 2^-53 of it, so up to a million values.
_MARGIN = 1e-9
# Terms at once: more leave the caches.
_TERMS = 1 << 16


def likely_splits(
    values: Floats,
    weights: Floats,
    numbers: Integers,
    start: Integers,
    low: Integers,
    high: Integers,
    end: Integers,
) -> list[list[int]]:
    """Of each interval start..end, where a second part may begin for the least sum of distances.

    Args:
        values: [series, places], finite.
        weights: the same, none below nought.
        numbers: of the intervals' series.
        start: of the intervals.
        low: the first place that may be; start < low.
        high: the last one; low <= high <= end.
        end: the intervals' last place.
    """
    found: list[list[int]] = [[] for _ in numbers]
    sizes = end - start + 1
    order = np.argsort(sizes)
    widest = int((high - low).max(initial=0)) + 1
    for rows in _chunks(order, sizes[order] * widest):
        near = _near_the_least(
            values, weights, *(part[rows] for part in (numbers, start, low, high, end))
        )
        for at, place in zip(*np.nonzero(near), strict=True):
            found[rows[at]].append(int(low[rows[at]] + place))
    return found


def _chunks(order: Integers, terms: Integers) -> Iterator[Integers]:
    """Rows in order, as many at a time as keep the terms (all taken for the last one's) few."""
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order) and (last + 1 - first) * terms[last] <= _TERMS:
            last += 1
        yield order[first:last]
        first = last


def _near_the_least(
    values: Floats,
    weights: Floats,
    numbers: Integers,
    start: Integers,
    low: Integers,
    high: Integers,
    end: Integers,
) -> NDArray[np.bool_]:
    """[interval, place - low]: whether the cost of a split there is the least, but for rounding.

    The distance of a part is least over levels, and at one of its values. So for each place and
    each value as a level, what lies before the place is added up, and what lies from it on.
    """
    column = numbers[:, None]
    places = start[:, None] + np.arange(int((end - start).max()) + 1)
    # A shorter interval goes on with its greatest value, which weighs nothing.
    inside = places <= end[:, None]
    places = np.minimum(places, end[:, None])
    y, w = values[column, places], np.where(inside, weights[column, places], 0.0)
    y = np.where(inside, y, y.max(axis=1, keepdims=True))
    order = np.argsort(y, axis=1)
    levels, by_level = np.take_along_axis(y, order, axis=1), np.take_along_axis(w, order, axis=1)
    middle = levels[:, levels.shape[1] // 2, None]
    levels = levels - middle
    # Between low and high: one place a row, then one level a column.
    between = low[:, None] + np.arange(int((high - low).max()))
    is_between = between < high[:, None]
    between = np.minimum(between, end[:, None])
    y, w = values[column, between] - middle, np.where(is_between, weights[column, between], 0.0)
    added = np.zeros((len(numbers), y.shape[1] + 1, levels.shape[1]))
    np.subtract(y[:, :, None], levels[:, None], out=added[:, 1:])
    np.abs(added, out=added)
    added[:, 1:] *= w[:, :, None]
    np.add.accumulate(added, axis=1, out=added)
    order += start[:, None]
    before = _distances(levels, np.where(order < low[:, None], by_level, 0.0))
    after = _distances(levels, np.where(order >= high[:, None], by_level, 0.0))
    after += added[:, -1]
    cost = (before[:, None] + added).min(axis=2)
    np.subtract(after[:, None], added, out=added)
    cost += added.min(axis=2)
    margin = _MARGIN * (np.abs(levels) * by_level).sum(axis=1)
    # Not greater, rather than less or equal: where a sum is out of range all places are left.
    near: NDArray[np.bool_] = ~(cost > (cost.min(axis=1) + margin)[:, None])
    near &= low[:, None] + np.arange(near.shape[1]) <= high[:, None]
    return near


def _distances(levels: Floats, weights: Floats) -> Floats:
    """Sum of weighted distances of all values from each, rows of values sorted."""
    weight, moment = np.cumsum(weights, axis=1), np.cumsum(weights * levels, axis=1)
    return levels * (2 * weight - weight[:, -1:]) - (2 * moment - moment[:, -1:])
