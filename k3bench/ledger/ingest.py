"""Writing: records, manifests and runs go in whole or not at all, and twice is the same as once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from sqlalchemy import Table, insert, select, tuple_, update
from sqlalchemy.orm import Session

from k3bench.ledger.database import Ledger, is_race
from k3bench.ledger.errors import LedgerError
from k3bench.ledger.models import Base, Manifest, Result, Run, Samples, Workload
from k3bench.ledger.record import FieldError, Record, fail, text, utc_time
from k3bench.ledger.rows import record_of, result_row, samples_row, select_records
from k3bench.ledger.semantics import valid_record

T = TypeVar("T")

# Bound variables a statement: well under SQLite's limit, and few enough round trips.
_BATCH = 500
_ATTEMPTS = 3
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
    unknown manifest, or has a known id with different content.
    """
    batch = _Batch(
        *_checked_records(records),
        manifests=_manifest_rows(ledger, manifests),
        runs=dict(_run_rows(runs)),
    )
    for _ in range(_ATTEMPTS - 1):
        try:
            return _write(ledger, batch)
        except LedgerError as error:
            # On a server another runner may insert the same workload or record between our look
            # and our insert; the next look sees it. SQLite's write lock leaves no such gap.
            if not is_race(error):
                raise
    return _write(ledger, batch)


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
    with ledger.session() as session:
        known = _known_manifests(session, named)
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


def _write(ledger: Ledger, batch: _Batch) -> IngestReport:
    with ledger.session(write=True) as session:
        _insert_new_manifests(session, batch.manifests)
        _insert_new_workloads(session, batch.records.values())
        _merge_runs(session, batch)
        new = _new_records(session, batch.records)
        _require_manifests(session, new)
        _insert(session, Result, [result_row(record) for record in new])
        _insert(session, Samples, [samples_row(record) for record in new if record.samples_s])
    return IngestReport(inserted=len(new), unchanged=batch.repeated + len(batch.records) - len(new))


def _insert(session: Session, model: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        # The table, not the class: one executemany, without the ORM's work on every row.
        session.execute(insert(cast(Table, model.__table__)), rows)


def _chunks(items: Iterable[T]) -> Iterator[Sequence[T]]:
    every = list(items)
    for start in range(0, len(every), _BATCH):
        yield every[start : start + _BATCH]


def _insert_new_manifests(session: Session, rows: Mapping[str, dict[str, Any]]) -> None:
    known = _known_manifests(session, rows)
    _insert(session, Manifest, [row for identity, row in rows.items() if identity not in known])


def _insert_new_workloads(session: Session, records: Iterable[Record]) -> None:
    used = {(record.workload.id, record.workload.sha256) for record in records}
    for pairs in _chunks(sorted(used)):
        query = select(Workload.id, Workload.sha256).where(
            tuple_(Workload.id, Workload.sha256).in_(pairs)
        )
        known = {(name, sha) for name, sha in session.execute(query)}
        new = [{"id": name, "sha256": sha} for name, sha in pairs if (name, sha) not in known]
        _insert(session, Workload, new)


def _merge_runs(session: Session, batch: _Batch) -> None:
    rows = dict(batch.runs)
    for record in batch.records.values():
        if record.run_id is None or record.run_id in batch.runs:
            continue
        undescribed = rows.setdefault(
            record.run_id, {"id": record.run_id, "started_at": record.started_at}
        )
        undescribed["started_at"] = min(undescribed["started_at"], record.started_at)
    for identities in _chunks(rows):
        known = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(identities)))}
        new = []
        for identity in identities:
            row = {"finished_at": None, "command": None, **rows[identity]}
            if identity not in known:
                new.append(row)
            elif identity in batch.runs:
                _finish_run(session, known[identity], row)
        _insert(session, Run, new)


def _finish_run(session: Session, known: Run, row: Mapping[str, Any]) -> None:
    """Let an unfinished run be described better; a finished one cannot become another."""
    if known.finished_at is None:
        session.execute(update(Run).where(Run.id == known.id).values(**row))
    elif row["started_at"] != known.started_at or row["finished_at"] not in (
        None,  # the description from before it ended, told again
        known.finished_at,
    ):
        raise LedgerError(
            f"run {known.id} is in the ledger with other times: give another run another id"
        )


def _new_records(session: Session, records: Mapping[str, Record]) -> list[Record]:
    new: list[Record] = []
    for identities in _chunks(records):
        query = select_records().where(Result.id.in_(identities))
        known = {row["id"]: record_of(row) for row in session.execute(query).mappings()}
        for identity in identities:
            if identity in known:
                _require_same(known[identity], records[identity], "in the ledger")
            else:
                new.append(records[identity])
    return new


def _require_manifests(session: Session, records: Iterable[Record]) -> None:
    by_manifest = {record.manifest_id: record for record in records if record.manifest_id}
    for identity in by_manifest.keys() - _known_manifests(session, by_manifest):
        record = by_manifest[identity]
        raise LedgerError(
            f"record {record.id} ({record.benchmark}): manifest_id: {identity[:12]} is not in the "
            "ledger: give the manifest with the record"
        )
