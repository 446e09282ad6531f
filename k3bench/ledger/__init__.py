"""The ledger: every result ever recorded, with its samples and the manifest of where it was made.

    ledger = open_ledger()                      # results.sqlite of the project, or K3BENCH_DB
    ingest(ledger, records, manifests, runs)    # whole or not at all; twice is once
    with ledger.session() as session:
        rows = select_results(session, kind="measured", latest=True)

The tables are drawn in docs/ledger.md.
"""

from k3bench.ledger.database import Ledger, open_ledger
from k3bench.ledger.errors import LedgerError
from k3bench.ledger.ingest import IngestReport, ingest
from k3bench.ledger.queries import (
    ResultRow,
    RunRow,
    iterate_records,
    load_manifest,
    load_samples,
    select_results,
    select_runs,
)
from k3bench.ledger.record import Record

__all__ = [
    "IngestReport",
    "Ledger",
    "LedgerError",
    "Record",
    "ResultRow",
    "RunRow",
    "ingest",
    "iterate_records",
    "load_manifest",
    "load_samples",
    "open_ledger",
    "select_results",
    "select_runs",
]
