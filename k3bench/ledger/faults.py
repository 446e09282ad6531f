"""What a database error means: one line for people, and whether trying again can help."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from k3bench.ledger.errors import LedgerError, Reason

T = TypeVar("T")

# Longer than the longest write (a snapshot's worth of records takes well under a second).
BUSY_TIMEOUT_S = 60.0
# Long enough for deadlocks, races and a server's quick restart. A run does not wait for more
# between two points: its journal holds them until `k3bench ledger sync`.
RETRY_FOR_S = 2.0
_FIRST_DELAY_S = 0.02
_LONGEST_DELAY_S = 0.5

# SQLSTATE to what it means here; see the PostgreSQL manual, appendix A.
_TRANSIENT_STATES = {
    "40001",  # serialization failure
    "40P01",  # deadlock
    "23505",  # unique violation: every insert skips known keys, so another writer was in between
    "53300",  # too many connections
    "57P01",  # the server shuts down
    "57P02",  # it crashed
    "57P03",  # it starts up
}
_CONSTRAINTS = {
    "23502": "NOT NULL",
    "23503": "FOREIGN KEY",
    "23505": "UNIQUE",
    "23514": "CHECK",
}
_CONNECTION_CLASS = "08"
# What a server says of a login that will be refused again, whatever one waits for.
_REFUSED_LOGINS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password")


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn every database error inside into a LedgerError of one line, keeping the cause."""
    try:
        yield
    except Exception as error:
        # COPY goes past SQLAlchemy, and so do its errors.
        if not isinstance(error, SQLAlchemyError) and not _is_of_psycopg(error):
            raise
        cause = getattr(error, "orig", None) or error
        message, reason = explained(cause, name)
        raise LedgerError(message, reason, transient=is_transient(cause)) from error


def retrying(attempt: Callable[[], T]) -> T:
    """The result of ``attempt``, called again after transient LedgerErrors for RETRY_FOR_S.

    The pauses double and are drawn at random, so that writers which met once do not meet again.
    """
    deadline = time.monotonic() + RETRY_FOR_S
    delay_s = _FIRST_DELAY_S
    while True:
        try:
            return attempt()
        except LedgerError as error:
            pause_s = delay_s * random.uniform(0.5, 1.0)
            if not error.transient or time.monotonic() + pause_s > deadline:
                raise
        time.sleep(pause_s)
        delay_s = min(2 * delay_s, _LONGEST_DELAY_S)


def is_transient(error: BaseException) -> bool:
    """Whether the transaction that met a driver's error may succeed in a moment.

    SQLite's locks are not: a connection has waited BUSY_TIMEOUT_S for them already.
    """
    if not _is_of_psycopg(error):
        return False
    state = _state_of(error)
    if state is not None:
        return state in _TRANSIENT_STATES or state.startswith(_CONNECTION_CLASS)
    # Without a state the server was not reached, or went away in the middle.
    return type(error).__name__ == "OperationalError" and not _is_refused_login(str(error))


def _is_of_psycopg(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "psycopg"


def _state_of(error: BaseException | None) -> str | None:
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else None


def _is_refused_login(message: str) -> bool:
    return any(words in message for words in _REFUSED_LOGINS)


def explained(error: BaseException, name: str) -> tuple[str, Reason]:
    """One line about a driver's error, with the way to mend it, and its reason."""
    first_line = str(error).strip().partition("\n")[0] or type(error).__name__
    if _is_of_psycopg(error):
        return _explained_by_state(error, first_line, name)
    lowered = first_line.lower()
    if "locked" in lowered:
        return _locked(name)
    if "not a database" in lowered:
        return f"{name} is not a SQLite database: name another file", "data"
    if "malformed" in lowered:
        return f"{name} is damaged ({first_line}): restore results.sqlite from git", "data"
    if "readonly" in lowered or "read-only" in lowered:
        return f"{name} is read-only: make it writable, or set K3BENCH_DB", "unavailable"
    if "unable to open" in lowered:
        return f"{name} cannot be opened: check that it exists and may be read", "unavailable"
    if "constraint" in lowered:
        return f"{name} refuses the row: {first_line}", "data"
    return f"{name}: {first_line}", "unavailable"


def _locked(name: str) -> tuple[str, Reason]:
    return (
        f"{name} has been locked by another process for {BUSY_TIMEOUT_S:.0f} s: "
        "wait for it to finish and try again",
        "unavailable",
    )


def _explained_by_state(error: BaseException, line: str, name: str) -> tuple[str, Reason]:
    state = _state_of(error)
    if state is None:
        if "does not exist" in line and "database" in line:
            return f"{name}: no such database: create it first (createdb)", "missing"
        if _is_refused_login(line):
            return f"{name} refuses the login: {line}: check K3BENCH_DB and PGPASSWORD", "usage"
        return f"{name} cannot be reached: {line}", "unavailable"
    if state in _CONSTRAINTS:
        # The same words as SQLite's.
        constraint = getattr(getattr(error, "diag", None), "constraint_name", None) or line
        return (
            f"{name} refuses the row: {_CONSTRAINTS[state]} constraint failed: {constraint}",
            "data",
        )
    if state == "55P03":
        return _locked(name)
    if state == "25006":
        return f"{name} is read-only: connect to the primary server", "unavailable"
    if state == "42501":
        return f"{name}: {line}: grant it to the user of K3BENCH_DB", "unavailable"
    return f"{name}: {line} (SQLSTATE {state})", "unavailable"
