"""Where a ledger lies, and how each database is talked to: URLs, connections, transactions."""

import os
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from k3bench.ledger import faults
from k3bench.ledger.errors import LedgerError
from k3bench.paths import project_root as find_project_root

URL_VARIABLE = "K3BENCH_DB"
DEFAULT_FILE = "results.sqlite"
# A server that does not answer by then counts as away.
CONNECT_TIMEOUT_S = 5
WRITE = "k3bench_write"

_DRIVER = "postgresql+psycopg"
_INSTALL = {"psycopg": "pip install 'k3bench[postgres]'"}


def resolve(url: str | None, project_root: Path | None) -> URL:
    """The database meant by ``url``, K3BENCH_DB or the project's results.sqlite, in that order.

    Raises LedgerError where none can be meant.
    """
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
                "postgresql://USER@HOST/NAME, or a plain path",
                reason="usage",
            ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername=_DRIVER)
    if parsed.get_backend_name() == "sqlite":
        return _resolve_file(parsed, project_root, given=given)
    return parsed


def _resolve_file(url: URL, project_root: Path | None, *, given: bool) -> URL:
    database = url.database
    if not database or ":memory:" in database or url.query.get("mode") == "memory":
        raise LedgerError(
            "an in-memory ledger would lose every result: name a file", reason="usage"
        )
    if not database.startswith("file:") and not Path(database).is_absolute():
        base = Path.cwd() if given else project_root or find_project_root()
        url = url.set(database=str(base / database))
    return url


def shown(url: URL) -> str:
    """``url`` for messages: without its secrets, wherever they stand."""
    public = {key: value for key, value in url.query.items() if "password" not in key}
    return url.set(query=public).render_as_string(hide_password=True)


def _without_password(url: str) -> str:
    """``url`` with anything before an @ hidden: it did not parse, so it cannot be trusted."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + ("***@" + rest.rsplit("@", 1)[1] if "@" in rest else rest)


def require_file(url: URL, name: str, create: bool) -> None:
    """Refuse a SQLite file that cannot be there, before SQLite makes an empty one."""
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


def make_engine(url: URL) -> Engine:
    """The engine for ``url``; no connection is made yet. Raises LedgerError."""
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options = {"connect_args": {"timeout": faults.BUSY_TIMEOUT_S}}
    elif url.drivername == _DRIVER:
        options = {"connect_args": _server_arguments(url), "pool_pre_ping": True}
    try:
        engine = create_engine(url, **options)
    except NoSuchModuleError:
        raise LedgerError(
            f"no database called {url.drivername!r} is known: use sqlite or postgresql",
            reason="usage",
        ) from None
    except ModuleNotFoundError as error:
        mend = _INSTALL.get(error.name or "", f"pip install {error.name}")
        raise LedgerError(
            f"the driver of {url.drivername!r} is missing: {mend}", reason="unavailable"
        ) from error
    except (ArgumentError, TypeError) as error:
        raise LedgerError(f"{url.drivername}: {error}", reason="usage") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _server_arguments(url: URL) -> dict[str, Any]:
    """Connection parameters; those in the URL's query go before them."""
    arguments: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "k3bench",
        # Seconds until a server that vanished without a word counts as away.
        "tcp_user_timeout": 1000 * CONNECT_TIMEOUT_S,
    }
    arguments = {key: value for key, value in arguments.items() if key not in url.query}
    # UTC, because the driver cannot say year 1 in a zone to the west of it.
    settings = ("timezone=UTC", f"lock_timeout={faults.BUSY_TIMEOUT_S:.0f}s")
    asked = url.query.get("options", "")
    given = asked if isinstance(asked, str) else " ".join(asked)
    arguments["options"] = " ".join([*(f"-c {setting}" for setting in settings), given]).strip()
    return arguments


def transaction_options(engine: Engine, *, write: bool) -> dict[str, Any]:
    """Execution options for one transaction that reads, or that writes.

    A reader sees one state of the ledger, however many statements it takes: SQLite's transactions
    are so, PostgreSQL's need REPEATABLE READ. A writer there must see what others have committed
    while it waited for them: READ COMMITTED.
    """
    options: dict[str, Any] = {WRITE: write}
    if engine.dialect.name == "postgresql":
        options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
        options["postgresql_readonly"] = not write
    return options


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own BEGIN is always deferred; None leaves transactions to _begin_sqlite.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # FULL, not NORMAL: in WAL mode NORMAL may lose the last commits when the power fails, and a
    # run's journal may be gone by then. An ingest is one commit, so this is one fsync a call.
    connection.execute("PRAGMA synchronous = FULL")
    # Keys are random, so an insert touches pages all over the indexes: 2 MB (the default) are soon
    # too few. A bulk ingest writes some 5 MB a call: at 4 MB (the default) every call would also
    # copy the WAL into the file.
    connection.execute("PRAGMA cache_size = -65536")
    # Some builds of SQLite overwrite with noughts whatever moves from page to page, for secrets'
    # sake: 3% of an ingest (measured). Results are no secrets, and none is ever deleted.
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("PRAGMA wal_autocheckpoint = 8192")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get(WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
