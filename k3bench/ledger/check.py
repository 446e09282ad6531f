"""Auditing a ledger: is the file sound, and does every row still say what its samples say?"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from k3bench.ledger.database import Ledger
from k3bench.ledger.errors import LedgerError
from k3bench.ledger.models import Manifest, Result
from k3bench.ledger.rows import record_of, select_records
from k3bench.ledger.semantics import valid_record
from k3bench.ledger.upgrade import HEAD


@dataclass(frozen=True)
class CheckReport:
    """What was looked at, and every problem found, one line each."""

    ledger: str
    revision: str
    file_checks: tuple[str, ...]
    results: int
    samples: int
    manifests: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "ok": self.ok,
            "ledger": self.ledger,
            "revision": self.revision,
            "file_checks": list(self.file_checks),
            "results": self.results,
            "samples": self.samples,
            "manifests": self.manifests,
            "problems": list(self.problems),
        }


def check(ledger: Ledger) -> CheckReport:
    """Read everything once, in one transaction: a run writing meanwhile is not seen half-way.

    SQLite's own integrity and foreign-key checks; every record parsed and its figures recomputed
    from its samples as on ingest; every manifest's content against its address. On a server the
    file is the server's business, and ``file_checks`` is empty.
    """
    with ledger.session() as session:
        file_checks, problems = _check_file(session)
        results, samples, record_problems = _check_records(session)
        manifests, manifest_problems = _check_manifests(session)
    return CheckReport(
        ledger=ledger.name,
        revision=HEAD,
        file_checks=file_checks,
        results=results,
        samples=samples,
        manifests=manifests,
        problems=(*problems, *record_problems, *manifest_problems),
    )


def _check_file(session: Session) -> tuple[tuple[str, ...], list[str]]:
    if session.get_bind().dialect.name != "sqlite":
        return (), []
    integrity = session.scalars(text("PRAGMA integrity_check")).all()
    problems = [f"integrity_check: {line}" for line in integrity if line != "ok"]
    for table, rowid, parent, _ in session.execute(text("PRAGMA foreign_key_check")):
        problems.append(f"foreign_key_check: row {rowid} of {table} points at no {parent}")
    return ("integrity_check", "foreign_key_check"), problems


def _check_records(session: Session) -> tuple[int, int, list[str]]:
    problems: list[str] = []
    results = samples = 0
    query = select_records().order_by(Result.id).execution_options(yield_per=500)
    for results, row in enumerate(session.execute(query).mappings(), start=1):
        record = record_of(row)
        samples += len(record.samples_s)
        try:
            valid_record(record.to_json(), results)
        except LedgerError as error:
            problems.append(str(error))
            continue
        if row["series"] != record.series:
            problems.append(f"record {results} ({record.id}): series: is not the key of its fields")
    counted = session.scalar(select(func.count()).select_from(Result))
    if counted != results:
        problems.append(f"read {results} results where the table counts {counted}")
    return results, samples, problems


def _check_manifests(session: Session) -> tuple[int, list[str]]:
    from manifests import manifest_id

    problems: list[str] = []
    count = 0
    for identity, document in session.execute(select(Manifest.id, Manifest.document)):
        count += 1
        actual = manifest_id(document)
        if actual != identity:
            problems.append(f"manifest {identity[:12]}: its content hashes to {actual[:12]}")
    return count, problems
