"""The rank test over many points at once: p-values, the smallest p there can be, effect sizes.

Samples are compared as logarithms: a ratio is a shift, and scaling both sides changes nothing.
"""

from dataclasses import dataclass
from math import comb

import numpy as np

from k3bench.gate.distributions import mann_whitney, signed_rank_rows
from k3bench.gate.select import Array

# Beyond this the exact distribution and the normal one agree to three digits at p = 1e-4.
EXACT_UP_TO = 50
# The distribution of pairwise differences is read from at most so many quantiles a side.
_THINNED = 40
# No clock resolves better: keeps a constant list of samples from claiming certainty.
_RESOLUTION = 2e-4
_PAIRS_AT_ONCE = 4_000_000
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class RankTest:
    """Per point: two-sided p, and the shift of the logarithm with its standard error."""

    p: Array
    shift: Array
    standard_error: Array


def smallest_p(base: int, head: int) -> float:
    """The smallest two-sided p that samples of these sizes can reach: 2 / C(base + head, base).

    Two, because complete separation can happen either way round.
    """
    return min(1.0, 2 / comb(base + head, base)) if base and head else 1.0


def samples_needed(alpha: float) -> int:
    """The smallest equal number of samples a side with which p can fall to ``alpha``."""
    n = 1
    while smallest_p(n, n) > alpha:
        n += 1
    return n


def rank_test(base: Array, head: Array) -> RankTest:
    """Mann-Whitney of each row of ``base`` (points x m) against ``head`` (points x n), seconds.

    Exact where a row has no ties and no side more than 50 samples, else normal with corrections
    for ties and continuity. The shift is Hodges-Lehmann's: the median of all pairwise differences
    of logarithms, positive where head is slower; its standard error is a quarter of the width of
    the 95% interval that inverts the test, as if samples were independent.
    """
    x, y = np.log(base), np.log(head)
    p = _p_values(x, y)
    shift, error = _shifts(x, y)
    return RankTest(p, shift, error)


def smallest_paired_p(pairs: int) -> float:
    """The smallest two-sided p that so many pairs can reach: 2 / 2^pairs."""
    return min(1.0, 2.0 ** (1 - pairs))


def paired_test(base: Array, head: Array, alpha: float) -> RankTest:
    """The same for samples taken in turns: each of ``base`` beside that of ``head`` (points x n).

    Wilcoxon's signed ranks of the logarithms' differences, which what slows both does not touch;
    the shift is the median of their pairwise means. With so few pairs that these ranks could never
    reach ``alpha``, Mann-Whitney's p instead, which is too large where both sides wander together.
    """
    differences = np.log(head) - np.log(base)
    if smallest_paired_p(differences.shape[1]) > alpha:
        p = _p_values(np.log(base), np.log(head))
    else:
        p = _paired_p_values(differences)
    return RankTest(p, *_paired_shifts(differences))


def _paired_p_values(differences: Array) -> Array:
    sizes = np.sort(np.abs(differences), axis=1)
    tied = (np.diff(sizes, axis=1) == 0).any(axis=1) | (sizes[:, 0] == 0)
    exact = ~tied & (differences.shape[1] <= EXACT_UP_TO)
    p = np.ones(len(differences))
    if exact.any():
        p[exact] = signed_rank_rows(differences[exact], "exact")
    if not exact.all():
        p[~exact] = signed_rank_rows(differences[~exact], "asymptotic")
    return p


def _paired_shifts(differences: Array) -> tuple[Array, Array]:
    n = differences.shape[1]
    width = _Z * np.sqrt((2 * n + 1) / (6 * n * (n + 1)))
    values = _thinned(differences)
    first, second = np.triu_indices(values.shape[1])
    shift, error = np.empty(len(values)), np.empty(len(values))
    step = max(1, _PAIRS_AT_ONCE // len(first))
    for start in range(0, len(values), step):
        some = values[start : start + step]
        means = (some[:, first] + some[:, second]) / 2
        low, middle, high = np.quantile(
            means, [max(0.0, 0.5 - width), 0.5, min(1.0, 0.5 + width)], axis=1
        )
        shift[start : start + step] = middle
        error[start : start + step] = (high - low) / (2 * _Z)
    return shift, np.maximum(error, _RESOLUTION)


def _p_values(x: Array, y: Array) -> Array:
    both = np.sort(np.concatenate([x, y], axis=1), axis=1)
    tied = (np.diff(both, axis=1) == 0).any(axis=1)
    exact = ~tied & (max(x.shape[1], y.shape[1]) <= EXACT_UP_TO)
    p = np.ones(len(x))
    if exact.any():
        p[exact] = mann_whitney(x[exact], y[exact], "exact")
    if not exact.all():
        p[~exact] = mann_whitney(x[~exact], y[~exact], "asymptotic")
    return p


def _shifts(x: Array, y: Array) -> tuple[Array, Array]:
    m, n = x.shape[1], y.shape[1]
    width = _Z * np.sqrt((m + n + 1) / (12 * m * n))
    low, high = max(0.0, 0.5 - width), min(1.0, 0.5 + width)
    x, y = _thinned(x), _thinned(y)
    pairs = x.shape[1] * y.shape[1]
    shift, error = np.empty(len(x)), np.empty(len(x))
    step = max(1, _PAIRS_AT_ONCE // pairs)
    # Order statistics at fixed positions: np.quantile would sort out the same three, more slowly.
    below, middle, above = (
        int(np.floor(low * (pairs - 1))),
        (pairs - 1) // 2,
        int(np.ceil(high * (pairs - 1))),
    )
    picked = sorted({below, middle, pairs // 2, above})
    for start in range(0, len(x), step):
        some = slice(start, start + step)
        differences = (y[some, None, :] - x[some, :, None]).reshape(-1, pairs)
        differences.partition(picked, axis=1)
        shift[some] = (differences[:, middle] + differences[:, pairs // 2]) / 2
        error[some] = (differences[:, above] - differences[:, below]) / (2 * _Z)
    return shift, np.maximum(error, _RESOLUTION)


def _thinned(values: Array) -> Array:
    if values.shape[1] <= _THINNED:
        return values
    at = (np.arange(_THINNED) + 0.5) / _THINNED
    return np.ascontiguousarray(np.quantile(values, at, axis=1).T)
