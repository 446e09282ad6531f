"""Processes that write to a ledger, for tests of concurrency and of sudden death.

Run as a script: ``python writers.py batches URL MANIFEST_FILE BATCHES SIZE`` ingests BATCHES x
SIZE records of its own and prints each id once its batch is in; ``python writers.py same URL
MANIFEST_FILE BATCHES SIZE`` does it with records that every such process has, in an order of its
own; ``python writers.py stuck URL MANIFEST_FILE`` stops in the middle of a transaction, and says
so.
"""

import json
import random
import sys
import time
from pathlib import Path

from records import WORKLOAD, measured

import manifests
from k3bench.ledger import ingest, open_ledger
from k3bench.ledger.bulk import insert_missing
from k3bench.ledger.models import Run, Workload
from k3bench.ledger.record import parse_record
from k3bench.ledger.rows import RESULT, result_values


def write_batches(url: str, manifest: dict, batches: list[list[dict]]) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    for batch in batches:
        with open_ledger(url) as ledger:
            ingest(ledger, batch, [manifest])
        print("\n".join(record["id"] for record in batch), flush=True)


def own_batches(manifest_id: str, batches: int, size: int) -> list[list[dict]]:
    return [[measured(manifest_id) for _ in range(size)] for _ in range(batches)]


def same_batches(manifest_id: str, batches: int, size: int) -> list[list[dict]]:
    """The same records in every process; workloads and runs too meet in any order."""
    records = [
        measured(
            manifest_id,
            id=f"{number:032x}",
            workload={"id": f"w{number % 7}", "sha256": "a" * 64},
            run_id=f"run-{number % 5}",
        )
        for number in range(batches * size)
    ]
    random.shuffle(records)
    return [records[start : start + size] for start in range(0, len(records), size)]


def stop_half_way(url: str, manifest_id: str) -> None:
    records = [parse_record(measured(manifest_id, run_id="stuck")) for _ in range(5000)]
    with open_ledger(url) as ledger, ledger.session(write=True) as session:
        session.add(Run(id="stuck", started_at=records[0].started_at))
        session.merge(Workload(**WORKLOAD))
        session.flush()
        insert_missing(session.connection(), RESULT, map(result_values, records))
        print("half-way", flush=True)
        time.sleep(60)


if __name__ == "__main__":
    what, ledger_url, manifest_file, *numbers = sys.argv[1:]
    content = json.loads(Path(manifest_file).read_text())
    identity = manifests.manifest_id(content)
    if what == "stuck":
        stop_half_way(ledger_url, identity)
    else:
        make = own_batches if what == "batches" else same_batches
        write_batches(ledger_url, content, make(identity, *map(int, numbers)))
