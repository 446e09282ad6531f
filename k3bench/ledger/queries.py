"""Reading: the questions that tables, gate and dashboard ask, so that callers hold no SQL."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from k3bench.ledger.errors import LedgerError
from k3bench.ledger.models import KINDS, Manifest, Result, Run, Samples
from k3bench.ledger.record import Record, Scalar
from k3bench.ledger.rows import record_of, select_records
from k3bench.ledger.series import SERIES_FIELDS

_HEX_PREFIX = re.compile(r"[0-9a-f]{1,64}")

# What makes two rows the same point: rows that differ in any of these answer different questions.
_POINT = tuple(getattr(Result, name) for name in SERIES_FIELDS)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result without its samples. Times in seconds, ``started_at`` aware, UTC."""

    benchmark: str
    parameters: Mapping[str, Scalar]
    implementation: str
    kind: str
    device: str
    clock: str | None
    median_s: float | None
    p10_s: float | None
    p90_s: float | None
    n: int
    tokens: int | None
    padded_tokens: int | None
    tokens_per_s: float | None
    correctness_status: str
    max_abs_error: float | None
    tolerance: float | None
    workload_id: str
    workload_sha256: str
    manifest_id: str | None
    commit: str | None
    started_at: datetime
    id: str
    preset: str | None
    warmup: int | None
    compile_s: float | None
    correctness_reference: str | None
    correctness_detail: str | None
    run_id: str | None
    source: str | None
    figures: Mapping[str, Scalar] | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; the documented keys first and in order, further ones after them."""
        return {
            "benchmark": self.benchmark,
            "parameters": dict(self.parameters),
            "implementation": self.implementation,
            "kind": self.kind,
            "device": self.device,
            "clock": self.clock,
            "median_s": self.median_s,
            "p10_s": self.p10_s,
            "p90_s": self.p90_s,
            "n": self.n,
            "tokens": self.tokens,
            "padded_tokens": self.padded_tokens,
            "tokens_per_s": self.tokens_per_s,
            "correctness": {
                "status": self.correctness_status,
                "max_abs_error": self.max_abs_error,
                "tolerance": self.tolerance,
            },
            "workload": {"id": self.workload_id, "sha256": self.workload_sha256},
            "manifest_id": self.manifest_id,
            "commit": self.commit,
            "started_at": self.started_at.isoformat(),
            "id": self.id,
            "preset": self.preset,
            "warmup": self.warmup,
            "compile_s": self.compile_s,
            "correctness_reference": self.correctness_reference,
            "correctness_detail": self.correctness_detail,
            "run_id": self.run_id,
            "source": self.source,
            "figures": None if self.figures is None else dict(self.figures),
        }


_COLUMNS = tuple(getattr(Result, name) for name in ResultRow.__slots__)


def select_results(
    session: Session,
    *,
    kind: str | None = None,
    benchmark: str | None = None,
    commit: str | None = None,
    implementation: str | None = None,
    device: str | None = None,
    preset: str | None = None,
    run_id: str | None = None,
    latest: bool = False,
    limit: int | None = None,
) -> list[ResultRow]:
    """Results that meet every condition given, in reading order (natural order of parameters).

    ``benchmark`` is a regular expression found anywhere in the name, as asv's ``--bench``;
    ``commit`` a prefix of the hash; the others are exact. ``latest`` keeps the newest row of each
    point (kind, benchmark, parameters, implementation, device, clock, preset, workload); ``limit``
    then keeps the newest so many. Raises LedgerError for a pattern, prefix, kind or limit that
    cannot be meant.
    """
    conditions = _conditions(session, kind, benchmark, commit)
    exact: list[tuple[InstrumentedAttribute[Any], str | None]] = [
        (Result.implementation, implementation),
        (Result.device, device),
        (Result.preset, preset),
        (Result.run_id, run_id),
    ]
    conditions += [column == value for column, value in exact if value is not None]
    query = select(*_COLUMNS).where(*conditions)
    if latest:
        # Every other condition is the same for all rows of a series, so that it can come after.
        whole_series = commit is None and run_id is None
        query = query.where(Result.id.in_(_newest() if whole_series else _newest_of(conditions)))
    if limit is not None:
        if limit < 1:
            raise LedgerError(f"limit {limit}: ask for at least one row", "usage")
        columns = query.selected_columns
        query = query.order_by(columns.started_at.desc(), columns.id.desc()).limit(limit)
    return sorted((ResultRow(*row) for row in session.execute(query)), key=_reading_order)


def _newest() -> Select[Any]:
    """Ids of the newest result of every series: two looks into the index a series."""
    row = aliased(Result)
    keys = select(func.min(row.series).label("series")).cte("series_keys", recursive=True)
    following = select(func.min(row.series)).where(row.series > keys.c.series).scalar_subquery()
    keys = keys.union_all(select(following).where(keys.c.series.is_not(None)))
    newest = (
        select(row.id)
        .where(row.series == keys.c.series)
        .order_by(row.started_at.desc(), row.id.desc())
        .limit(1)
        .correlate(keys)
        .scalar_subquery()
    )
    return select(newest).where(keys.c.series.is_not(None))


def _newest_of(conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """Ids of the newest result of every series among the rows that meet ``conditions``."""
    newest_first = func.row_number().over(
        partition_by=_POINT, order_by=(Result.started_at.desc(), Result.id.desc())
    )
    ranked = select(Result.id, newest_first.label("age")).where(*conditions).subquery()
    return select(ranked.c.id).where(ranked.c.age == 1)


def _conditions(
    session: Session, kind: str | None, benchmark: str | None, commit: str | None
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if kind is not None:
        if kind not in KINDS:
            raise LedgerError(f"no kind {kind!r}: one of {', '.join(KINDS)}", "usage")
        conditions.append(Result.kind == kind)
    if benchmark is not None:
        conditions.append(Result.benchmark.in_(_matching_names(session, benchmark)))
    if commit is not None:
        if _HEX_PREFIX.fullmatch(commit) is None:
            raise LedgerError(f"commit {commit!r} is no prefix of a hash in lower case", "usage")
        # A range, which an index serves, unlike LIKE: "g" comes after every hex digit.
        conditions += [Result.commit >= commit, Result.commit < commit + "g"]
    return conditions


def _matching_names(session: Session, pattern: str) -> list[str]:
    # In Python, because SQLite has no regular expressions; the names are few.
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise LedgerError(
            f"benchmark pattern {pattern!r} is no regular expression: {error}", "usage"
        ) from error
    return [name for name in benchmark_names(session) if expression.search(name)]


def benchmark_names(session: Session) -> list[str]:
    """Every benchmark that results name, sorted: one look into the index a name.

    DISTINCT would read the whole index.
    """
    first = select(func.min(Result.benchmark).label("name")).cte("names", recursive=True)
    following = (
        select(func.min(Result.benchmark)).where(Result.benchmark > first.c.name).scalar_subquery()
    )
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    found = session.scalars(select(names.c.name).where(names.c.name.is_not(None)))
    return sorted(found)


def _reading_order(row: ResultRow) -> tuple[Any, ...]:
    # Numbers before strings and by size, so that S=8 comes before S=1024.
    parameters = tuple(
        (name, isinstance(value, str), value) for name, value in sorted(row.parameters.items())
    )
    return (
        KINDS.index(row.kind),
        row.device,
        row.benchmark,
        parameters,
        row.implementation,
        row.started_at,
        row.id,
    )


def load_samples(session: Session, result_id: str) -> tuple[float, ...]:
    """The samples of one result in seconds, in the order taken; empty where none were taken.

    Raises LookupError if there is no such result.
    """
    values = session.scalar(select(Samples.values_s).where(Samples.result_id == result_id))
    if values is not None:
        return values
    if session.get(Result, result_id) is None:
        raise LookupError(f"no result {result_id!r} in the ledger")
    return ()


def load_manifest(session: Session, id_prefix: str) -> dict[str, Any]:
    """The manifest whose id starts with ``id_prefix``. LookupError if none or several do."""
    known: list[str] = []
    if _HEX_PREFIX.fullmatch(id_prefix) is not None:
        ids = select(Manifest.id).where(Manifest.id >= id_prefix, Manifest.id < id_prefix + "g")
        known = list(session.scalars(ids.limit(2)))
    if not known:
        raise LookupError(f"no manifest {id_prefix!r} in the ledger")
    if len(known) > 1:
        raise LookupError(f"several manifests start with {id_prefix!r}: give more digits")
    document: dict[str, Any] = session.get_one(Manifest, known[0]).document
    return document


def iterate_records(session: Session) -> Iterator[Record]:
    """Every record with its samples, by id, streamed."""
    query = select_records().order_by(Result.id)
    rows = session.execute(query.execution_options(yield_per=500))
    return map(record_of, rows.mappings())


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run. ``finished_at`` is None for a run that is under way or was killed."""

    id: str
    started_at: datetime
    finished_at: datetime | None
    command: str | None

    def to_json(self) -> dict[str, Any]:
        """The mapping that ``ingest`` takes."""
        return {
            "id": self.id,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at and self.finished_at.isoformat(),
            "command": self.command,
        }


def select_runs(session: Session) -> list[RunRow]:
    """All runs, oldest first."""
    rows = session.execute(
        select(Run.id, Run.started_at, Run.finished_at, Run.command).order_by(
            Run.started_at, Run.id
        )
    )
    return [RunRow(*row) for row in rows]


def with_taken_over(session: Session, run_id: str, preset: str) -> set[str]:
    """Ids of a run's results, and of those that it took over instead of measuring.

    A run that resumes an interrupted one leaves the finished points under the interrupted run's
    id. Taken over can only be what has the same preset, commit and environment fingerprint, was
    measured in a run that never finished, and was not measured again.
    """
    own = select(Result.id).where(Result.run_id == run_id)
    same_commit = select(Result.commit).where(Result.run_id == run_id)
    same_place = (
        select(Manifest.fingerprint)
        .join(Result, Result.manifest_id == Manifest.id)
        .where(Result.run_id == run_id)
    )
    candidates = (
        select(
            Result.id,
            func.row_number()
            .over(
                partition_by=(*_POINT, Result.commit),
                order_by=(
                    case((Result.run_id == run_id, 0), else_=1),
                    Result.started_at.desc(),
                    Result.id.desc(),
                ),
            )
            .label("rank"),
        )
        .join(Run, Run.id == Result.run_id)
        .join(Manifest, Manifest.id == Result.manifest_id)
        .where(
            # Compiled figures of a run have no preset: nothing is repeated for them.
            or_(Result.preset == preset, Result.preset.is_(None)),
            Result.commit.in_(same_commit),
            Manifest.fingerprint.in_(same_place),
            or_(Result.run_id == run_id, Run.finished_at.is_(None)),
        )
        .subquery()
    )
    taken_over = select(candidates.c.id).where(candidates.c.rank == 1)
    return {*session.scalars(own), *session.scalars(taken_over)}


def latest_finished_runs(session: Session) -> dict[str, str]:
    """Preset to id of the newest finished run that has measured records of that preset."""
    query = (
        select(Result.preset, Run.id)
        .join(Run, Run.id == Result.run_id)
        .where(Result.preset.is_not(None), Run.finished_at.is_not(None))
        .group_by(Result.preset, Run.id)
        .order_by(Run.started_at, Run.id)
    )
    # Oldest first: the newest run of a preset overwrites the others.
    return {preset: run_id for preset, run_id in session.execute(query) if preset is not None}
