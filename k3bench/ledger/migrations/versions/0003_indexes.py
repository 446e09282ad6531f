"""Indexes for a team's ledger: results by commit, presets by run; none on kind alone.

At a million results, finding those of one commit read the whole table. With four kinds an index on
kind finds nothing, and SQLite, which counts no rows, sometimes took it instead of a good one.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index(op.f("ix_result_kind"), "result")
    op.drop_index(op.f("ix_result_run_id"), "result")
    op.create_index(op.f("ix_result_commit"), "result", ["commit"])
    op.create_index(op.f("ix_result_run_id_preset"), "result", ["run_id", "preset"])


def downgrade() -> None:
    op.drop_index(op.f("ix_result_run_id_preset"), "result")
    op.drop_index(op.f("ix_result_commit"), "result")
    op.create_index(op.f("ix_result_run_id"), "result", ["run_id"])
    op.create_index(op.f("ix_result_kind"), "result", ["kind"])
