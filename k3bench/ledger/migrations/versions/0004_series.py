"""A key and an index a series: at a million results, finding the newest of each sorted them all."""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ROWS = 5000
_FIELDS = (
    "kind, benchmark, parameters, implementation, device, clock, preset, workload_id,"
    " workload_sha256"
)


def upgrade() -> None:
    op.add_column("result", sa.Column("series", sa.BigInteger(), nullable=True))
    _fill()
    op.create_index(op.f("ix_result_series_started_at"), "result", ["series", "started_at"])


def _fill() -> None:
    connection = op.get_bind()
    last = ""
    while True:
        page = connection.execute(
            sa.text(f"SELECT id, {_FIELDS} FROM result WHERE id > :last ORDER BY id LIMIT {_ROWS}"),
            {"last": last},
        ).all()
        if not page:
            return
        connection.execute(
            sa.text("UPDATE result SET series = :series WHERE id = :id"),
            [{"id": row[0], "series": _key(list(row[1:]))} for row in page],
        )
        last = page[-1][0]


def _key(fields: list[object]) -> int:
    fields[2] = json.loads(str(fields[2]))
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def downgrade() -> None:
    op.drop_index(op.f("ix_result_series_started_at"), "result")
    op.drop_column("result", "series")
