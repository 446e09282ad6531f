"""Fixtures of the ledger's tests: an open ledger, a real manifest, and records that name it.

Every test that asks for ``ledger`` or ``url`` runs on SQLite and on PostgreSQL. One that also asks
for ``path``, the SQLite file, looks into that file and so runs on SQLite alone.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ledger.postgres_server import PostgresServer, reason_for_none
from ledger.records import Record, measured

import manifests
from k3bench.ledger import Ledger, open_ledger

REPOSITORY = Path(__file__).resolve().parents[2]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        on_file = "path" in metafunc.fixturenames
        backends = ["sqlite"] if on_file else ["sqlite", "postgresql"]
        metafunc.parametrize("backend", backends, indirect=True)


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running server; skips where none can be."""
    reason = reason_for_none()
    if reason is not None:
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty ledger on the server."""
    name = postgres.borrow()
    yield postgres.url(name)
    if not postgres.running:
        postgres.start()
    postgres.give_back(name)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The SQLite file behind ``ledger``."""
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where ``ledger`` is, as open_ledger takes it."""
    if backend == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    return str(request.getfixturevalue("database"))


@pytest.fixture
def empty_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger can be made: no file, or a database without a table."""
    if backend == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.create_database())


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened
