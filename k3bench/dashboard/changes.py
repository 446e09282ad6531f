"""Change points of every series, as ``k3bench gate history`` finds them."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from k3bench.canonical import canonical_json
from k3bench.dashboard.rows import Series
from k3bench.gate.history import COMMITS_NEEDED, Change, Value, find_changes, select_series
from k3bench.gate.select import Point, further_clock
from k3bench.publishing.steps import solved_together

# The smallest step worth a mark, relative; the default of `k3bench gate history`.
THRESHOLD = 0.01
# Points that a worker takes at a time, and below which starting workers costs more than it saves:
# steps of many series are found faster together.
_POINTS_A_TASK = 20_000

_Key = tuple[str, str, str | None, str, str, str | None]


@dataclass(frozen=True)
class ChangePoint:
    """A level that changed at a row: ``metric`` is ``time_s`` or a compiled figure's name."""

    commit: str
    after: str
    metric: str
    ratio: float | None
    worse: bool
    other_environment: bool


class ChangeFinder:
    """Looks for change points, one benchmark at a time, on all cores."""

    def __init__(self, commits: Sequence[str], pool: ProcessPoolExecutor | None) -> None:
        self._commits = list(commits)
        self._pool = pool

    def of_benchmark(self, session: Session, benchmark: str) -> Mapping[_Key, list[ChangePoint]]:
        """Change points of the benchmark's measured and compiled series, by ``key_of``.

        A series that is too short to have any is left out, and so are other kinds.
        """
        series = {
            point: values
            for point, values in select_series(session, self._commits, [benchmark]).items()
            if len(values) >= (2 if point.kind == "compiled" else COMMITS_NEEDED)
        }
        found: dict[_Key, list[ChangePoint]] = {_key(point): [] for point in series}
        for change in self._changes(series):
            found[_key(change.point)].append(
                ChangePoint(
                    change.after, change.before, change.metric, change.ratio, change.worse,
                    change.other_environment,
                )
            )  # fmt: skip
        return found

    def _changes(self, series: Mapping[Point, list[Value]]) -> list[Change]:
        tasks = list(_tasks(series))
        if self._pool is None or len(tasks) < 2:
            return _found(series, self._commits)
        done = [self._pool.submit(_found, task, self._commits) for task in tasks]
        return [change for future in done for change in future.result()]


@contextmanager
def change_finder(commits: Sequence[str]) -> Iterator[ChangeFinder]:
    """A finder and its worker processes, which start when there is enough to do."""
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers) as pool:
        yield ChangeFinder(commits, pool if workers > 1 else None)


def key_of(series: Series) -> _Key:
    """What the gate tells series of one benchmark apart by."""
    view = series.view
    parameters = canonical_json(series.parameters)
    clock = further_clock(series.column("figures")[-1])
    return view.kind, view.device, view.preset, parameters, series.implementation, clock


def change_rows(
    document: Mapping[str, Any], changes: Sequence[ChangePoint] | None, place: Mapping[str, int]
) -> list[dict[str, Any]] | None:
    """Change points by the row of a series document that they begin at; None stays None."""
    if changes is None:
        return None
    rows = {commit: row for row, commit in enumerate(document["columns"]["commit"])}
    return [
        {
            "row": rows[place[change.commit]],
            "after": place[change.after],
            "metric": change.metric,
            "ratio": change.ratio if change.ratio != math.inf else None,
            "worse": change.worse,
            "other_environment": change.other_environment,
        }
        for change in changes
        if place[change.commit] in rows
    ]


def _found(series: Mapping[Point, Sequence[Value]], commits: Sequence[str]) -> list[Change]:
    return solved_together(lambda: list(find_changes(series, commits, THRESHOLD).changes))


def _tasks(series: Mapping[Point, list[Value]]) -> Iterator[dict[Point, list[Value]]]:
    task: dict[Point, list[Value]] = {}
    points = 0
    for point, values in series.items():
        task[point] = values
        points += len(values)
        if points >= _POINTS_A_TASK:
            yield task
            task, points = {}, 0
    if task:
        yield task


def _key(point: Point) -> _Key:
    named = (point.kind, point.device, point.preset, point.parameters, point.implementation)
    return (*named, point.further_clock)
