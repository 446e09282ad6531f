"""scipy's tests and quantiles, under the few signatures that the gate needs."""

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import scipy.stats

from k3bench.gate.select import Array

# scipy ships no types of its own, and its stubs know many forms that are not used here.
_stats: Any = scipy.stats

# Stands for the normal distribution among Student's.
_MANY = 1e9


def mann_whitney(x: Array, y: Array, method: Literal["exact", "asymptotic"]) -> Array:
    """Two-sided p of each row of ``x`` against the same row of ``y``; 1 where nothing varies."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p = _stats.mannwhitneyu(x, y, axis=1, method=method).pvalue
    return np.where(np.isfinite(p), np.minimum(p, 1.0), 1.0)


def signed_rank(values: Array, alternative: Literal["greater", "less", "two-sided"]) -> float:
    """Wilcoxon's signed-rank p that ``values`` centre on zero; 1 where all are zero."""
    if not np.any(values):
        return 1.0
    return float(_stats.wilcoxon(values, alternative=alternative).pvalue)


def signed_rank_rows(values: Array, method: Literal["exact", "asymptotic"]) -> Array:
    """Two-sided signed-rank p of each row of ``values``; 1 where a row is all zeros.

    ``exact`` must not be asked for rows with zeros or ties.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        p = _stats.wilcoxon(values, axis=1, method=method).pvalue
    return np.where(np.isfinite(p), np.minimum(p, 1.0), 1.0)


def two_means(base: Sequence[float], head: Sequence[float]) -> float:
    """Student's two-sided p that two samples of equal variance have equal means."""
    return float(_stats.ttest_ind(base, head).pvalue)


def student_p(statistic: Array, degrees: Array) -> Array:
    """Two-sided p of Student's t; infinite degrees are the normal distribution."""
    return cast(Array, 2 * _stats.t.sf(np.abs(statistic), np.minimum(degrees, _MANY)))


def student_quantile(tail: float, degrees: Array) -> Array:
    """Where Student's upper tail is ``tail``."""
    return cast(Array, _stats.t.isf(tail, np.minimum(degrees, _MANY)))


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% confidence interval of a rate."""
    z = 1.959963984540054
    rate = hits / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = (
        z
        / (1 + z * z / trials)
        * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    )
    return max(0.0, centre - half), min(1.0, centre + half)
