"""Opening a ledger: its URL, its connections and transactions, and every way that can fail."""

import os
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import ORMExecuteState, Session

from k3bench.ledger.errors import LedgerError, Reason
from k3bench.ledger.upgrade import needs_upgrade, upgrade
from k3bench.paths import project_root as find_project_root

URL_VARIABLE = "K3BENCH_DB"
DEFAULT_FILE = "results.sqlite"
# Longer than the longest write (a snapshot's worth of records takes well under a second).
BUSY_TIMEOUT_S = 60.0
_WRITE = "k3bench_write"


class Ledger:
    """An open ledger whose schema is current. Made by ``open_ledger``; safe to share by threads."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self._wal_checked = False

    @contextmanager
    def session(self, *, write: bool = False) -> Iterator[Session]:
        """One transaction. Reading by default; ``write=True`` commits at the end.

        A writer takes the write lock at once (BEGIN IMMEDIATE on SQLite): two writers queue
        instead of failing half-way. Database errors leave as LedgerError, and nothing of a failed
        transaction stays.
        """
        with translated(self.name):
            if write:
                self._use_wal()
            bind = self.engine.execution_options(**{_WRITE: write})
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
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                mode = self._journal_mode()
                break
            except sqlite3.OperationalError as error:
                # SQLite does not wait on its own for this lock when a reader is in the way.
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise LedgerError(*_explained(error, self.name)) from error
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
    start at the current directory. With ``create=False`` a missing ledger is an error.

    Raises LedgerError: wrong URL, missing driver, not a database, not a ledger, newer schema,
    locked, read-only; ProjectNotFound where the project root is needed and there is none.
    """
    parsed = _resolve(url, project_root)
    name = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() == "sqlite":
        name = str(parsed.database)
        _check_file(parsed, name, create)
    ledger = Ledger(_engine(parsed), name)
    with translated(name):
        with ledger.engine.connect() as connection:
            due = needs_upgrade(connection, name, create=create)
        if due:
            ledger._use_wal()
            writer = ledger.engine.execution_options(**{_WRITE: True})
            with writer.begin() as connection:
                upgrade(connection)
    return ledger


def _resolve(url: str | None, project_root: Path | None) -> URL:
    given = url is not None
    if url is None:
        url = os.environ.get(URL_VARIABLE) or DEFAULT_FILE
    if "://" not in url:
        parsed = URL.create("sqlite", database=url)
    else:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):  # ValueError: a port that is no number
            raise LedgerError(
                f"{_without_password(url)!r} is no database URL: write sqlite:///FILE, "
                "postgresql+psycopg://USER@HOST/NAME, or a plain path",
                reason="usage",
            ) from None
    if parsed.get_backend_name() == "sqlite":
        database = parsed.database
        if not database or ":memory:" in database or parsed.query.get("mode") == "memory":
            raise LedgerError(
                "an in-memory ledger would lose every result: name a file", reason="usage"
            )
        if not database.startswith("file:") and not Path(database).is_absolute():
            base = Path.cwd() if given else project_root or find_project_root()
            parsed = parsed.set(database=str(base / database))
    return parsed


def _without_password(url: str) -> str:
    """``url`` with anything before an @ hidden: it did not parse, so it cannot be trusted."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + ("***@" + rest.rsplit("@", 1)[1] if "@" in rest else rest)


def _check_file(url: URL, name: str, create: bool) -> None:
    if name.startswith("file:"):  # an SQLite URI: SQLite itself says what is wrong
        return
    path = Path(name)
    if path.is_dir():
        raise LedgerError(f"{name} is a directory: name a file", reason="usage")
    if not path.parent.is_dir():
        raise LedgerError(
            f"{name}: the directory {path.parent} does not exist: create it first", reason="missing"
        )
    if not create and not path.exists():
        raise LedgerError(
            f"no ledger at {name}: run `asv run`, or `k3bench ledger seed` for the published "
            f"figures, or set {URL_VARIABLE}",
            reason="missing",
        )


def _engine(url: URL) -> Engine:
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options = {"connect_args": {"timeout": BUSY_TIMEOUT_S}}
    try:
        engine = create_engine(url, **options)
    except NoSuchModuleError:
        raise LedgerError(
            f"no database called {url.drivername!r} is known: use sqlite or postgresql+psycopg",
            reason="usage",
        ) from None
    except ModuleNotFoundError as error:
        raise LedgerError(
            f"the driver of {url.drivername!r} is missing: pip install {error.name}",
            reason="unavailable",
        ) from error
    except (ArgumentError, TypeError) as error:
        raise LedgerError(f"{url.drivername}: {error}", reason="usage") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own BEGIN is always deferred; None leaves transactions to _begin_sqlite.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # FULL, not NORMAL: in WAL mode NORMAL may lose the last commits when the power fails, and a
    # run's journal may be gone by then. An ingest is one commit, so this is one fsync a call.
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _refuse_flush(session: Session, *_: Any) -> None:
    raise LedgerError("this session reads: open it with write=True to change the ledger", "usage")


def _refuse_statement(state: ORMExecuteState) -> None:
    if state.is_insert or state.is_update or state.is_delete:
        _refuse_flush(state.session)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn every database error inside into a LedgerError of one line, keeping the cause."""
    try:
        yield
    except SQLAlchemyError as error:
        raise LedgerError(*_explained(getattr(error, "orig", None) or error, name)) from error


def is_race(error: LedgerError) -> bool:
    """Whether a concurrent writer may have come first, so that trying again can succeed."""
    return isinstance(error.__cause__, IntegrityError)


def _explained(error: BaseException, name: str) -> tuple[str, Reason]:
    first_line = str(error).strip().partition("\n")[0] or type(error).__name__
    lowered = first_line.lower()
    if "locked" in lowered:
        return (
            f"{name} has been locked by another process for {BUSY_TIMEOUT_S:.0f} s: "
            "wait for it to finish and try again",
            "unavailable",
        )
    if "not a database" in lowered:
        return f"{name} is not a SQLite database: name another file", "data"
    if "malformed" in lowered:
        return f"{name} is damaged ({first_line}): restore results.sqlite from git", "data"
    if "readonly" in lowered or "read-only" in lowered:
        return f"{name} is read-only: make it writable, or set {URL_VARIABLE}", "unavailable"
    if "unable to open" in lowered:
        return f"{name} cannot be opened: check that it exists and may be read", "unavailable"
    if "constraint" in lowered:
        return f"{name} refuses the row: {first_line}", "data"
    return f"{name}: {first_line}", "unavailable"
