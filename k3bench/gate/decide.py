"""The verdicts on measured points: slower, faster, no change seen, or why it cannot be said."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from k3bench.gate.discoveries import benjamini_hochberg, holm
from k3bench.gate.distributions import student_p, student_quantile
from k3bench.gate.families import FamilyTest, family_tests, is_together, moved_together
from k3bench.gate.levels import Measured, run_levels, shifts_of_runs, spreads
from k3bench.gate.noise import Integers, Layout, Scale, scale_of
from k3bench.gate.ranks import RankTest, paired_test, rank_test, samples_needed, smallest_p
from k3bench.gate.select import Array
from k3bench.gate.settings import Settings
from k3bench.gate.verdicts import (
    FamilyVerdict,
    MeasuredVerdicts,
    PointVerdict,
    TogetherVerdict,
    Verdict,
)

# Ratios from here on are no bound at all; and where exp stays finite.
_UNBOUNDED = 1e6
_LARGEST = 700.0


@dataclass
class _Stratum:
    """One device, preset and way of measuring: its points, their tests, and what comes of them."""

    device: str
    preset: str | None
    rows: Integers
    layout: Layout
    names: list[tuple[str, str]]
    test: RankTest
    scale: Scale
    families: list[FamilyTest]
    runs: tuple[list[Array], list[Array]] | None
    everywhere: NDArray[np.bool_]
    in_turns: bool


def judge_measured(points: Sequence[Measured], settings: Settings) -> MeasuredVerdicts:
    """Judge all measured points of a comparison at once; docs/gate.md gives the rules.

    A point without a single sample on a side must not be given.
    """
    sizes = [(sum(map(len, item.base)), sum(map(len, item.head))) for item in points]
    judged = _enough_samples(sizes, settings)
    strata = [_stratum(points, rows, sizes, settings) for rows in _by_stratum(points, judged)]
    p, q = np.ones(len(points)), np.ones(len(points))
    for stratum in strata:
        p[stratum.rows] = np.maximum(stratum.test.p, _p_against_noise(stratum))
    if judged.any():
        q[judged] = benjamini_hochberg(p[judged])
    tests = int(judged.sum())
    verdicts: list[PointVerdict | None] = [None] * len(points)
    families, named = _family_verdicts(strata, settings)
    for stratum, moved in zip(strata, named, strict=True):
        _fill(verdicts, stratum, points, sizes, (p, q), moved, tests, settings)
    for index, verdict in enumerate(verdicts):
        if verdict is None:
            verdicts[index] = _too_few(points[index], sizes[index], len(points), settings)
    return MeasuredVerdicts(
        points=[verdict for verdict in verdicts if verdict is not None],
        families=families,
        together=[
            found
            for stratum, moved in zip(strata, named, strict=True)
            for found in _together(stratum, moved, settings)
        ],
    )


def _enough_samples(sizes: Sequence[tuple[int, int]], settings: Settings) -> NDArray[np.bool_]:
    """Points whose samples could show a change, were it ever so large, beside all the others.

    Fixed from the sizes alone, before any test: a point that cannot reach the level that a lone
    discovery needs would only ever be called unchanged.
    """
    alone = settings.false_alarms / max(1, len(sizes))
    return np.array(
        [min(size) >= settings.min_samples and smallest_p(*size) <= alone for size in sizes],
        dtype=bool,
    )


def _by_stratum(points: Sequence[Measured], judged: NDArray[np.bool_]) -> Iterable[Integers]:
    places: dict[tuple[str, str | None, bool], list[int]] = {}
    for index in np.flatnonzero(judged).tolist():
        item = points[index]
        key = (item.point.device, item.point.preset, item.in_turns)
        places.setdefault(key, []).append(index)
    return [np.array(rows) for rows in places.values()]


def _stratum(
    points: Sequence[Measured],
    rows: Integers,
    sizes: Sequence[tuple[int, int]],
    settings: Settings,
) -> _Stratum:
    here = [points[index] for index in rows.tolist()]
    group, _ = _numbered(
        (item.point.benchmark, f"{item.point.parameters} {item.point.further_clock}")
        for item in here
    )
    family, names = _numbered(
        (item.point.benchmark.partition(".")[0], item.point.implementation_by_clock)
        for item in here
    )
    layout = Layout(group, family)
    in_turns = here[0].in_turns
    alone = settings.false_alarms / max(1, len(sizes))
    test = _rank_tests(here, [sizes[index] for index in rows.tolist()], in_turns, alone)
    levels, everywhere = run_levels(here)
    repeats = [shifts_of_runs(item) if in_turns else item.repeats for item in here]
    runs = (
        np.array([float(len(item.base)) for item in here]),
        np.array([float(len(item.head)) for item in here]),
    )
    return _Stratum(
        device=here[0].point.device,
        preset=here[0].point.preset,
        rows=rows,
        layout=layout,
        names=names,
        test=test,
        scale=scale_of(test, layout, repeats, runs, settings, in_turns),
        families=family_tests(
            test.shift, layout, spreads(here), levels if everywhere.all() else None, in_turns
        ),
        runs=levels,
        everywhere=everywhere,
        in_turns=in_turns,
    )


def _numbered(keys: Iterable[tuple[str, str]]) -> tuple[Integers, list[tuple[str, str]]]:
    numbers: dict[tuple[str, str], int] = {}
    index = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
    return index, list(numbers)


def _rank_tests(
    here: Sequence[Measured], sizes: Sequence[tuple[int, int]], in_turns: bool, alone: float
) -> RankTest:
    by_size: dict[Hashable, list[int]] = {}
    for index, size in enumerate(sizes):
        by_size.setdefault(size, []).append(index)
    p, shift, error = (np.empty(len(here)) for _ in range(3))
    for members in by_size.values():
        base = np.array([np.concatenate(here[index].base) for index in members])
        head = np.array([np.concatenate(here[index].head) for index in members])
        found = paired_test(base, head, alone) if in_turns else rank_test(base, head)
        p[members], shift[members], error[members] = found.p, found.shift, found.standard_error
    return RankTest(p, shift, error)


def _p_against_noise(stratum: _Stratum) -> Array:
    statistic = stratum.test.shift / stratum.scale.standard_error
    return student_p(statistic, stratum.scale.degrees)


def _family_verdicts(
    strata: Sequence[_Stratum], settings: Settings
) -> tuple[list[FamilyVerdict], list[dict[int, Verdict]]]:
    every = [(stratum, test) for stratum in strata for test in stratum.families]
    budget = settings.false_alarms / 4
    slower = holm(np.array([test.p_slower for _, test in every]))
    faster = holm(np.array([test.p_faster for _, test in every]))
    named: dict[int, dict[int, Verdict]] = {id(stratum): {} for stratum in strata}
    verdicts = []
    for (stratum, test), p_slower, p_faster in zip(every, slower, faster, strict=True):
        verdict: Verdict = "unchanged"
        if p_slower <= budget:
            verdict = _whose_move(test, settings.threshold)
        elif (
            p_faster <= budget
            and test.unlike is None
            and _is_its_own(-1.0, test, settings.threshold)
        ):
            verdict = "faster"
        if verdict in ("slower", "faster"):
            named[id(stratum)][test.family] = verdict
        module, implementation = stratum.names[test.family]
        verdicts.append(
            FamilyVerdict(
                device=stratum.device,
                preset=stratum.preset,
                module=module,
                implementation=implementation,
                verdict=verdict,
                points=test.points,
                against=float(np.exp(test.against)),
                low=float(np.exp(test.low)),
                high=float(np.exp(test.high)),
                own=float(np.exp(test.own)),
                neighbours=float(np.exp(test.neighbours)),
                p=float(min(p_slower, p_faster)),
                detail=test.unlike,
            )
        )
    return verdicts, [named[id(stratum)] for stratum in strata]


def _whose_move(test: FamilyTest, threshold: float) -> Verdict:
    """Of a family that got slower beside its neighbours: it, they got faster, or who knows."""
    if test.against < np.log1p(threshold):
        return "unchanged"
    if _is_its_own(1.0, test, threshold):
        return "slower" if test.unlike is None else "suspected"
    # The neighbours moved at least as far the other way as the family falls behind.
    return "unchanged" if test.own <= -test.neighbours / 10 else "suspected"


def _is_its_own(sign: float, test: FamilyTest, threshold: float) -> bool:
    """Whether the family itself moved, rather than its neighbours the other way.

    Neighbours that got much faster make it slower beside them; then its own shift is small.
    """
    relevant = np.log1p(threshold)
    own, neighbours = sign * test.own, sign * test.neighbours
    return bool(sign * test.against >= relevant and own >= max(relevant, -neighbours / 2))


def _fill(
    verdicts: list[PointVerdict | None],
    stratum: _Stratum,
    points: Sequence[Measured],
    sizes: Sequence[tuple[int, int]],
    tests: tuple[Array, Array],
    moved: dict[int, Verdict],
    count: int,
    settings: Settings,
) -> None:
    p, q = tests
    scale, shift = stratum.scale, stratum.test.shift
    half = student_quantile(0.025, scale.degrees) * scale.standard_error
    # Alone among all points, nine times in ten: the level of a lone discovery, and its power.
    alone = settings.false_alarms / max(1, count)
    sees = (student_quantile(alone / 2, scale.degrees) + 1.2816) * scale.standard_error
    rank_q = benjamini_hochberg(stratum.test.p)
    within = _named_in_families(stratum, moved, settings)
    relevant = np.log1p(settings.threshold)
    columns = zip(
        stratum.rows.tolist(),
        shift,
        half,
        sees,
        rank_q,
        within,
        stratum.layout.family,
        strict=True,
    )
    for index, move, width, visible, rank, named, family in columns:
        matters = abs(move) >= relevant
        verdict: Verdict = "unchanged"
        detail = None
        if matters and q[index] <= settings.false_alarms:
            verdict = "slower" if move > 0 else "faster"
        elif named and np.sign(move) == (1 if moved[family] == "slower" else -1):
            verdict = moved[family]
            detail = "with its implementation"
        elif scale.basis == "assumed" and move >= relevant and rank <= settings.false_alarms:
            verdict = "suspected"
            detail = "may be noise between runs"
        item = points[index]
        verdicts[index] = PointVerdict(
            verdict=verdict,
            ratio=float(np.exp(move)),
            low=float(np.exp(move - width)),
            high=_finite(np.exp(min(move + width, _LARGEST))),
            p=float(p[index]),
            q=float(q[index]),
            sees=_finite(np.expm1(min(max(visible, relevant), _LARGEST))),
            samples=sizes[index],
            runs=(len(item.base), len(item.head)),
            basis=scale.basis,
            detail=detail,
            in_turns=stratum.in_turns,
        )


def _finite(value: float) -> float | None:
    """The value; None for what so few degrees of freedom cannot bound (JSON has no infinity)."""
    return float(value) if value < _UNBOUNDED else None


def _named_in_families(
    stratum: _Stratum, moved: dict[int, Verdict], settings: Settings
) -> NDArray[np.bool_]:
    """Points of implementations that moved as a whole and show it, false discoveries bounded."""
    named = np.zeros(len(stratum.rows), dtype=bool)
    relevant = np.log1p(settings.threshold)
    for family in moved:
        members = np.flatnonzero(stratum.layout.family == family)
        q = benjamini_hochberg(stratum.test.p[members])
        shown = np.abs(stratum.test.shift[members]) >= relevant
        named[members] = (q <= settings.naming) & shown
    return named


def _too_few(item: Measured, size: tuple[int, int], tests: int, settings: Settings) -> PointVerdict:
    base, head = np.concatenate(item.base), np.concatenate(item.head)
    needed = samples_needed(settings.false_alarms / max(1, tests))
    return PointVerdict(
        verdict="too few samples",
        ratio=float(np.median(head) / np.median(base)),
        low=None,
        high=None,
        p=None,
        q=None,
        sees=None,
        samples=size,
        runs=(len(item.base), len(item.head)),
        basis=None,
        in_turns=item.in_turns,
        detail=f"needs {max(settings.min_samples, needed)} a side to show any change",
    )


def _together(
    stratum: _Stratum, moved: dict[int, Verdict], settings: Settings
) -> list[TogetherVerdict]:
    """The test over all points, but for those of implementations that moved on their own."""
    rest = ~np.isin(stratum.layout.family, list(moved))
    if not rest.any():
        return []
    _, group = np.unique(stratum.layout.group[rest], return_inverse=True)
    layout = Layout(group, stratum.layout.family[rest])
    runs = None
    if stratum.runs is not None:
        kept = rest[stratum.everywhere]
        base, head = ([run[kept] for run in side] for side in stratum.runs)
        runs = (base, head) if kept.any() else None
    found = moved_together(stratum.test.shift[rest], layout, None if stratum.in_turns else runs)
    if found is None:
        return []
    relevant = float(np.log1p(settings.threshold))
    # In turns, the machine does the same to both sides: what moves every point is the code.
    can_tell = found.over_runs or stratum.in_turns
    # Two-sided p; a quarter of the budget is for slower.
    slower = can_tell and found.p <= settings.false_alarms / 2
    return [
        TogetherVerdict(
            device=stratum.device,
            preset=stratum.preset,
            ratio=float(np.exp(found.shift)),
            p=found.p,
            slower=slower and found.shift >= relevant,
            cannot_tell=not can_tell and is_together(found, relevant),
        )
    ]
