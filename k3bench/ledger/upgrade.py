"""Which schema a ledger has, and how it is brought up to the one this code speaks.

Alembic is imported only when there is something to do: an up-to-date ledger costs one query.
"""

from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from k3bench.ledger.errors import LedgerError
from k3bench.ledger.models import Base

if TYPE_CHECKING:
    from alembic.config import Config

# Oldest first; a new migration adds its revision here, and the tests hold the two together.
REVISIONS = ("0001", "0002", "0003", "0004")
HEAD = REVISIONS[-1]
# Not Alembic's default name: a ledger may live in a database beside another program's tables.
VERSION_TABLE = "ledger_version"
OUR_TABLES = frozenset(Base.metadata.tables)


def recorded_revision(connection: Connection) -> str | None:
    """The revision written in the database; None where there is none. One query when there is."""
    try:
        return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    except (OperationalError, ProgrammingError):
        # No such table, or something worse (locked, unreadable), which the inspector then reports.
        connection.rollback()
        if inspect(connection).has_table(VERSION_TABLE):
            raise
        return None


def needs_upgrade(connection: Connection, name: str, *, create: bool) -> bool:
    """Whether migrations are due. Raises LedgerError for a newer schema, for a foreign database,
    and, unless ``create``, for an empty one."""
    revision = recorded_revision(connection)
    if revision == HEAD:
        return False
    if revision is None:
        tables = set(inspect(connection).get_table_names()) - {VERSION_TABLE}
        # A SQLite file is ours or it is not; a server's database may be shared, if names allow.
        foreign = sorted(tables if connection.dialect.name == "sqlite" else tables & OUR_TABLES)
        if foreign:
            raise LedgerError(
                f"{name} is a database but not a K3Bench ledger (it holds {', '.join(foreign[:4])})"
                ": name another file or database"
            )
        if not create:
            raise LedgerError(
                f"{name} is empty: run `asv run`, or `k3bench ledger seed` for the published "
                "figures",
                reason="missing",
            )
    elif revision not in REVISIONS:
        raise LedgerError(
            f"{name} has schema {revision}, newer than this K3Bench knows ({HEAD}): update K3Bench",
            reason="schema",
        )
    return True


def alembic_config(connection: Connection) -> "Config":
    """Alembic's configuration for ``connection``, built here: there is no alembic.ini."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "k3bench.ledger:migrations")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, revision: str = HEAD) -> None:
    """Run the migrations up to ``revision`` in the caller's transaction.

    A second process doing the same waits for the first (SQLite: its writer lock; PostgreSQL: an
    advisory lock) and then finds nothing left to do.
    """
    from alembic import command

    if connection.dialect.name == "postgresql":
        # Any fixed number, so long as every K3Bench uses the same.
        connection.execute(text("SELECT pg_advisory_xact_lock(7023001)"))
    command.upgrade(alembic_config(connection), revision)


def downgrade(connection: Connection, revision: str) -> None:
    """Undo the migrations after ``revision`` (``base``: all), in the caller's transaction."""
    from alembic import command

    command.downgrade(alembic_config(connection), revision)
