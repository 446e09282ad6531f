"""What the ledger says to each of asv's questions: a value, a failure, or nothing at all.

A measured record answers its own benchmark with samples. A compiled record answers every
``track_<figure>`` of its class from its figures, and a modelled one ``track_modelled_ms`` or
``_us``: asv tracks them one by one, the ledger keeps them together.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from k3bench.asv_type import IMPLEMENTATION
from k3bench.export.suite import Benchmark, positions
from k3bench.ledger.models import Result, Run, Samples

_TRACKED = "track_"
# How the command of a run begins that measured two commits in turns.
_COMPARISON = "k3bench ab"
# A figure of records that a second clock took beside the one that asv was given.
_FURTHER_CLOCK = "further_clock"
# The scale from seconds of a modelled time, by the end of its benchmark's name.
_MODELLED = {"modelled_ms": 1e3, "modelled_us": 1e6}


@dataclass(frozen=True)
class Row:
    """A result as far as asv has a place for it. Times in seconds."""

    benchmark: str
    parameters: Mapping[str, Any]
    implementation: str
    kind: str
    status: str
    median_s: float | None
    figures: Mapping[str, Any] | None
    started_at: datetime
    manifest_id: str
    commit: str
    samples_s: tuple[float, ...] | None


@dataclass(frozen=True)
class Answer:
    """``value`` None: failed or wrong. ``samples_s`` None: asv keeps none of this kind."""

    value: float | None
    samples_s: tuple[float, ...] | None
    started_at: datetime


# Benchmark name to position of the parameters to every answer the ledger has, oldest first.
Answers = dict[str, dict[int, list[Answer]]]


def select_rows(session: Session, commit: str | None) -> Iterator[Row]:
    """Every result that asv could have, commit by commit, oldest first within each.

    Published figures are nobody's commit, one sample of ``asv run --quick`` is no result, and asv
    never asked for the points of ``k3bench ab``.
    """
    conditions = [
        or_(Run.command.is_(None), Run.command.not_like(f"{_COMPARISON}%")),
        Result.kind != "published",
        Result.commit.is_not(None),
        Result.manifest_id.is_not(None),
        or_(Result.preset.is_(None), Result.preset != "quick"),
    ]
    if commit is not None:
        conditions.append(Result.commit == commit)
    query = (
        select(
            Result.benchmark,
            Result.parameters,
            Result.implementation,
            Result.kind,
            Result.correctness_status,
            Result.median_s,
            Result.figures,
            Result.started_at,
            Result.manifest_id,
            Result.commit,
            Samples.values_s,
        )
        .outerjoin(Samples, Samples.result_id == Result.id)
        .outerjoin(Run, Run.id == Result.run_id)
        .where(*conditions)
        .order_by(Result.commit, Result.started_at, Result.id)
    )
    for row in session.execute(query.execution_options(yield_per=1000)):
        yield Row(*row)


def commits_of(session: Session) -> list[str]:
    """Every commit that results name."""
    query = select(Result.commit).where(Result.commit.is_not(None)).distinct()
    return sorted(commit for commit in session.scalars(query) if commit is not None)


class Questions:
    """The suite's benchmarks, arranged so that a row finds those it answers."""

    def __init__(self, benchmarks: Mapping[str, Benchmark]) -> None:
        self.benchmarks = benchmarks
        self._positions = {name: positions(b) for name, b in benchmarks.items()}
        self._tracked: dict[str, list[str]] = {}
        for name in benchmarks:
            owner, _, method = name.rpartition(".")
            if method.startswith(_TRACKED):
                self._tracked.setdefault(owner, []).append(name)

    def answered_by(self, rows: Iterable[Row]) -> tuple[Answers, int]:
        """Answers of rows in order, and how many rows are of points the suite does not have."""
        answers: Answers = {}
        strangers = 0
        for row in rows:
            if _FURTHER_CLOCK in (row.figures or {}):
                continue
            known = False
            for name, answer in self._answers(row):
                position = self._position(name, row)
                if position is not None:
                    known = True
                    answers.setdefault(name, {}).setdefault(position, []).append(answer)
            strangers += not known
        return answers, strangers

    def _answers(self, row: Row) -> Iterator[tuple[str, Answer]]:
        right = row.status == "ok"
        if row.kind == "measured":
            if row.benchmark in self.benchmarks:
                value = row.median_s if right else None
                yield row.benchmark, Answer(value, row.samples_s if right else None, row.started_at)
            return
        owner = row.benchmark.rpartition(".")[0]
        for name in self._tracked.get(owner, ()):
            figure = name.rpartition(".")[2].removeprefix(_TRACKED)
            if (figure in _MODELLED) != (row.kind == "modelled") and right:
                continue
            yield name, Answer(_figure(row, figure) if right else None, None, row.started_at)

    def _position(self, name: str, row: Row) -> int | None:
        values = {**row.parameters, IMPLEMENTATION: row.implementation}
        names = self.benchmarks[name]["param_names"]
        if any(each not in values for each in names):
            return None
        return self._positions[name].get(tuple(repr(values[each]) for each in names))


def _figure(row: Row, figure: str) -> float | None:
    if figure in _MODELLED:
        return None if row.median_s is None else row.median_s * _MODELLED[figure]
    value = (row.figures or {}).get(figure)
    return None if value is None else float(value)
