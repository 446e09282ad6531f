"""The error that a fit leaves in a series when its noise is allowed to be correlated."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RATIO = 2 / (1 + math.sqrt(5))
_TOLERANCE, _RELATIVE_TOLERANCE = 0.05, 1e-8


def left_errors(
    values: Floats,
    weights: Floats,
    sizes: Sequence[int],
    bounds: Sequence[Sequence[int]],
    levels: Sequence[Sequence[float]],
) -> list[float]:
    """The least sum of weighted distances that any correlation of neighbours leaves, a fit each.

    As asv's: a golden-section search over the correlation, its sums added up from the left.

    Args:
        values: [fits, values], nought after a shorter series' end.
        weights: of the same shape, nought there as well.
        sizes: of the series.
        bounds: right bounds (exclusive) of the levels.
        levels: of the fits.
    """
    lengths = [
        after - before for one in bounds for before, after in zip([0, *one], one, strict=False)
    ]
    flat = np.repeat([level for one in levels for level in one], lengths)
    errors = np.zeros_like(values)
    inside = np.arange(values.shape[1]) < np.array(sizes)[:, None]
    errors[inside] = values[inside] - flat
    return _least(_Left(errors, weights))


class _Left:
    """What is left at a correlation, by fit; fits may be dropped."""

    def __init__(self, errors: Floats, weights: Floats) -> None:
        self._now, self._before = errors[:, 1:], errors[:, :-1]
        self._weights = weights[:, 1:]
        self._first = np.abs(errors[:, 0]) * weights[:, 0]

    def __call__(self, correlation: Floats) -> Floats:
        terms = np.empty((len(correlation), self._now.shape[1] + 1))
        terms[:, 0] = self._first
        rest = terms[:, 1:]
        np.multiply(correlation[:, None], self._before, out=rest)
        np.subtract(self._now, rest, out=rest)
        np.abs(rest, out=rest)
        rest *= self._weights
        # numpy's sum adds in pairs, which rounds otherwise.
        return np.add.accumulate(terms, axis=1)[:, -1]

    def keep(self, rows: NDArray[np.bool_]) -> None:
        self._now, self._before = self._now[rows], self._before[rows]
        self._weights, self._first = self._weights[rows], self._first[rows]


def _least(function: _Left) -> list[float]:
    """The function's value where asv's search for its minimum between -1 and 1 ends, by row."""
    count = len(function._first)
    found = np.empty(count)
    rows = np.arange(count)
    x0 = np.full(count, (_RATIO * -1 - (1 - _RATIO) * 1) / (2 * _RATIO - 1))
    x3 = np.full(count, (_RATIO * 1 - (1 - _RATIO) * -1) / (2 * _RATIO - 1))
    x1 = _RATIO * x0 + (1 - _RATIO) * x3
    x2 = (1 - _RATIO) * x0 + _RATIO * x3
    f1, f2 = function(x1), function(x2)
    scale = np.maximum(np.abs(f1), np.abs(f2))
    while True:
        done = (np.abs(x0 - x3) < _TOLERANCE) | (np.abs(f1 - f2) < _RELATIVE_TOLERANCE * scale)
        if done.any():
            found[rows[done]] = np.where(f2 < f1, f2, f1)[done]
            going = ~done
            if not going.any():
                return found.tolist()
            function.keep(going)
            rows, scale = rows[going], scale[going]
            x0, x1, x2, x3, f1, f2 = (part[going] for part in (x0, x1, x2, x3, f1, f2))
        up = f2 < f1
        kept, value = np.where(up, x2, x1), np.where(up, f2, f1)
        x0, x3 = np.where(up, x1, x0), np.where(up, x3, x2)
        fresh = _RATIO * kept + (1 - _RATIO) * np.where(up, x3, x0)
        fresh_value = function(fresh)
        x1, x2 = np.where(up, kept, fresh), np.where(up, fresh, kept)
        f1, f2 = np.where(up, value, fresh_value), np.where(up, fresh_value, value)
