"""Samples of a comparison by run and point, and what they say of a point's level."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from k3bench.gate.select import Array, Point


@dataclass(frozen=True, slots=True)
class Measured:
    """A point with the samples of every run of both sides, in seconds.

    ``repeats``: log medians of repeated runs of one commit in the same environment, one list a
    commit; those of base and head belong in it where they have several runs. ``in_turns``: the
    runs of base and head are the same ones, and their samples alternated; repeats are not read.
    """

    point: Point
    base: Sequence[Array]
    head: Sequence[Array]
    repeats: Sequence[Sequence[float]] = ()
    in_turns: bool = False


def shifts_of_runs(item: Measured) -> list[list[float]]:
    """Per run in turns, the median of head's logarithms over base's, pair by pair: one list."""
    return [
        [
            float(np.median(np.log(head) - np.log(base)))
            for base, head in zip(item.base, item.head, strict=True)
        ]
    ]


def run_levels(
    here: Sequence[Measured],
) -> tuple[tuple[list[Array], list[Array]] | None, NDArray[np.bool_]]:
    """Log medians per run over the points that every run has, and which points those are.

    None where a side has one run.
    """
    counts = (
        max(len(item.base) for item in here),
        max(len(item.head) for item in here),
    )
    everywhere = np.array([(len(item.base), len(item.head)) == counts for item in here])
    if min(counts) < 2:
        return None, everywhere
    whole = [item for item, there in zip(here, everywhere, strict=True) if there]
    base, head = (
        [log_medians([side[run] for side in sides]) for run in range(count)]
        for sides, count in (
            ([item.base for item in whole], counts[0]),
            ([item.head for item in whole], counts[1]),
        )
    )
    return (base, head), everywhere


def spreads(here: Sequence[Measured]) -> Array:
    """Per point, the log ratio of head's spread within runs to base's, from the quartiles."""
    sides = []
    for runs in ([item.base for item in here], [item.head for item in here]):
        lengths = {len(run) for of_point in runs for run in of_point}
        if len(lengths) == 1 and len({len(of_point) for of_point in runs}) == 1:
            low, high = np.quantile(np.log(np.array(runs)), [0.25, 0.75], axis=2)
        else:
            ends = [
                np.array([np.quantile(np.log(run), [0.25, 0.75]) for run in of_point]).mean(axis=0)
                for of_point in runs
            ]
            low, high = np.array(ends).T[:, :, None]
        sides.append(np.log(np.maximum(high - low, 1e-6)).mean(axis=1))
    return np.asarray(sides[1] - sides[0])


def log_medians(samples: Sequence[Array] | Array) -> Array:
    """The logarithm of each row's median; rows may differ in length."""
    if len({len(row) for row in samples}) == 1:
        return np.log(np.median(np.asarray(samples), axis=1))
    return np.array([np.log(np.median(row)) for row in samples])
