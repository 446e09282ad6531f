"""Opening a ledger, and its transactions: one that reads sees one state, one that writes is whole.

Backends differ in engine.py, their errors in faults.py.
"""

import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine, event
from sqlalchemy.orm import ORMExecuteState, Session

from k3bench.ledger import faults
from k3bench.ledger.engine import (
    DEFAULT_FILE,
    URL_VARIABLE,
    make_engine,
    require_file,
    resolve,
    shown,
    transaction_options,
)
from k3bench.ledger.errors import LedgerError
from k3bench.ledger.faults import explained, retrying, translated
from k3bench.ledger.upgrade import needs_upgrade, upgrade

__all__ = ["DEFAULT_FILE", "URL_VARIABLE", "Ledger", "open_ledger"]


class Ledger:
    """An open ledger whose schema is current. Made by ``open_ledger``; safe to share by threads."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self._wal_checked = False

    @contextmanager
    def session(self, *, write: bool = False) -> Iterator[Session]:
        """One transaction. Reading by default; ``write=True`` commits at the end.

        On SQLite a writer takes the write lock at once (BEGIN IMMEDIATE): two writers queue instead
        of failing half-way. On PostgreSQL writers go on side by side. Database errors leave as
        LedgerError, and nothing of a failed transaction stays.
        """
        with translated(self.name):
            if write:
                self._use_wal()
            bind = self.engine.execution_options(**transaction_options(self.engine, write=write))
            with Session(bind=bind, expire_on_commit=False) as session:
                if not write:
                    event.listen(session, "before_flush", _refuse_flush)
                    event.listen(session, "do_orm_execute", _refuse_statement)
                yield session
                if write:
                    session.commit()

    def close(self) -> None:
        """Give all connections back. ``with open_ledger() as ledger`` does it at the end.

        On SQLite a connection is kept for the next session until then: closing the last one folds
        the WAL into the file, which costs two fsyncs.
        """
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _use_wal(self) -> None:
        """Put a SQLite ledger into WAL mode before its first write by this process.

        Not on opening: a snapshot under version control rests in DELETE mode, and reading it must
        leave no side files. WAL lets readers go on while a run is being ingested.
        """
        if self._wal_checked or self.engine.dialect.name != "sqlite":
            return
        deadline = time.monotonic() + faults.BUSY_TIMEOUT_S
        while True:
            try:
                mode = self._journal_mode()
                break
            except sqlite3.OperationalError as error:
                # SQLite does not wait on its own for this lock when a reader is in the way.
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise LedgerError(*explained(error, self.name)) from error
                time.sleep(0.02)
        if mode != "wal":
            warnings.warn(
                f"{self.name}: the file system does not support SQLite's WAL; staying in "
                f"{mode} mode, where readers wait for writers",
                stacklevel=3,
            )
        self._wal_checked = True

    def _journal_mode(self) -> str:
        with self.engine.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            # Outside a transaction: the listener's BEGIN only comes with the first statement.
            (mode,) = raw.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                (mode,) = raw.execute("PRAGMA journal_mode=WAL").fetchone()
            return str(mode)


def open_ledger(
    url: str | None = None, project_root: Path | None = None, *, create: bool = True
) -> Ledger:
    """Open the ledger, making or upgrading its tables if needed.

    ``url``: a SQLAlchemy URL or a plain path; default K3BENCH_DB, else results.sqlite in the
    project root (default: found from the current directory). Relative SQLite paths in K3BENCH_DB
    start at the project root, so that every process of a run means the same file; those in ``url``
    start at the current directory. With ``create=False`` a missing ledger is an error. A server
    that does not answer is asked again for faults.RETRY_FOR_S.

    Raises LedgerError: wrong URL, missing driver, not a database, not a ledger, newer schema,
    locked, read-only; ProjectNotFound where the project root is needed and there is none.
    """
    parsed = resolve(url, project_root)
    name = shown(parsed)
    if parsed.get_backend_name() == "sqlite":
        name = str(parsed.database)
        require_file(parsed, name, create)
    ledger = Ledger(make_engine(parsed), name)
    retrying(lambda: _bring_up_to_date(ledger, create=create))
    return ledger


def _bring_up_to_date(ledger: Ledger, *, create: bool) -> None:
    with translated(ledger.name):
        with ledger.engine.connect() as connection:
            due = needs_upgrade(connection, ledger.name, create=create)
        if due:
            ledger._use_wal()
            options = transaction_options(ledger.engine, write=True)
            with ledger.engine.execution_options(**options).begin() as connection:
                upgrade(connection)


def _refuse_flush(session: Session, *_: Any) -> None:
    raise LedgerError("this session reads: open it with write=True to change the ledger", "usage")


def _refuse_statement(state: ORMExecuteState) -> None:
    if state.is_insert or state.is_update or state.is_delete:
        _refuse_flush(state.session)
