"""How often the gate is wrong, and what it sees, on recorded noise; asv on the same samples."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from asv.commands.compare import _is_result_better
from asv_runner.statistics import compute_stats
from numpy.typing import NDArray

from k3bench.gate.decide import judge_measured
from k3bench.gate.distributions import wilson
from k3bench.gate.drawing import POINTS, WINDOW, Scenario, draw, measured, slowed_points
from k3bench.gate.recorded import Recording, load_recordings
from k3bench.gate.select import Array
from k3bench.gate.settings import Settings
from k3bench.gate.simulate_turns import (
    TurnsOutcome,
    count_turns,
    turns_described,
    turns_outcomes,
    turns_steps,
    turns_tasks,
    turns_to_lines,
)

SAMPLES = 30
NOISE = 0.03
PROMISED_FALSE_ALARMS, PROMISED_POWER = 0.01, 0.95

# asv's own defaults of `compare` and `continuous`; and a factor that could see 3%.
_ASV_FACTORS = (1.1, 1.02)
# A twentieth of the comparisons also goes through asv: its rank test is plain Python.
_ASV_EVERY = 20
_CHUNK = 25

# Runs a side and samples a run; always 30 samples in all.
DESIGNS = ((1, 30), (5, 6))


@dataclass(frozen=True)
class Outcome:
    """Shares of a scenario's comparisons.

    ``fails``, ``cannot_judge``: the gate's exit codes 1 and 2. ``named``: of the points that got
    slower, those called slower. ``asv_fails`` and ``asv_named`` by factor: a comparison in which
    asv calls at least one point worse (what ``asv continuous`` exits with 1 for), and its share of
    the slowed points.
    """

    recording: str
    runs_a_side: int
    samples_a_run: int
    noise: float | None
    slow: str
    comparisons: int
    fails: float
    fails_low: float
    fails_high: float
    cannot_judge: float
    named: float | None
    asv_comparisons: int
    asv_fails: dict[str, float]
    asv_named: dict[str, float | None]


@dataclass(frozen=True)
class Figures:
    """All outcomes; the headline figures are the worst of their scenarios.

    ``outcomes`` are of runs apart, ``in_turns`` of runs in turns (`k3bench ab`).
    """

    seed: int
    runs: int
    outcomes: Sequence[Outcome]
    recordings: Sequence[dict[str, Any]]
    in_turns: Sequence[TurnsOutcome]

    @property
    def false_alarm_rate(self) -> float:
        """Of 168-point comparisons without a change: the worst scenario."""
        return max(one.fails for one in self._without_change())

    @property
    def power_3pct(self) -> float:
        """Of comparisons where one implementation slowed by 3%, at 3% noise, 30 samples a side.

        As docs/gate.md says to measure: the samples spread over several runs.
        """
        return min(one.fails for one in self._headline())

    @property
    def power_3pct_single_runs(self) -> float:
        """The same where all 30 samples of a side are of one run (the worst noise again)."""
        return min(one.fails for one in self._slowed() if one.runs_a_side == 1)

    @property
    def false_alarm_rate_in_turns(self) -> float:
        """Of comparisons in turns without a change: the worst scenario."""
        return max(one.fails for one in self.in_turns if one.slow == "nothing")

    @property
    def power_5pct_in_turns(self) -> float:
        """Of comparisons of one run in turns where everything slowed by 5%: the worse noise."""
        slowed = [one for one in self.in_turns if one.slow == "everything"]
        return min(one.fails for one in slowed if one.runs == 1)

    @property
    def as_promised(self) -> bool:
        """Whether the rates agree with docs/gate.md, as far as so many comparisons can tell.

        Of runs in turns no power is promised: one recording of some points is too few for that.
        """
        still = [one.fails_low for one in self._without_change()]
        still += [one.fails_low for one in self.in_turns if one.slow == "nothing"]
        return max(still) <= PROMISED_FALSE_ALARMS and all(
            one.fails_high >= PROMISED_POWER for one in self._headline()
        )

    def _without_change(self) -> list[Outcome]:
        return [one for one in self.outcomes if one.slow == "nothing"]

    def _headline(self) -> list[Outcome]:
        return [one for one in self._slowed() if one.runs_a_side > 1]

    def _slowed(self) -> list[Outcome]:
        return [one for one in self.outcomes if one.slow == "one implementation"]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "false_alarm_rate": self.false_alarm_rate,
            "power_3pct": self.power_3pct,
            "power_3pct_single_runs": self.power_3pct_single_runs,
            "false_alarm_rate_in_turns": self.false_alarm_rate_in_turns,
            "power_5pct_in_turns": self.power_5pct_in_turns,
            "runs": self.runs,
            "seed": self.seed,
            "points": POINTS,
            "samples": SAMPLES,
            "as_promised": self.as_promised,
            "recordings": list(self.recordings),
            "scenarios": [asdict(outcome) for outcome in self.outcomes],
            "in_turns": {
                "recording": turns_described(),
                "scenarios": [asdict(outcome) for outcome in self.in_turns],
            },
        }


@cache
def _recordings() -> tuple[Recording, ...]:
    return (*load_recordings(), _independent())


def _independent() -> Recording:
    """What no machine does, for comparison: normal noise, the same in every run."""
    logs = np.random.default_rng(0).standard_normal((2 * WINDOW, 10, 2, SAMPLES))
    return Recording("independent normal (not recorded)", {}, logs)


def scenarios() -> list[Scenario]:
    """Without a change on every recording as it is and at 3%; the slow-downs at 3%.

    Last, single runs under independent noise: what thirty samples could tell at best.
    """
    count = len(_recordings()) - 1
    found = [
        Scenario(recording, design, noise, "nothing")
        for recording in range(count)
        for design in DESIGNS
        for noise in (None, NOISE)
    ]
    return (
        found
        + [
            Scenario(0, design, NOISE, slow)
            for slow in ("one implementation", "everything", "one point")
            for design in DESIGNS
        ]
        + [
            Scenario(count, DESIGNS[0], NOISE, slow)
            for slow in ("nothing", "one implementation", "one point")
        ]
    )


def steps_of(runs: int) -> int:
    """How often ``simulate`` reports progress."""
    apart = sum(math.ceil(scenario.comparisons(runs) / _CHUNK) for scenario in scenarios())
    return apart + turns_steps(runs)


def simulate(
    seed: int, runs: int, progress: Callable[[], None] = lambda: None, workers: int | None = None
) -> Figures:
    """``runs`` comparisons a promised figure, fewer for those beside it.

    The same seed gives the same figures, whatever ``workers`` (default: all cores) there are.
    """
    plan = scenarios()
    tasks = [
        (scenario, (seed, index, start), min(_CHUNK, scenario.comparisons(runs) - start))
        for index, scenario in enumerate(plan)
        for start in range(0, scenario.comparisons(runs), _CHUNK)
    ]
    turns = turns_tasks(seed, runs)
    counted: list[_Counts] = []
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    with nullcontext() if workers == 1 else ProcessPoolExecutor(workers) as pool:
        in_order: Callable[..., Iterable[Any]] = map if pool is None else pool.map
        for counts in in_order(_chunk, *zip(*tasks, strict=True)):
            counted.append(counts)
            progress()
        in_turns = turns_outcomes(turns, in_order(count_turns, *zip(*turns, strict=True)), progress)
    outcomes = [
        _outcome(
            scenario,
            [counts for counts, task in zip(counted, tasks, strict=True) if task[1][1] == index],
        )
        for index, scenario in enumerate(plan)
    ]
    described = [
        {
            "name": recording.name,
            **{k: v for k, v in recording.provenance.items() if k != "groups"},
            "spread_within_runs": round(float(np.median(recording.spread)), 4),
            "spread_between_runs": round(float(np.median(recording.between_runs)), 4),
        }
        for recording in _recordings()[:-1]
    ]
    return Figures(seed, runs, outcomes, described, in_turns)


@dataclass
class _Counts:
    comparisons: int = 0
    fails: int = 0
    cannot_judge: int = 0
    named: float = 0.0
    asv: int = 0
    asv_fails: tuple[int, ...] = (0,) * len(_ASV_FACTORS)
    asv_named: tuple[float, ...] = (0.0,) * len(_ASV_FACTORS)


def _chunk(scenario: Scenario, key: tuple[int, int, int], size: int) -> _Counts:
    random = np.random.default_rng(key)
    recording = _recordings()[scenario.recording]
    counts = _Counts()
    slowed = slowed_points(scenario.slow)
    for number in range(size):
        base, head = draw(recording, scenario, random)
        verdicts = judge_measured(measured(base, head), Settings())
        counts.comparisons += 1
        counts.fails += verdicts.fails
        counts.cannot_judge += verdicts.cannot_judge and not verdicts.fails
        slow = np.array([verdict.verdict == "slower" for verdict in verdicts.points])
        counts.named += float(slow[slowed].mean()) if slowed.any() else 0.0
        if number % _ASV_EVERY == 0:
            counts.asv += 1
            worse = asv_worse(base, head)
            counts.asv_fails = tuple(
                before + bool(found.any())
                for before, found in zip(counts.asv_fails, worse, strict=True)
            )
            counts.asv_named = tuple(
                before + (float(found[slowed].mean()) if slowed.any() else 0.0)
                for before, found in zip(counts.asv_named, worse, strict=True)
            )
    return counts


def asv_worse(base: Array, head: Array) -> list[NDArray[np.bool_]]:
    """Points that asv calls worse, by factor; a side's samples are one list, as asv keeps them."""
    worse: list[list[bool]] = [[] for _ in _ASV_FACTORS]
    for index in range(base.shape[1]):
        sides = []
        for side in (base, head):
            samples = side[:, index].ravel().tolist()
            value, stats = compute_stats(samples, 1)
            sides.append((value, (stats, samples)))
        (before, old), (after, new) = sides
        for found, factor in zip(worse, _ASV_FACTORS, strict=True):
            found.append(bool(_is_result_better(before, after, old, new, factor)))
    return [np.array(found) for found in worse]


def _outcome(scenario: Scenario, counted: Sequence[_Counts]) -> Outcome:
    comparisons = sum(one.comparisons for one in counted)
    fails = sum(one.fails for one in counted)
    low, high = wilson(fails, comparisons)
    asv = sum(one.asv for one in counted)
    slows = scenario.slow != "nothing"
    names = [f"{factor:g}" for factor in _ASV_FACTORS]
    return Outcome(
        recording=_recordings()[scenario.recording].name,
        runs_a_side=scenario.design[0],
        samples_a_run=scenario.design[1],
        noise=scenario.noise,
        slow=scenario.slow,
        comparisons=comparisons,
        fails=fails / comparisons,
        fails_low=low,
        fails_high=high,
        cannot_judge=sum(one.cannot_judge for one in counted) / comparisons,
        named=sum(one.named for one in counted) / comparisons if slows else None,
        asv_comparisons=asv,
        asv_fails={
            name: sum(one.asv_fails[index] for one in counted) / asv
            for index, name in enumerate(names)
        },
        asv_named={
            name: sum(one.asv_named[index] for one in counted) / asv if slows else None
            for index, name in enumerate(names)
        },
    )


def to_lines(figures: Figures) -> list[str]:
    """The figures as Markdown tables, as docs/gate.md shows them."""
    single = figures.power_3pct_single_runs
    lines = [
        f"false alarms {figures.false_alarm_rate:.2%}, power {figures.power_3pct:.1%} "
        f"({single:.1%} in single runs); seed {figures.seed}, {figures.runs} comparisons of "
        f"{POINTS} points for each promised figure; in turns, false alarms "
        f"{figures.false_alarm_rate_in_turns:.2%}, power {figures.power_5pct_in_turns:.1%} (5%)",
        "",
        "| noise | runs x samples | slower by 3% | gate fails | cannot judge | points named "
        "| asv 1.1 fails | asv 1.02 fails | asv 1.02 names |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in figures.outcomes:
        noise = "as recorded" if one.noise is None else f"{one.noise:.0%}"
        lines.append(
            f"| {one.recording}, {noise} | {one.runs_a_side} x {one.samples_a_run} | {one.slow} "
            f"| {one.fails:.1%} ({one.fails_low:.1%} to {one.fails_high:.1%}) "
            f"| {one.cannot_judge:.1%} | {_share(one.named)} "
            f"| {_share(one.asv_fails['1.1'])} | {_share(one.asv_fails['1.02'])} "
            f"| {_share(one.asv_named['1.02'])} |"
        )
    return [*lines, "", *turns_to_lines(figures.in_turns)]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
