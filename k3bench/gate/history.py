"""Where in a range of commits a series changed, and between which two commits.

Steps are found by asv's own detector (an L1 Potts fit whose penalty is chosen per series): it is a
dependency already, its steps are those that asv's published pages show, it is robust against
single outliers and takes weights. ruptures would be another dependency for a second opinion.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from asv import step_detect
from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from k3bench.gate.exact import changed_figures, decided_by, is_worse
from k3bench.gate.select import Point, point_of
from k3bench.ledger.models import Manifest, Result

# A level that one commit alone has may be an outlier: it is shown, but does not fail.
_SETTLED = 2
# Fewer measured commits are no history.
COMMITS_NEEDED = 5


@dataclass(frozen=True, slots=True)
class Value:
    """A point at a commit: the median of its runs' medians, or figures; where it was made."""

    commit: str
    median_s: float | None
    figures: str | None
    spread: float | None
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A step of one series. It happened after ``before`` and no later than ``after``.

    ``commits`` counts those in between, ``after`` included: 1 where it is known exactly. ``ratio``
    is the new level over the old one, None where that was 0. ``settled``: the new level held for
    at least two measured commits. ``lasting``: the series still is on the side it went to.
    """

    point: Point
    metric: str
    before: str
    after: str
    commits: int
    old: float
    new: float
    ratio: float | None
    worse: bool
    settled: bool
    lasting: bool
    other_environment: bool


@dataclass(frozen=True)
class History:
    """All changes over the commits, and how many series there were to look at."""

    commits: int
    series: int
    too_short: int
    changes: Sequence[Change]

    @property
    def exit_code(self) -> int:
        """1: something got worse and still is. 2: no series was long enough. 0 else."""
        if any(
            change.worse and change.lasting and change.settled and not change.other_environment
            for change in self.changes
        ):
            return 1
        return 2 if self.series == self.too_short else 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "exit_code": self.exit_code,
            "commits": self.commits,
            "series": self.series,
            "too_short": self.too_short,
            "changes": [change_to_json(change) for change in self.changes],
        }


def change_to_json(change: Change) -> dict[str, Any]:
    """Plain JSON types."""
    document: dict[str, Any] = {
        name: getattr(change, name) for name in Change.__slots__ if name != "point"
    }
    return {
        "kind": change.point.kind,
        "device": change.point.device,
        "preset": change.point.preset,
        "benchmark": change.point.benchmark,
        "parameters": change.point.parameters,
        "implementation": change.point.implementation,
        "further_clock": change.point.further_clock,
        "range": f"{change.before}..{change.after}",
        **document,
    }


def select_series(
    session: Session, commits: Sequence[str], benchmarks: Sequence[str] | None
) -> dict[Point, list[Value]]:
    """Every point's values in the order of ``commits``; wrong and failed results are left out."""
    order = {commit: position for position, commit in enumerate(commits)}
    query = (
        select(
            Result.kind,
            Result.device,
            Result.preset,
            Result.benchmark,
            type_coerce(Result.parameters, Text),
            Result.implementation,
            Result.commit,
            Result.median_s,
            Result.p10_s,
            Result.p90_s,
            Result.n,
            type_coerce(Result.figures, Text),
            Manifest.fingerprint,
        )
        .outerjoin(Manifest, Manifest.id == Result.manifest_id)
        .where(
            Result.kind.in_(("measured", "compiled")),
            Result.correctness_status.not_in(("wrong", "failed")),
            Result.commit.is_not(None),
        )
        .order_by(Result.started_at, Result.id)
    )
    if benchmarks is not None:
        query = query.where(Result.benchmark.in_(benchmarks))
    gathered: dict[Point, dict[str, list[Any]]] = {}
    for values in session.execute(query):
        row: Any = values
        commit = row[6]
        if commit in order:
            point = point_of(row, row[11])
            gathered.setdefault(point, {}).setdefault(commit, []).append(row)
    return {
        point: [
            _value(commit, rows)
            for commit, rows in sorted(by_commit.items(), key=lambda item: order[item[0]])
        ]
        for point, by_commit in gathered.items()
    }


def _value(commit: str, rows: Sequence[Any]) -> Value:
    newest = rows[-1]
    medians = sorted(row[7] for row in rows if row[7] is not None)
    median = medians[len(medians) // 2] if medians else None
    _, p10, p90, n = newest[7:11]
    spread = None
    if p10 and p90 and n:
        # Of the median's logarithm, from the deciles, as if samples were normal and independent.
        spread = math.log(p90 / p10) / 2.563 * 1.2533 / math.sqrt(n * len(medians))
    return Value(commit, median, newest[11], spread, newest[12])


def find_changes(
    series: Mapping[Point, Sequence[Value]],
    commits: Sequence[str],
    threshold: float,
    progress: Callable[[], None] = lambda: None,
) -> History:
    """Changes of every series that are at least ``threshold`` (relative), the newest first."""
    order = {commit: position for position, commit in enumerate(commits)}
    found: list[Change] = []
    too_short = 0
    for point, values in series.items():
        if point.kind == "compiled":
            found += _exact_changes(point, values, order)
            too_short += len(values) < 2
        elif len(values) < COMMITS_NEEDED:
            too_short += 1
        else:
            found += _steps(point, values, order, threshold)
        progress()
    found.sort(key=lambda change: (-order[change.after], -abs(math.log(change.ratio or 1.0))))
    return History(len(commits), len(series), too_short, found)


def _steps(
    point: Point, values: Sequence[Value], order: Mapping[str, int], threshold: float
) -> list[Change]:
    timed = [value for value in values if value.median_s is not None]
    levels = [math.log(value.median_s or 1.0) for value in timed]
    spreads = [value.spread for value in timed]
    weights = [1 / spread if spread else None for spread in spreads]
    usable = any(weight is not None for weight in weights)
    steps = step_detect.detect_steps(levels, weights if usable else None)
    last = steps[-1][2] if steps else 0.0
    found = []
    for old, new in pairwise(steps):
        size = new[2] - old[2]
        if abs(size) < math.log1p(threshold):
            continue
        before, after = timed[old[1] - 1], timed[new[0]]
        found.append(
            Change(
                point=point,
                metric="time_s",
                before=before.commit,
                after=after.commit,
                commits=order[after.commit] - order[before.commit],
                old=math.exp(old[2]),
                new=math.exp(new[2]),
                ratio=math.exp(size),
                worse=size > 0,
                settled=new[1] - new[0] >= _SETTLED,
                lasting=(last - old[2]) * size > 0 and abs(last - old[2]) >= math.log1p(threshold),
                other_environment=before.fingerprint != after.fingerprint,
            )
        )
    return found


def _exact_changes(point: Point, values: Sequence[Value], order: Mapping[str, int]) -> list[Change]:
    found = []
    for before, after in pairwise(values):
        for name, (old, new) in changed_figures(before.figures, after.figures).items():
            if not isinstance(old, (int, float)) or not isinstance(new, (int, float)):
                continue
            worse = is_worse(name, float(old), float(new))
            if worse is None or decided_by(name, before.figures, after.figures) is not None:
                continue
            final = changed_figures(before.figures, values[-1].figures).get(name, (old, old))[1]
            lasting = isinstance(final, (int, float)) and bool(
                is_worse(name, float(old), float(final)) == worse and final != old
            )
            found.append(
                Change(
                    point=point,
                    metric=name,
                    before=before.commit,
                    after=after.commit,
                    commits=order[after.commit] - order[before.commit],
                    old=float(old),
                    new=float(new),
                    ratio=float(new) / float(old) if old else None,
                    worse=worse,
                    settled=True,
                    lasting=lasting,
                    other_environment=False,
                )
            )
    return found
