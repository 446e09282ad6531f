"""Fixtures of the gate's tests: a small ledger, and a way to store a run in it."""

import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger.records import measured

import manifests
from k3bench.ledger import Ledger, ingest, open_ledger

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def manifest() -> dict[str, Any]:
    return dict(manifests.capture(REPOSITORY))


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.delenv("K3BENCH_DB", raising=False)
    with open_ledger(str(tmp_path / "gate.sqlite")) as opened:
        yield opened


@pytest.fixture
def store(ledger: Ledger, manifest: dict[str, Any]) -> Callable[..., str]:
    """Stores a run of two groups and two implementations; ``factor`` multiplies all samples."""

    minutes = itertools.count()

    def run(run: str, commit: str = "a" * 40, factor: float = 1.0, **changes: Any) -> str:
        random = np.random.default_rng(7)
        records = []
        started_at = f"2026-08-01T12:{next(minutes):02d}:00+00:00"
        for group in range(2):
            for name in ("first", "second"):
                samples = (1e-3 * factor * np.exp(0.02 * random.standard_normal(12))).tolist()
                named = f"{run} {group} {name} {changes}"
                identity = hashlib.sha256(named.encode()).hexdigest()[:32]
                records.append(
                    measured(
                        manifests.manifest_id(manifest),
                        tuple(samples),
                        id=identity,
                        run_id=run,
                        commit=commit,
                        started_at=started_at,
                        implementation=name,
                        parameters={"S": group},
                        **changes,
                    )
                )
        ingest(ledger, records, [manifest])
        return run

    return run
