"""Published figures as ledger rows: somebody else's numbers, typed in here with their source.

Each JSON file beside this one holds figures of one source: "source", "device", "clock" (null where
not stated), "entered_at" (the day they were typed in, which becomes started_at), "workloads" (name
to content, whose hash identifies it; for shapes of ours the content is the one workloads/ hashes)
and "figures". Milliseconds stand as printed. A figure that is no time (HBM bytes, shares in per
cent) is a parameter of its row, with ``hbm_bytes`` rows having no median.
"""

import hashlib
import json
from decimal import Decimal
from importlib.resources import files
from typing import Any

from k3bench.canonical import canonical_json
from k3bench.ledger.database import Ledger
from k3bench.ledger.ingest import IngestReport, ingest

_ID_DIGITS = 32


def published_records() -> list[dict[str, Any]]:
    """All published figures as records of docs/data-model.md, the same ones every time."""
    names = (entry.name for entry in files(__name__).iterdir() if entry.name.endswith(".json"))
    return [record for name in sorted(names) for record in _records_of(name)]


def seed(ledger: Ledger) -> IngestReport:
    """Enter the published figures; those already there are left as they are."""
    return ingest(ledger, published_records())


def _records_of(name: str) -> list[dict[str, Any]]:
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    # Decimal, so that 33.61 ms becomes the float nearest to 0.03361 s and not one beside it.
    page = json.loads(text, parse_float=Decimal)
    hashes = {
        workload: hashlib.sha256(canonical_json(content).encode()).hexdigest()
        for workload, content in page["workloads"].items()
    }
    return [_record(page, figure, hashes[figure["workload"]]) for figure in page["figures"]]


def _record(page: dict[str, Any], figure: dict[str, Any], workload_sha256: str) -> dict[str, Any]:
    parameters = {
        key: float(value) if isinstance(value, Decimal) else value
        for key, value in figure["parameters"].items()
    }
    record = {
        "benchmark": figure["benchmark"],
        "parameters": parameters,
        "implementation": figure["implementation"],
        "kind": "published",
        "device": page["device"],
        "clock": None if figure["median_ms"] is None else figure.get("clock", page["clock"]),
        "preset": None,
        "warmup": None,
        "samples_s": [],
        "median_s": _seconds(figure["median_ms"]),
        "p10_s": None,
        "p90_s": None,
        "n": 0,
        "compile_s": None,
        "tokens": figure["tokens"],
        "padded_tokens": None,
        "tokens_per_s": figure.get("tokens_per_s"),
        "correctness": {
            "status": "not_checked",
            "max_abs_error": None,
            "tolerance": None,
            "reference": None,
            "detail": None,
        },
        "workload": {"id": figure["workload"], "sha256": workload_sha256},
        "manifest_id": None,
        "commit": None,
        "started_at": page["entered_at"],
        "run_id": None,
        "source": page["source"],
    }
    # The id follows from the content: seeding twice changes nothing, a corrected figure is new.
    digest = hashlib.sha256(canonical_json(record).encode()).hexdigest()
    # figures is not part of it: it came later, is null here, and ids do not change.
    return {"id": digest[:_ID_DIGITS], **record, "figures": None}


def _seconds(milliseconds: Decimal | int | None) -> float | None:
    return None if milliseconds is None else float(Decimal(milliseconds) / 1000)
