"""A surrogate for the 52,229 ShareGPT-derived prompt lengths, built from their statistics alone.

It stands in where the dataset is not at hand, and says so wherever it appears: no length in it was
ever measured. It meets every published bucket count, percentile, minimum and maximum exactly, and
mean and standard deviation to two decimals.

Method. A monotone cubic (Fritsch-Carlson) of the cumulative count over log length goes through the
bucket edges and the percentiles. The cumulative counts that the statistics fix are frozen as
integers. Inside each span between frozen counts the density is tilted by exp(a x + b x^2), x the
scaled log length, with one (a, b) for all spans, solved by Newton for the mean and the second
moment. Rounding the cumulative counts (not the counts) then keeps every error at half a length's
worth, and so the sum within a few tokens.

All arithmetic is ``decimal`` at a fixed precision, whose ln and exp are correctly rounded: the
same integers on every platform, which a libm or numpy would not promise.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

from workloads import pins
from workloads.committed import committed_bytes
from workloads.errors import PinMismatchError, WorkloadError
from workloads.identity import sorted_sha256
from workloads.pins import Statistics
from workloads.statistics import compare, summarise

LABEL = "surrogate of ShareGPT-derived"

DATA_FILE = "surrogate_sharegpt_k3.csv"

_DIGITS = 34
_HALF = Decimal("0.5")
_NEWTON_STEPS = 50


def build(statistics: Statistics = pins.STATISTICS) -> tuple[int, ...]:
    """The surrogate multiset, ascending: ``statistics.count`` prompt lengths in tokens.

    Raises ``WorkloadError`` where the statistics contradict each other or the construction cannot
    meet all of them.
    """
    _check(statistics)
    try:
        with localcontext(Context(prec=_DIGITS)):
            curve = _cumulative_curve(statistics)
            frozen = _frozen_counts(statistics, curve)
            density = _tilted_density(statistics, curve, frozen)
            counts = _rounded_counts(statistics, density, frozen)
    except ArithmeticError as error:
        raise WorkloadError("no tilt of the density meets this mean and deviation") from error
    lengths = tuple(
        length
        for length, count in enumerate(counts, start=statistics.minimum)
        for _ in range(count)
    )
    differences = compare(summarise(lengths, statistics), statistics)
    if differences:
        raise WorkloadError(
            "no surrogate meets these statistics by this method: " + "; ".join(differences)
        )
    return lengths


def render(lengths: Sequence[int]) -> bytes:
    """The file form: CSV with a header, one ``length,count`` line per length, ascending."""
    rows = [f"{length},{count}\n" for length, count in sorted(Counter(lengths).items())]
    return "".join(["surrogate_prompt_tokens,count\n", *rows]).encode("ascii")


def load_committed() -> tuple[int, ...]:
    """The surrogate multiset, ascending, from the committed file (its hash is checked)."""
    rows = committed_bytes(DATA_FILE).decode("ascii").splitlines()[1:]
    pairs = [row.split(",") for row in rows]
    return tuple(int(length) for length, count in pairs for _ in range(int(count)))


def build_pinned() -> tuple[int, ...]:
    """The surrogate of the published statistics, checked against its pinned hash."""
    lengths = build()
    found = sorted_sha256(lengths)
    if found != pins.SURROGATE_SORTED_SHA256:
        raise PinMismatchError(
            f"the surrogate came out with SHA-256 {found}, pinned "
            f"{pins.SURROGATE_SORTED_SHA256}: surrogate.py or the pinned statistics have changed"
        )
    return lengths


def _check(statistics: Statistics) -> None:
    """Refuse statistics that no multiset of whole lengths can have."""
    expected_low, total = statistics.minimum, 0
    for low, high, count in statistics.buckets:
        if low != expected_low or high < low or count < 1:
            raise WorkloadError(
                f"bucket {low}-{high} with count {count}: buckets must tile the lengths from "
                "minimum to maximum, each with a count"
            )
        expected_low, total = high + 1, total + count
    if expected_low != statistics.maximum + 1:
        raise WorkloadError(
            f"the buckets end at {expected_low - 1}, the maximum is {statistics.maximum}"
        )
    if total != statistics.count:
        raise WorkloadError(
            f"the buckets hold {total:,} lengths, the count is {statistics.count:,}"
        )
    for percent, value in statistics.percentiles:
        if value != int(value) or not statistics.minimum <= value <= statistics.maximum:
            raise WorkloadError(
                f"P{percent:g} is {value}: the construction needs whole tokens between minimum "
                "and maximum"
            )


def _rank(statistics: Statistics, percent: float) -> Fraction:
    return Fraction(str(percent)) / 100 * (statistics.count - 1)


def _cumulative_curve(statistics: Statistics) -> list[Decimal]:
    """How many lengths are <= v, as a smooth curve, for v from ``minimum - 1`` to ``maximum``.

    A bucket edge fixes the curve half a token past the edge; a percentile fixes it at the length
    itself, whose own lengths lie half below and half above.
    """
    knots = {Decimal(statistics.minimum) - _HALF: Decimal(0)}
    below = 0
    for _, high, count in statistics.buckets:
        below += count
        knots[high + _HALF] = Decimal(below)
    for percent, value in statistics.percentiles:
        rank = _rank(statistics, percent)
        knots[Decimal(int(value))] = Decimal(rank.numerator) / rank.denominator + _HALF
    places = sorted(knots)
    x = [place.ln() for place in places]
    y = [knots[place] for place in places]
    if any(low >= high for low, high in pairwise(y)):
        raise WorkloadError("buckets and percentiles contradict each other: counts must ascend")
    slopes = _monotone_slopes(x, y)
    return [
        _hermite(x, y, slopes, (length + _HALF).ln())
        for length in range(statistics.minimum - 1, statistics.maximum + 1)
    ]


def _monotone_slopes(x: Sequence[Decimal], y: Sequence[Decimal]) -> list[Decimal]:
    """Slopes at the knots that keep a cubic Hermite interpolant monotone (Fritsch-Carlson)."""
    steps = [after - before for before, after in pairwise(x)]
    secants = [(y[i + 1] - y[i]) / step for i, step in enumerate(steps)]
    if len(secants) == 1:
        return secants * 2

    def end(near: int, far: int) -> Decimal:
        # Slope at the end of the parabola through the last three points; never downwards.
        bend = (secants[near] - secants[far]) * steps[near] / (steps[near] + steps[far])
        return max(secants[near] + bend, Decimal(0))

    slopes = [end(0, 1)]
    slopes += [(left + right) / 2 for left, right in pairwise(secants)]
    slopes.append(end(-1, -2))
    for i, secant in enumerate(secants):
        alpha, beta = slopes[i] / secant, slopes[i + 1] / secant
        norm = alpha * alpha + beta * beta
        if norm > 9:
            shrink = 3 / norm.sqrt()
            slopes[i], slopes[i + 1] = shrink * alpha * secant, shrink * beta * secant
    return slopes


def _hermite(
    x: Sequence[Decimal], y: Sequence[Decimal], slopes: Sequence[Decimal], at: Decimal
) -> Decimal:
    i = min(max(bisect_right(x, at) - 1, 0), len(x) - 2)
    step = x[i + 1] - x[i]
    t = (at - x[i]) / step
    return (
        y[i] * (1 + 2 * t) * (1 - t) ** 2
        + slopes[i] * step * t * (1 - t) ** 2
        + y[i + 1] * t * t * (3 - 2 * t)
        + slopes[i + 1] * step * t * t * (t - 1)
    )


def _frozen_counts(statistics: Statistics, curve: Sequence[Decimal]) -> dict[int, int]:
    """The cumulative counts that the statistics fix: length v -> how many lengths are <= v.

    A bucket fixes its upper edge. A percentile at length v needs its one or two order statistics
    to be v: at most ``rank`` lengths below v, and enough up to v; within that the curve decides.
    Minimum and maximum are the percentiles 0 and 100.
    """
    first = statistics.minimum
    frozen = {first - 1: 0}
    for _, high, count in statistics.buckets:
        frozen[high] = max(frozen.values()) + count
    extremes = ((0.0, float(first)), (100.0, float(statistics.maximum)))
    for percent, percentile_value in (*extremes, *statistics.percentiles):
        value = int(percentile_value)
        rank = _rank(statistics, percent)
        lower = rank.numerator // rank.denominator
        upper = lower if rank.denominator == 1 else lower + 1
        for length, bound, limit in ((value - 1, lower, min), (value, upper + 1, max)):
            wanted = limit(int(curve[length - first + 1].to_integral_value()), bound)
            if frozen.setdefault(length, wanted) != limit(frozen[length], bound):
                raise WorkloadError(f"P{percent:g} = {value} contradicts the bucket counts")
    ordered = [frozen[length] for length in sorted(frozen)]
    if any(low > high for low, high in pairwise(ordered)):
        raise WorkloadError("the percentiles contradict each other: counts must ascend")
    return frozen


def _spans(frozen: dict[int, int]) -> list[tuple[int, int, int]]:
    """(first length, last length, count) of every span between frozen cumulative counts."""
    return [(low + 1, high, frozen[high] - frozen[low]) for low, high in pairwise(sorted(frozen))]


def _tilted_density(
    statistics: Statistics, curve: Sequence[Decimal], frozen: dict[int, int]
) -> list[Decimal]:
    """Real-valued count of every length, spans at their frozen totals, both moments met."""
    first = statistics.minimum
    scale = Decimal(statistics.maximum).ln()
    lengths = [Decimal(length) for length in range(first, statistics.maximum + 1)]
    x = [length.ln() / scale for length in lengths]
    tilts = (x, [value * value for value in x])
    moments = (lengths, [length * length for length in lengths])
    weights = [after - before for before, after in pairwise(curve)]
    mean, std = Decimal(str(statistics.mean)), Decimal(str(statistics.std))
    targets = (mean * statistics.count, (std * std + mean * mean) * statistics.count)
    a = b = Decimal(0)
    for _ in range(_NEWTON_STEPS):
        density: list[Decimal] = []
        residual = list(targets)
        slope = [[Decimal(0), Decimal(0)], [Decimal(0), Decimal(0)]]
        for low, high, count in _spans(frozen):
            span = slice(low - first, high - first + 1)
            tilted = [
                weight * (a * x1 + b * x2).exp()
                for weight, x1, x2 in zip(
                    weights[span], tilts[0][span], tilts[1][span], strict=True
                )
            ]
            total = sum(tilted)
            part = [value * count / total for value in tilted]
            density += part
            if count == 0:
                continue
            # d(moment)/d(a or b) is the covariance, inside the span, of the moment with x or x^2.
            for row, moment in enumerate(moments):
                weighted = [d * m for d, m in zip(part, moment[span], strict=True)]
                residual[row] -= sum(weighted)
                for column, tilt in enumerate(tilts):
                    slope[row][column] += _dot(weighted, tilt[span]) - (
                        sum(weighted) * _dot(part, tilt[span]) / count
                    )
        if abs(residual[0]) < _HALF and abs(residual[1]) < _HALF:
            return density
        determinant = slope[0][0] * slope[1][1] - slope[0][1] * slope[1][0]
        a += (residual[0] * slope[1][1] - residual[1] * slope[0][1]) / determinant
        b += (residual[1] * slope[0][0] - residual[0] * slope[1][0]) / determinant
    raise WorkloadError("no tilt of the density meets this mean and deviation")


def _dot(left: Sequence[Decimal], right: Sequence[Decimal]) -> Decimal:
    return sum((p * q for p, q in zip(left, right, strict=True)), Decimal(0))


def _rounded_counts(
    statistics: Statistics, density: Sequence[Decimal], frozen: dict[int, int]
) -> list[int]:
    """Whole counts of every length, by rounding the cumulative count; frozen counts are kept."""
    counts = []
    running, rounded = Decimal(0), 0
    for length, value in enumerate(density, start=statistics.minimum):
        running += value
        if length in frozen:
            running = Decimal(frozen[length])
        reached = int(running.to_integral_value())
        counts.append(reached - rounded)
        rounded = reached
    return counts
