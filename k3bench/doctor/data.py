"""Checks of what is kept: the ledger, and the pinned dataset."""

from __future__ import annotations

from typing import Any

from k3bench.doctor.report import Check


def check_ledger(answer: dict[str, Any]) -> Check:
    """The ledger opens and has the schema of this code. Only the kind of database is shown."""
    if answer.get("reason") == "missing":
        mend = "the first `asv run` makes it, or `k3bench ledger seed`"
        return Check("ledger", "missing", "not there yet, or of an older schema", mend)
    if "problem" in answer:
        mend = "set K3BENCH_DB, or restore it with `git checkout results.sqlite`"
        return Check("ledger", "broken", answer["problem"], mend, needed=True)
    found = f"{answer['database']}, schema {answer['schema']}"
    return Check("ledger", "ok", found, needed=True)


def check_dataset() -> Check:
    """Whether the pinned dataset is cached. Nothing needs the network: the surrogate stands in."""
    from workloads import pins
    from workloads.download import cached

    path = cached(pins.DATASET)
    if path is None:
        mend = "`k3bench workloads build` downloads it once; `k3bench workloads import FILE` too"
        return Check("dataset", "missing", "not cached; the surrogate needs no network", mend)
    size = path.stat().st_size
    if size != pins.DATASET.size_bytes:
        found = f"cached with {size:,} bytes, pinned are {pins.DATASET.size_bytes:,}"
        return Check("dataset", "broken", found, "delete it and run `k3bench workloads build`")
    return Check("dataset", "ok", f"cached, {size:,} bytes (`k3bench workloads verify` hashes it)")
