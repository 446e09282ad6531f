"""How often the gate is wrong, and what it sees, where base and head took turns (`k3bench ab`).

A comparison has the recorded points. What one process measured stays together, both sides of all
its implementations, and comes from one recorded run of it (or several, in a comparison of several
runs), drawn for every process anew. Base stays base: if going first were an advantage, it would
show. A slow-down multiplies head's samples.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from k3bench.gate.decide import judge_measured
from k3bench.gate.distributions import wilson
from k3bench.gate.levels import Measured
from k3bench.gate.recorded_turns import TurnsRecording, load_turns
from k3bench.gate.settings import Settings

SLOW_DOWN = 0.05
# Spread of the samples within a run: as recorded, and scaled to what the other figures are at.
NOISES = (None, 0.03)
RUNS = (1, 2, 3, 5)
_CHUNK = 50


@dataclass(frozen=True)
class TurnsScenario:
    """``runs`` of `k3bench ab`; ``noise``: of the samples, None as recorded; what got slower."""

    runs: int
    noise: float | None
    slow: str  # "nothing", "one point", "everything"

    def comparisons(self, runs: int) -> int:
        """All ``runs`` for false alarms, a fifth for what is seen."""
        return runs if self.slow == "nothing" else max(1, runs // 5)


@dataclass(frozen=True)
class TurnsOutcome:
    """Shares of a scenario's comparisons, as ``simulate.Outcome`` has them."""

    runs: int
    samples_a_run: int
    noise: float | None
    slow: str
    slow_down: float
    points: int
    comparisons: int
    fails: float
    fails_low: float
    fails_high: float
    cannot_judge: float
    named: float | None


@dataclass(frozen=True)
class TurnsCounts:
    """Of some comparisons: how many there were, failed, could not be judged; points named."""

    comparisons: int
    fails: int
    cannot_judge: int
    named: float


Task = tuple[TurnsScenario, tuple[int, ...], int]


def turns_scenarios() -> list[TurnsScenario]:
    """Without a change, with one point slower, and with everything slower."""
    return [
        TurnsScenario(runs, noise, slow)
        for slow in ("nothing", "everything", "one point")
        for runs in RUNS
        for noise in NOISES
    ]


def turns_tasks(seed: int, runs: int) -> list[Task]:
    """Every chunk of comparisons with the key of its random numbers: the same on any machine."""
    return [
        (scenario, (seed, index, start), min(_CHUNK, scenario.comparisons(runs) - start))
        for index, scenario in enumerate(turns_scenarios())
        for start in range(0, scenario.comparisons(runs), _CHUNK)
    ]


def turns_steps(runs: int) -> int:
    """How many tasks there are."""
    return sum(math.ceil(one.comparisons(runs) / _CHUNK) for one in turns_scenarios())


def turns_outcomes(
    tasks: Sequence[Task], counted: Iterable[TurnsCounts], progress: Callable[[], None]
) -> list[TurnsOutcome]:
    """One outcome a scenario, of what ``count_turns`` made of every task, in their order."""
    found: dict[TurnsScenario, list[TurnsCounts]] = {one: [] for one in turns_scenarios()}
    for (scenario, _, _), counts in zip(tasks, counted, strict=True):
        found[scenario].append(counts)
        progress()
    return [_outcome(scenario, counts) for scenario, counts in found.items()]


def count_turns(scenario: TurnsScenario, key: tuple[int, ...], size: int) -> TurnsCounts:
    """``size`` comparisons of a scenario."""
    random = np.random.default_rng(key)
    fails, cannot_judge, named = 0, 0, 0.0
    for _ in range(size):
        items, slowed = draw_turns(_recording(), scenario, random)
        verdicts = judge_measured(items, Settings())
        fails += verdicts.fails
        cannot_judge += verdicts.cannot_judge and not verdicts.fails
        slower = np.array([verdict.verdict == "slower" for verdict in verdicts.points])
        named += float(slower[slowed].mean()) if slowed.any() else 0.0
    return TurnsCounts(size, fails, cannot_judge, named)


def draw_turns(
    recording: TurnsRecording, scenario: TurnsScenario, random: np.random.Generator
) -> tuple[list[Measured], NDArray[np.bool_]]:
    """A comparison's points, and which of them got slower."""
    logs = recording.residuals
    if scenario.noise is not None:
        logs = logs * (scenario.noise / recording.spread)[None, :, None, None]
    drawn = np.empty((scenario.runs, *logs.shape[1:]))
    for members in recording.processes:
        some = random.choice(len(logs), size=scenario.runs, replace=False)
        drawn[:, members] = logs[some[:, None], members]
    samples = np.exp(drawn)
    count = logs.shape[1]
    slowed = np.full(count, scenario.slow == "everything")
    if scenario.slow == "one point":
        slowed[random.integers(count)] = True
    samples[:, slowed, 1] *= 1 + SLOW_DOWN
    items = [
        Measured(point, list(samples[:, at, 0]), list(samples[:, at, 1]), in_turns=True)
        for at, point in enumerate(recording.points)
    ]
    return items, slowed


@cache
def _recording() -> TurnsRecording:
    return load_turns()


def _outcome(scenario: TurnsScenario, counted: Sequence[TurnsCounts]) -> TurnsOutcome:
    comparisons = sum(one.comparisons for one in counted)
    fails = sum(one.fails for one in counted)
    low, high = wilson(fails, comparisons)
    named = sum(one.named for one in counted) / comparisons
    _, points, _, samples = _recording().residuals.shape
    return TurnsOutcome(
        runs=scenario.runs,
        samples_a_run=samples,
        noise=scenario.noise,
        slow=scenario.slow,
        slow_down=0.0 if scenario.slow == "nothing" else SLOW_DOWN,
        points=points,
        comparisons=comparisons,
        fails=fails / comparisons,
        fails_low=low,
        fails_high=high,
        cannot_judge=sum(one.cannot_judge for one in counted) / comparisons,
        named=None if scenario.slow == "nothing" else named,
    )


def turns_described() -> dict[str, object]:
    """Where the recording is from, and how noisy it is."""
    recording = _recording()
    between = recording.between_sides
    return {
        **{k: v for k, v in recording.provenance.items() if k != "groups"},
        "spread_within_runs": round(float(np.median(recording.spread)), 4),
        "between_sides": round(float(np.median(np.abs(between))), 4),
        "between_sides_largest": round(float(np.abs(between).max()), 4),
    }


def turns_to_lines(outcomes: Sequence[TurnsOutcome]) -> list[str]:
    """A Markdown table, as docs/gate.md shows it."""
    lines = [
        "| noise | runs x samples | slower by 5% | gate fails | cannot judge | points named |",
        "|---|---|---|---:|---:|---:|",
    ]
    for one in outcomes:
        noise = "as recorded" if one.noise is None else f"{one.noise:.0%}"
        named = "-" if one.named is None else f"{one.named:.1%}"
        lines.append(
            f"| {noise} | {one.runs} x {one.samples_a_run} | {one.slow} "
            f"| {one.fails:.1%} ({one.fails_low:.1%} to {one.fails_high:.1%}) "
            f"| {one.cannot_judge:.1%} | {named} |"
        )
    return lines
