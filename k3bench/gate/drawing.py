"""Comparisons made of recorded noise.

A comparison has 168 points: 84 groups of two implementations that took turns. What one process
recorded stays together (its samples in order, both implementations). A simulated run is filled with
the blocks of up to nine consecutive recorded runs (half of them where there are fewer than 18, used
again once all were used): drift over minutes, bursts and whatever moves neighbours together come
along. Single runs follow one another; several are taken by turns, as docs/gate.md says to measure.
Nothing differs between base and head; a slow-down then multiplies samples of head.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from k3bench.gate.levels import Measured, log_medians
from k3bench.gate.recorded import Recording
from k3bench.gate.select import Array, Point

GROUPS, IMPLEMENTATIONS = 84, ("first", "second")
POINTS = GROUPS * len(IMPLEMENTATIONS)
SLOW_DOWN = 0.03
WINDOW = 9


@dataclass(frozen=True)
class Scenario:
    """``noise``: spread of the samples within a run, None as recorded. ``slow``: what got slower.

    Whatever lies between runs is scaled along with the spread within them.
    """

    recording: int
    design: tuple[int, int]
    noise: float | None
    slow: str  # "nothing", "one point", "one implementation", "everything"

    def comparisons(self, runs: int) -> int:
        """All ``runs`` for the figures that are promised, a fifth for those beside them."""
        promised = self.noise is None or self.slow == "one implementation"
        return runs if promised else max(1, runs // 5)


def slowed_points(slow: str) -> NDArray[np.bool_]:
    """Which of the 168 points get slower, in the order group by group."""
    index = np.arange(POINTS)
    masks: dict[str, NDArray[np.bool_]] = {
        "nothing": np.zeros(POINTS, dtype=bool),
        "one point": index == 1,
        "one implementation": index % len(IMPLEMENTATIONS) == 1,
        "everything": np.ones(POINTS, dtype=bool),
    }
    return masks[slow]


def draw(
    recording: Recording, scenario: Scenario, random: np.random.Generator
) -> tuple[Array, Array]:
    """Samples of base and head: runs x points x samples, relative to the point's level."""
    runs, samples = scenario.design
    logs = recording.residuals
    if scenario.noise is not None:
        logs = logs * (scenario.noise / recording.spread)[None, :, :, None]
    base_runs, head_runs = _windows(len(logs), runs, random)
    base = np.exp(np.array([_run(logs[some], samples, random) for some in base_runs]))
    head = np.exp(np.array([_run(logs[some], samples, random) for some in head_runs]))
    head[:, slowed_points(scenario.slow)] *= 1 + SLOW_DOWN
    return base, head


def _windows(
    count: int, runs: int, random: np.random.Generator
) -> tuple[list[list[int]], list[list[int]]]:
    """Which recorded runs each simulated run of base and of head is filled from.

    One run a side: two windows, one after the other. Several: base and head by turns (A B B A),
    every pair from the even and the odd recorded runs of one window.
    """
    window = min(WINDOW, count // 2)
    if runs == 1:
        first = int(random.integers(count))
        sides = [
            [(start + at) % count for at in range(window)] for start in (first, first + window)
        ]
        return [sides[0]], [sides[1]]
    base, head = [], []
    for pair in range(runs):
        first = int(random.integers(count - 2 * window + 1))
        turns = [list(range(first + at, first + 2 * window, 2)) for at in (0, 1)]
        base.append(turns[pair % 2])
        head.append(turns[1 - pair % 2])
    return base, head


def _run(logs: Array, samples: int, random: np.random.Generator) -> Array:
    """One simulated run: points x samples, from the blocks of some recorded runs."""
    count, groups = logs.shape[:2]
    blocks = [(run, group) for run in range(count) for group in range(groups)]
    rounds = math.ceil(GROUPS / len(blocks))
    chosen = np.concatenate([random.permutation(len(blocks)) for _ in range(rounds)])[:GROUPS]
    begin = random.integers(logs.shape[3] - samples + 1, size=GROUPS)
    picked = [
        logs[blocks[block]][:, offset : offset + samples]
        for block, offset in zip(chosen, begin, strict=True)
    ]
    return np.concatenate(picked)


@cache
def _points() -> tuple[Point, ...]:
    return tuple(
        Point("measured", "cpu", "ladder", "simulated.Grid.time", f'{{"group":{group}}}', name)
        for group in range(GROUPS)
        for name in IMPLEMENTATIONS
    )


def measured(base: Array, head: Array) -> list[Measured]:
    """What the gate is given of samples: runs x points x samples."""
    levels = [
        log_medians(side.reshape(-1, side.shape[2])).reshape(side.shape[:2])
        for side in (base, head)
    ]
    repeated = len(base) > 1
    return [
        Measured(
            point,
            list(base[:, index]),
            list(head[:, index]),
            [levels[0][:, index].tolist(), levels[1][:, index].tolist()] if repeated else (),
        )
        for index, point in enumerate(_points())
    ]
