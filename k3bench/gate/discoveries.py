"""Many tests at once: Benjamini and Hochberg's bound on false discoveries, Holm's on any error."""

import numpy as np
from numpy.typing import NDArray

from k3bench.gate.select import Array


def benjamini_hochberg(p: Array, tests: int | None = None) -> Array:
    """Adjusted p-values (q-values), in the order given.

    The largest k with p_(k) <= q k / tests is rejected together with all below it. It bounds the
    share of false discoveries where tests are independent or depend positively, as the points of
    one run do (a busy machine slows neighbours together). ``tests``: how many were made, where
    some are not in ``p``.
    """
    return _step_up(p, tests or len(p))


def _step_up(p: Array, tests: int) -> Array:
    order = np.argsort(p, kind="stable")
    scaled = p[order] * tests / np.arange(1, len(p) + 1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted


def holm(p: Array) -> Array:
    """Adjusted p-values that bound the chance of any false rejection, whatever the dependence."""
    order: NDArray[np.intp] = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted
