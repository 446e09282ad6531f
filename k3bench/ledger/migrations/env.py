"""How Alembic runs here: on the connection, and in the transaction, that upgrade.py hands over."""

from alembic import context

from k3bench.ledger.models import Base
from k3bench.ledger.upgrade import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    # SQLite cannot alter a table in place; batch mode rebuilds it.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
