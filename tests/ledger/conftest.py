"""Fixtures of the ledger's tests: an open ledger, a real manifest, and records that name it."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ledger.records import Record, measured

import manifests
from k3bench.ledger import Ledger, open_ledger

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_ledger_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("K3BENCH_DB", raising=False)


@pytest.fixture(scope="session")
def manifest() -> dict[str, Any]:
    return dict(manifests.capture(REPOSITORY))


@pytest.fixture(scope="session")
def manifest_id(manifest: dict[str, Any]) -> str:
    return manifests.manifest_id(manifest)


@pytest.fixture(scope="session")
def make_record(manifest_id: str) -> Callable[..., Record]:
    """``records.measured`` with the manifest filled in."""
    return partial(measured, manifest_id)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with open_ledger(str(path)) as opened:
        yield opened
