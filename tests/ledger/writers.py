"""Processes that write to a ledger, for tests of concurrency and of sudden death.

Run as a script: ``python writers.py batches PATH MANIFEST_FILE BATCHES SIZE`` ingests BATCHES x
SIZE records of its own and prints each id once its batch is in; ``python writers.py stuck PATH
MANIFEST_FILE`` stops in the middle of a transaction, and says so.
"""

import json
import sys
import time
from pathlib import Path

from records import WORKLOAD, measured

import manifests
from k3bench.ledger import ingest, open_ledger
from k3bench.ledger.ingest import _insert
from k3bench.ledger.models import Result, Run, Workload
from k3bench.ledger.record import parse_record
from k3bench.ledger.rows import result_row


def write_batches(path: str, manifest: dict, batches: int, size: int) -> None:
    manifest_id = manifests.manifest_id(manifest)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(batches):
        batch = [measured(manifest_id) for _ in range(size)]
        with open_ledger(path) as ledger:
            ingest(ledger, batch, [manifest])
        print("\n".join(record["id"] for record in batch), flush=True)


def stop_half_way(path: str, manifest: dict) -> None:
    manifest_id = manifests.manifest_id(manifest)
    rows = [result_row(parse_record(measured(manifest_id, run_id="stuck"))) for _ in range(5000)]
    with open_ledger(path) as ledger, ledger.session(write=True) as session:
        session.add(Run(id="stuck", started_at=rows[0]["started_at"]))
        session.merge(Workload(**WORKLOAD))
        session.flush()
        _insert(session, Result, rows)
        print("half-way", flush=True)
        time.sleep(60)


if __name__ == "__main__":
    what, ledger_path, manifest_file, *numbers = sys.argv[1:]
    content = json.loads(Path(manifest_file).read_text())
    if what == "batches":
        write_batches(ledger_path, content, *map(int, numbers))
    else:
        stop_half_way(ledger_path, content)
