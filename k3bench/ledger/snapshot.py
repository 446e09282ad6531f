"""Builds the small results.sqlite under version control: `python -m k3bench.ledger.snapshot`.

It holds the published figures and, for every preset, the records of the newest finished run (with
those it took over from an interrupted one), their samples, manifests and runs. The file is compact
(VACUUM), in DELETE journal mode (reading it makes no side files; the first writer switches to WAL),
and the same content gives the same bytes.
"""

import argparse
import os
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from k3bench.ledger.database import DEFAULT_FILE, Ledger, open_ledger
from k3bench.ledger.errors import LedgerError
from k3bench.ledger.ingest import ingest
from k3bench.ledger.published import published_records
from k3bench.ledger.queries import (
    iterate_records,
    latest_finished_runs,
    load_manifest,
    select_runs,
    with_taken_over,
)
from k3bench.paths import project_root

MAX_BYTES = 5_000_000
_SIDE_FILES = ("-wal", "-shm", "-journal")


@dataclass(frozen=True)
class SnapshotReport:
    """What the snapshot holds, and where the ledger that it replaced was kept, if it was."""

    path: Path
    size_bytes: int
    published: int
    recorded: int
    runs_by_preset: dict[str, str]
    kept: Path | None


def write_snapshot(source: Ledger, out: Path) -> SnapshotReport:
    """Build a snapshot of ``source`` and put it at ``out`` in one step.

    ``out`` may be the source's own file. A ledger at ``out`` that holds results which the snapshot
    does not is moved to .k3bench/ beside it first: a snapshot forgets, it does not destroy. Raises
    LedgerError, leaving ``out`` as it was, if the snapshot would be 5 MB or more or if ``out`` is
    in use.
    """
    out = out.resolve()
    with source.session() as session:
        runs_by_preset = latest_finished_runs(session)
        chosen: set[str] = set()
        for preset, run_id in runs_by_preset.items():
            chosen |= with_taken_over(session, run_id, preset)
        recorded = [record.to_json() for record in iterate_records(session) if record.id in chosen]
        named = {record["run_id"] for record in recorded}
        runs = [run.to_json() for run in select_runs(session) if run.id in named]
        manifest_ids = sorted({record["manifest_id"] for record in recorded} - {None})
        manifests = [load_manifest(session, identity) for identity in manifest_ids]
    source.close()  # ``out`` may be the same file, and must be nobody's when it is replaced
    published = published_records()
    with tempfile.TemporaryDirectory(prefix=".snapshot-", dir=out.parent) as directory:
        built = Path(directory) / DEFAULT_FILE
        records = sorted([*published, *recorded], key=lambda record: str(record["id"]))
        _build(built, records, manifests, runs)
        size = built.stat().st_size
        if size >= MAX_BYTES:
            raise LedgerError(
                f"the snapshot would take {size:,} bytes, the limit is {MAX_BYTES:,}: "
                "record a smaller preset for it"
            )
        kept = _replace(out, built, {str(record["id"]) for record in records})
    return SnapshotReport(
        path=out,
        size_bytes=size,
        published=len(published),
        recorded=len(recorded),
        runs_by_preset=runs_by_preset,
        kept=kept,
    )


def _build(
    path: Path,
    records: list[dict[str, object]],
    manifests: list[dict[str, object]],
    runs: list[dict[str, object]],
) -> None:
    ledger = open_ledger(str(path))
    ingest(ledger, records, manifests, runs)
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(out: Path, built: Path, snapshot_ids: set[str]) -> Path | None:
    """Move ``built`` to ``out``; returns where an older, richer ledger was moved, if there was."""
    kept = None
    if out.exists():
        forgotten = _settle(out, snapshot_ids)
        if forgotten:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            kept = out.parent / ".k3bench" / f"{out.stem}-{stamp}{out.suffix}"
            kept.parent.mkdir(exist_ok=True)
            shutil.copy2(out, kept)
    built.replace(out)
    return kept


def _settle(out: Path, snapshot_ids: set[str]) -> bool:
    """Fold the WAL of the ledger at ``out`` into it; whether it has results the snapshot lacks.

    Replacing a file that another process has open would lose what it writes, and a left-over WAL
    would be read into the new file: both are refused.
    """
    in_use = LedgerError(
        f"{out} is in use by another process: wait for it to finish and try again", "unavailable"
    )
    with closing(sqlite3.connect(out, timeout=1.0, isolation_level=None)) as connection:
        try:
            # Needs the file to itself, and so fails where anybody else has it open.
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            ids = {row[0] for row in connection.execute("SELECT id FROM result")}
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):
                raise in_use from error
            raise LedgerError(f"{out} is no ledger ({error}): name another file") from error
    if mode != "delete" or any(out.with_name(out.name + end).exists() for end in _SIDE_FILES):
        raise in_use
    return not ids <= snapshot_ids


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on stderr if no snapshot was made."""
    parser = argparse.ArgumentParser(prog="python -m k3bench.ledger.snapshot", description=__doc__)
    parser.add_argument("--from", dest="source", metavar="URL", help="default: the open ledger")
    parser.add_argument("--out", type=Path, help="default: results.sqlite in the project root")
    options = parser.parse_args(arguments)
    try:
        out = options.out or project_root() / DEFAULT_FILE
        # A new checkout has no ledger yet: its first snapshot holds the published figures.
        source = open_ledger(options.source, create=options.source is None)
        report = write_snapshot(source, out)
    except (ValueError, OSError) as error:
        print(f"k3bench: error: {error}", file=sys.stderr)
        return 2
    presets = ", ".join(sorted(report.runs_by_preset)) or "no finished run"
    print(
        f"{report.path.name}: {report.size_bytes:,} bytes, {report.published} published figures, "
        f"{report.recorded} recorded results ({presets})"
    )
    if report.kept is not None:
        print(f"the ledger with all earlier results was kept as {report.kept}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
