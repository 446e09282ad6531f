"""Figures beside a time: what a compiler or a model states (cycles, spills, bytes, errors)."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Added in place: a rebuilt table would lose the CHECK constraints, which SQLite's reflection
    # does not report.
    op.add_column("result", sa.Column("figures", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("result", "figures")
