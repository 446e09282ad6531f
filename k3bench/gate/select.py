"""What the gate reads from the ledger: the rows of a commit or of a run, point by point.

Columns come raw (parameters as their canonical text, samples as one numpy array): decoding 20,000
rows into objects would cost more than judging them.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, LargeBinary, Text, func, select, type_coerce
from sqlalchemy.orm import Session

from k3bench.gate.errors import GateError
from k3bench.ledger.models import Manifest, Result, Run, Samples

# Enough for a variance; a ledger of a thousand commits is not read for it.
_RECORDED_RUNS = 60
_RECORDED_ROWS = 200_000
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """What makes two rows answers to the same question. ``parameters`` is canonical JSON text.

    ``further_clock`` names a clock that was read beside the point's own one (graph replay, wall
    time): its records are a series of their own.
    """

    kind: str
    device: str
    preset: str | None
    benchmark: str
    parameters: str
    implementation: str
    further_clock: str | None = None

    @property
    def implementation_by_clock(self) -> str:
        """The implementation, and the further clock where it is one's record."""
        return f"{self.implementation}{f' by {self.further_clock}' if self.further_clock else ''}"

    def label(self) -> str:
        """``benchmark(name=value, ...) implementation``, for people."""
        named = json.loads(self.parameters)
        inner = ", ".join(f"{name}={value}" for name, value in sorted(named.items()))
        return f"{self.benchmark}({inner}) {self.implementation_by_clock}"


def further_clock(figures: str | None) -> str | None:
    """The further clock that a record's figures (JSON text) name, if they do."""
    if figures is None or '"further_clock"' not in figures:
        return None
    return str(json.loads(figures)["further_clock"])


def point_of(row: Sequence[Any], figures: str | None) -> Point:
    """The point of a row that begins with its six columns; ``figures`` as JSON text."""
    kind, device, preset, benchmark, parameters, implementation = row[:6]
    return Point(
        kind, device, preset, benchmark, parameters, implementation, further_clock(figures)
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One result of a point. ``samples_s`` in seconds, in the order taken; empty where none."""

    id: str
    run_id: str | None
    commit: str | None
    started_at: datetime
    clock: str | None
    median_s: float | None
    tokens_per_s: float | None
    padded_tokens: int | None
    status: str
    detail: str | None
    max_abs_error: float | None
    workload: tuple[str, str]
    manifest_id: str | None
    fingerprint: str | None
    figures: str | None
    samples_s: Array

    @property
    def in_turns_with(self) -> str | None:
        """The commit whose samples alternated with this row's (`k3bench ab`); None without."""
        if self.figures is None or '"in_turns_with"' not in self.figures:
            return None
        return str(json.loads(self.figures)["in_turns_with"])


Side = dict[Point, list[Row]]

_POINT_COLUMNS = (
    Result.kind,
    Result.device,
    Result.preset,
    Result.benchmark,
    type_coerce(Result.parameters, Text),
    Result.implementation,
)
_EMPTY: Array = np.empty(0)


def select_side(session: Session, name: str, conditions: Iterable[ColumnElement[bool]]) -> Side:
    """Rows by point, one a run (the newest), oldest first.

    ``name`` is how messages call the side. Published figures are left out: they are nobody's
    commit. Raises GateError where nothing meets the conditions.
    """
    query = (
        select(
            *_POINT_COLUMNS,
            Result.id,
            Result.run_id,
            Result.commit,
            Result.started_at,
            Result.clock,
            Result.median_s,
            Result.tokens_per_s,
            Result.padded_tokens,
            Result.correctness_status,
            Result.correctness_detail,
            Result.max_abs_error,
            Result.workload_id,
            Result.workload_sha256,
            Result.manifest_id,
            Manifest.fingerprint,
            type_coerce(Result.figures, Text),
            type_coerce(Samples.values_s, LargeBinary),
        )
        .outerjoin(Samples, Samples.result_id == Result.id)
        .outerjoin(Manifest, Manifest.id == Result.manifest_id)
        .where(Result.kind != "published", *conditions)
        .order_by(Result.started_at, Result.id)
    )
    newest: dict[Point, dict[str | None, Row]] = {}
    for values in cast(Iterable[Any], session.execute(query)):
        blob = values[-1]
        samples = _EMPTY if blob is None else np.frombuffer(blob, "<f8")
        cells = [*values[6:17], tuple(values[17:19]), *values[19:22], samples]
        row = Row(*cells)
        point = point_of(values, row.figures)
        newest.setdefault(point, {})[row.run_id] = row
    if not newest:
        raise GateError(f"{name}: the ledger has no results of it: measure it first (`asv run`)")
    return {point: list(rows.values()) for point, rows in newest.items()}


def commits_of_run(session: Session, run_id: str) -> list[str]:
    """The commits that a run holds results of, sorted: several after `k3bench ab`, or a range."""
    query = select(Result.commit).where(Result.run_id == run_id, Result.commit.is_not(None))
    return sorted(commit for commit in session.scalars(query.distinct()) if commit is not None)


def strata_of(session: Session, conditions: Iterable[ColumnElement[bool]]) -> list[str]:
    """What there is to compare under some conditions, as ``kind on device (preset)``, sorted."""
    query = (
        select(Result.kind, Result.device, Result.preset)
        .where(Result.kind != "published", *conditions)
        .distinct()
    )
    return sorted(
        f"{kind} on {device}" + (f" ({preset})" if preset else "")
        for kind, device, preset in session.execute(query)
    )


def of_commit(commit: str) -> list[ColumnElement[bool]]:
    """Condition: results of the commits whose hash starts with ``commit``."""
    return [Result.commit >= commit, Result.commit < commit + "g"]


def of_run(run_id: str) -> list[ColumnElement[bool]]:
    """Condition: results of one run."""
    return [Result.run_id == run_id]


def narrowed(
    *,
    kind: str | None = None,
    device: str | None = None,
    preset: str | None = None,
    benchmarks: Sequence[str] | None = None,
) -> list[ColumnElement[bool]]:
    """Conditions for what the user asked to judge; ``benchmarks`` are names."""
    pairs: list[tuple[Any, str | None]] = [
        (Result.kind, kind),
        (Result.device, device),
        (Result.preset, preset),
    ]
    conditions = [column == value for column, value in pairs if value is not None]
    if benchmarks is not None:
        conditions.append(Result.benchmark.in_(benchmarks))
    return conditions


def benchmark_names(session: Session) -> list[str]:
    """Every benchmark in the ledger, sorted."""
    return sorted(session.scalars(select(Result.benchmark).distinct()))


def commits_starting_with(session: Session, prefix: str) -> list[str]:
    """Full hashes of the ledger's commits that start with ``prefix``."""
    query = select(Result.commit).where(*of_commit(prefix)).distinct()
    return sorted(commit for commit in session.scalars(query) if commit is not None)


def is_run(session: Session, name: str) -> bool:
    """Whether the ledger knows a run of this id."""
    return session.get(Run, name) is not None


def repeated_medians(
    session: Session, fingerprints: set[str]
) -> dict[Point, dict[str, list[float]]]:
    """Log medians by point and commit, of commits that several recent runs measured.

    One value a run, in the given environments: what repeated runs of one commit say about the
    noise between runs.
    """
    runs = _runs_of_repeated_commits(session, fingerprints)
    if not runs:
        return {}
    query = (
        select(
            *_POINT_COLUMNS,
            Result.commit,
            Result.run_id,
            Result.median_s,
            type_coerce(Result.figures, Text),
        )
        .join(Manifest, Manifest.id == Result.manifest_id)
        .where(
            Result.run_id.in_(runs),
            Result.kind == "measured",
            Result.median_s.is_not(None),
            Manifest.fingerprint.in_(fingerprints),
        )
        .order_by(Result.started_at, Result.id)
    )
    newest: dict[Point, dict[tuple[str, str], float]] = {}
    for values in cast(Iterable[Any], session.execute(query)):
        commit, run_id, median_s, figures = values[6:]
        point = point_of(values, figures)
        newest.setdefault(point, {})[commit, run_id] = math.log(median_s)
    found: dict[Point, dict[str, list[float]]] = {}
    for point, by_run in newest.items():
        commits = found.setdefault(point, {})
        for (commit, _), value in by_run.items():
            commits.setdefault(commit, []).append(value)
    return found


def _runs_of_repeated_commits(session: Session, fingerprints: set[str]) -> list[str]:
    """Newest runs whose commit has another run among them, newest first, within the row limit."""
    here = (
        select(Result.id)
        .join(Manifest, Manifest.id == Result.manifest_id)
        .where(
            Result.run_id == Run.id,
            Result.kind == "measured",
            Manifest.fingerprint.in_(fingerprints),
        )
        .correlate(Run)
    )
    recent = session.scalars(
        select(Run.id)
        .where(here.exists())
        .order_by(Run.started_at.desc(), Run.id)
        .limit(_RECORDED_RUNS)
    ).all()
    counts = session.execute(
        select(Result.run_id, Result.commit, func.count())
        .where(Result.run_id.in_(recent), Result.kind == "measured")
        .group_by(Result.run_id, Result.commit)
    ).all()
    runs_of: Counter[str | None] = Counter(commit for _, commit, _ in counts)
    rows = {run: count for run, commit, count in counts if runs_of[commit] > 1}
    chosen: list[str] = []
    for run in recent:
        if run in rows and sum(rows[one] for one in chosen) + rows[run] <= _RECORDED_ROWS:
            chosen.append(run)
    return chosen
