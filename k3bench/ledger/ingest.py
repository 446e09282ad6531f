"""Writing: records, manifests and runs go in whole or not at all, and twice is the same as once."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Table, select, update
from sqlalchemy.orm import Session

from k3bench.ledger.bulk import insert_missing
from k3bench.ledger.database import Ledger
from k3bench.ledger.errors import LedgerError
from k3bench.ledger.faults import retrying
from k3bench.ledger.models import Manifest, Result, Run, Workload
from k3bench.ledger.record import FieldError, Record, fail, text, utc_time
from k3bench.ledger.rows import (
    RESULT,
    SAMPLES,
    record_of,
    result_values,
    samples_values,
    select_records,
    table_of,
)
from k3bench.ledger.semantics import valid_record

T = TypeVar("T")

# Bound variables a statement: well under SQLite's limit, and few enough round trips.
_BATCH = 500
_MANIFEST, _WORKLOAD, _RUN = table_of(Manifest), table_of(Workload), table_of(Run)
_RUN_KEYS = {"id", "started_at", "finished_at", "command"}


@dataclass(frozen=True)
class IngestReport:
    """What a call to ``ingest`` did, counted in records."""

    inserted: int
    unchanged: int


@dataclass(frozen=True)
class _Batch:
    """Checked input, unique by key, ready to be written."""

    records: dict[str, Record]
    repeated: int
    manifests: dict[str, dict[str, Any]]
    runs: dict[str, dict[str, Any]]


def ingest(
    ledger: Ledger,
    records: Iterable[Mapping[str, Any]],
    manifests: Iterable[Mapping[str, Any]] = (),
    runs: Iterable[Mapping[str, Any]] = (),
) -> IngestReport:
    """Write records with the manifests and runs they name, in one transaction.

    ``records``: JSON objects of docs/data-model.md. ``manifests``: environment manifests; those
    already in the ledger need not be given again. ``runs``: {"id", "started_at", "finished_at",
    "command"}, the last two optional; a run that records name but nobody describes is entered with
    the time of its first record and no end, that is, as unfinished.

    A record whose id is in the ledger with the same content is counted as unchanged. Raises
    LedgerError, and writes nothing, if any record is malformed or contradicts itself, names an
    unknown manifest, or has a known id with different content. A server that goes away, a deadlock
    or a writer that came first is met by trying again, for faults.RETRY_FOR_S.
    """
    with _no_collections():
        batch = _Batch(
            *_checked_records(records),
            manifests=_manifest_rows(ledger, manifests),
            runs=dict(_run_rows(runs)),
        )
        # Twice is the same as once, so a commit whose answer was lost is simply tried again.
        return retrying(lambda: _write(ledger, batch))


@contextmanager
def _no_collections() -> Iterator[None]:
    """Python's cycle collector off: a bulk ingest makes many objects and no cycles, and looking for
    some took a tenth of its time (measured)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _checked_records(records: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Record], int]:
    unique: dict[str, Record] = {}
    repeated = 0
    for position, document in enumerate(records):
        record = valid_record(document, position)
        earlier = unique.setdefault(record.id, record)
        if earlier is not record:
            _require_same(earlier, record, "given earlier in this call")
            repeated += 1
    return unique, repeated


def _require_same(known: Record, given: Record, where: str) -> None:
    if known.canonical() == given.canonical():
        return
    old, new = known.to_json(), given.to_json()
    changed = [key for key in old if old[key] != new[key] or type(old[key]) is not type(new[key])]
    raise LedgerError(
        f"record {given.id} ({given.benchmark}) differs from the one {where} in "
        f"{', '.join(changed) or 'the type of a parameter'}: records never change, "
        "give a new measurement a new id"
    )


def _manifest_rows(
    ledger: Ledger, documents: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Rows of the manifests that the ledger lacks, by id.

    One that is there already was valid when it came in: its id is the hash of its content. Leaving
    it out spares every point of a run some 30 ms of validating the same manifest.
    """
    named: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for position, document in enumerate(documents):
        import manifests  # only needed here: reading a ledger never loads it

        try:
            named.setdefault(manifests.manifest_id(document), (position, document))
        except (TypeError, ValueError) as error:
            raise LedgerError(f"manifest {position}: is no JSON object: {error}") from error
    if not named:
        return {}
    known = retrying(lambda: _manifests_in(ledger, named))
    return {
        identity: _manifest_row(identity, document, position)
        for identity, (position, document) in named.items()
        if identity not in known
    }


def _manifest_row(identity: str, document: Mapping[str, Any], position: int) -> dict[str, Any]:
    import manifests

    try:
        manifests.validate(document)
        return {
            "id": identity,
            "fingerprint": manifests.fingerprint(document),
            "captured_at": utc_time("state.captured_at", document["state"]["captured_at"]),
            "document": dict(document),
        }
    except ValueError as error:
        raise LedgerError(f"manifest {position}: {error}") from error


def _manifests_in(ledger: Ledger, identities: Iterable[str]) -> set[str]:
    with ledger.session() as session:
        return _known_manifests(session, identities)


def _known_manifests(session: Session, identities: Iterable[str]) -> set[str]:
    known: set[str] = set()
    for some in _chunks(identities):
        known.update(session.scalars(select(Manifest.id).where(Manifest.id.in_(some))))
    return known


def _run_rows(documents: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for position, document in enumerate(documents):
        try:
            row = _run_row(document)
        except FieldError as error:
            raise LedgerError(f"run {position}: {error}") from None
        yield row["id"], row


def _run_row(document: Mapping[str, Any]) -> dict[str, Any]:
    for key in ("id", "started_at"):
        if key not in document:
            fail(key, "is missing")
    for key in document.keys() - _RUN_KEYS:
        fail(str(key), f"is no key of a run: {', '.join(sorted(_RUN_KEYS))}")
    finished_at, command = document.get("finished_at"), document.get("command")
    row: dict[str, Any] = {
        "id": text("id", document["id"]),
        "started_at": utc_time("started_at", document["started_at"]),
        "finished_at": None if finished_at is None else utc_time("finished_at", finished_at),
        "command": None if command is None else text("command", command),
    }
    if row["finished_at"] is not None and row["finished_at"] < row["started_at"]:
        fail("finished_at", "is before started_at")
    return row


class _SomeAreKnownError(Exception):
    """Records that were thought new are in the ledger already."""


def _write(ledger: Ledger, batch: _Batch) -> IngestReport:
    """Nearly always every record is new, or none: asking first would cost the former a tenth."""
    try:
        return _write_once(ledger, batch, compare=False)
    except _SomeAreKnownError:
        return _write_once(ledger, batch, compare=True)


def _write_once(ledger: Ledger, batch: _Batch, *, compare: bool) -> IngestReport:
    """One transaction. Keys are inserted in order, table by table, so that writers side by side
    wait for each other at most in one direction."""
    with ledger.session(write=True) as session:
        connection = session.connection()
        insert_missing(connection, _MANIFEST, _ordered(_MANIFEST, batch.manifests))
        insert_missing(connection, _WORKLOAD, _workload_rows(batch.records.values()))
        _merge_runs(session, batch)
        known = _same_records(session, batch.records) if compare else set()
        new = [batch.records[identity] for identity in sorted(batch.records.keys() - known)]
        _require_manifests(session, new)
        if insert_missing(connection, RESULT, map(result_values, new)) != len(new):
            if compare:  # between our look and our insert, which SQLite's write lock rules out
                raise LedgerError(f"{ledger.name}: another writer came first", transient=True)
            raise _SomeAreKnownError
        insert_missing(connection, SAMPLES, (samples_values(r) for r in new if r.samples_s))
    return IngestReport(inserted=len(new), unchanged=batch.repeated + len(batch.records) - len(new))


def _ordered(table: Table, rows: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows given by name, as tuples, by id."""
    return [tuple(rows[key][column.name] for column in table.columns) for key in sorted(rows)]


def _workload_rows(records: Iterable[Record]) -> list[tuple[str, str]]:
    return sorted({(record.workload.id, record.workload.sha256) for record in records})


def _chunks(items: Iterable[T]) -> Iterator[Sequence[T]]:
    every = list(items)
    for start in range(0, len(every), _BATCH):
        yield every[start : start + _BATCH]


def _merge_runs(session: Session, batch: _Batch) -> None:
    rows = dict(batch.runs)
    for record in batch.records.values():
        if record.run_id is None or record.run_id in batch.runs:
            continue
        undescribed = rows.setdefault(
            record.run_id, {"id": record.run_id, "started_at": record.started_at}
        )
        undescribed["started_at"] = min(undescribed["started_at"], record.started_at)
    rows = {key: {"finished_at": None, "command": None, **row} for key, row in rows.items()}
    insert_missing(session.connection(), _RUN, _ordered(_RUN, rows))
    for identities in _chunks(sorted(batch.runs)):
        # Locked, where the database has row locks: what is compared is what is updated.
        query = select(Run).where(Run.id.in_(identities)).order_by(Run.id).with_for_update()
        for known in session.scalars(query):
            _finish_run(session, known, rows[known.id])


def _finish_run(session: Session, known: Run, row: Mapping[str, Any]) -> None:
    """Let an unfinished run be described better; a finished one cannot become another."""
    if known.finished_at is None:
        if any(getattr(known, key) != value for key, value in row.items()):
            session.execute(update(Run).where(Run.id == known.id).values(**row))
    elif row["started_at"] != known.started_at or row["finished_at"] not in (
        None,  # the description from before it ended, told again
        known.finished_at,
    ):
        raise LedgerError(
            f"run {known.id} is in the ledger with other times: give another run another id"
        )


def _same_records(session: Session, records: Mapping[str, Record]) -> set[str]:
    """Ids of those that the ledger has; LedgerError if one of them is not the same there."""
    known: set[str] = set()
    for identities in _chunks(records):
        query = select_records().where(Result.id.in_(identities))
        for row in session.execute(query).mappings():
            _require_same(record_of(row), records[row["id"]], "in the ledger")
            known.add(row["id"])
    return known


def _require_manifests(session: Session, records: Iterable[Record]) -> None:
    by_manifest = {record.manifest_id: record for record in records if record.manifest_id}
    for identity in by_manifest.keys() - _known_manifests(session, by_manifest):
        record = by_manifest[identity]
        raise LedgerError(
            f"record {record.id} ({record.benchmark}): manifest_id: {identity[:12]} is not in the "
            "ledger: give the manifest with the record"
        )
