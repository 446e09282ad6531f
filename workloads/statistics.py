"""Statistics of a list of prompt lengths, and how they differ from pinned ones.

Percentiles interpolate linearly between order statistics. The standard deviation is the population
one (divided by n); the published 189.81 is reproduced by it and, at n = 52,229, by the sample one
too, so the published figure does not tell them apart.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from workloads import pins
from workloads.errors import WorkloadError
from workloads.pins import Statistics

# Published to two decimals: two figures agree when they round to the same hundredth.
PUBLISHED_DECIMALS = 2


def percentile(ordered: Sequence[int], percent: float) -> float:
    """The ``percent``-th percentile (0 to 100) of ascending values, linearly interpolated.

    The rank is computed exactly: 0.999 * 52,228 in binary floating point can fall on the wrong
    side of an order statistic.
    """
    if not ordered:
        raise WorkloadError("a percentile of no values: give at least one length")
    if not 0 <= percent <= 100:
        raise WorkloadError(f"percentile {percent} is outside 0..100")
    rank = Fraction(str(percent)) / 100 * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (rank - below) * (ordered[above] - ordered[below]))


def bucket_counts(
    lengths: Sequence[int], edges: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int, int], ...]:
    """How many lengths fall in each (lowest, highest) bucket, both ends included."""
    return tuple(
        (low, high, sum(1 for length in lengths if low <= length <= high)) for low, high in edges
    )


def summarise(lengths: Sequence[int], like: Statistics = pins.STATISTICS) -> Statistics:
    """Statistics of ``lengths`` (tokens), at the percentiles and buckets that ``like`` has."""
    if not lengths:
        raise WorkloadError("no lengths to summarise: give at least one")
    ordered = sorted(lengths)
    count = len(ordered)
    # Integer sums: exact, and so independent of the order of the list.
    mean = Fraction(sum(ordered), count)
    variance = Fraction(sum(length * length for length in ordered), count) - mean * mean
    return Statistics(
        count=count,
        minimum=ordered[0],
        maximum=ordered[-1],
        mean=float(mean),
        std=math.sqrt(variance),
        percentiles=tuple(
            (percent, percentile(ordered, percent)) for percent, _ in like.percentiles
        ),
        buckets=bucket_counts(ordered, [(low, high) for low, high, _ in like.buckets]),
    )


def compare(found: Statistics, pinned: Statistics = pins.STATISTICS) -> list[str]:
    """Every statistic in which ``found`` differs from ``pinned``, as readable lines.

    Counts, extremes and buckets must be equal; mean, standard deviation and percentiles must agree
    to the two decimals they are published with. An empty list means no difference.
    """
    differences = []

    def exact(name: str, have: int, want: int) -> None:
        if have != want:
            differences.append(f"{name} is {have:,}, pinned {want:,}")

    def rounded(name: str, have: float, want: float) -> None:
        if round(have, PUBLISHED_DECIMALS) != round(want, PUBLISHED_DECIMALS):
            differences.append(f"{name} is {have:,.2f}, pinned {want:,.2f}")

    exact("count", found.count, pinned.count)
    exact("min", found.minimum, pinned.minimum)
    exact("max", found.maximum, pinned.maximum)
    rounded("mean", found.mean, pinned.mean)
    rounded("std", found.std, pinned.std)
    found_percentiles = dict(found.percentiles)
    for percent, want in pinned.percentiles:
        rounded(f"P{percent:g}", found_percentiles.get(percent, math.nan), want)
    found_buckets = {(low, high): count for low, high, count in found.buckets}
    for low, high, want_count in pinned.buckets:
        exact(f"bucket {low}-{high}", found_buckets.get((low, high), 0), want_count)
    return differences
