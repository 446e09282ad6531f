"""The first schema: manifest, workload, run, result, samples.

Written out, not taken from the models: a migration says what the schema was on its day.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "manifest",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("captured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_manifest")),
    )
    op.create_index(op.f("ix_manifest_fingerprint"), "manifest", ["fingerprint"])
    op.create_table(
        "workload",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", "sha256", name=op.f("pk_workload")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("command", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    op.create_table(
        "result",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("benchmark", sa.String(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("implementation", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("clock", sa.String(), nullable=True),
        sa.Column("preset", sa.String(), nullable=True),
        sa.Column("warmup", sa.BigInteger(), nullable=True),
        sa.Column("median_s", sa.Double(), nullable=True),
        sa.Column("p10_s", sa.Double(), nullable=True),
        sa.Column("p90_s", sa.Double(), nullable=True),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("padded_tokens", sa.BigInteger(), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=True),
        sa.Column("correctness_status", sa.String(), nullable=False),
        sa.Column("max_abs_error", sa.Double(), nullable=True),
        sa.Column("tolerance", sa.Double(), nullable=True),
        sa.Column("correctness_reference", sa.Text(), nullable=True),
        sa.Column("correctness_detail", sa.Text(), nullable=True),
        sa.Column("workload_id", sa.String(), nullable=False),
        sa.Column("workload_sha256", sa.String(64), nullable=False),
        sa.Column("manifest_id", sa.String(64), nullable=True),
        sa.Column("commit", sa.String(64), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_result")),
        sa.ForeignKeyConstraint(
            ["workload_id", "workload_sha256"],
            ["workload.id", "workload.sha256"],
            name=op.f("fk_result_workload_id_workload_sha256"),
        ),
        sa.UniqueConstraint("id", "n", name=op.f("uq_result_id_n")),
        sa.CheckConstraint(
            "kind IN ('measured', 'compiled', 'modelled', 'published')", name=op.f("ck_result_kind")
        ),
        sa.CheckConstraint(
            "clock IS NULL OR clock IN ('wall', 'device')", name=op.f("ck_result_clock")
        ),
        sa.CheckConstraint(
            "correctness_status IN ('ok', 'wrong', 'failed', 'not_checked')",
            name=op.f("ck_result_correctness_status"),
        ),
        sa.CheckConstraint("n >= 0", name=op.f("ck_result_counted")),
        sa.CheckConstraint("median_s > 0", name=op.f("ck_result_positive_median")),
        sa.CheckConstraint(
            "(p10_s IS NULL OR p10_s <= median_s) AND (p90_s IS NULL OR median_s <= p90_s)",
            name=op.f("ck_result_ordered_percentiles"),
        ),
        sa.CheckConstraint(
            "median_s IS NOT NULL OR (p10_s IS NULL AND p90_s IS NULL AND tokens_per_s IS NULL)",
            name=op.f("ck_result_nothing_without_median"),
        ),
        sa.CheckConstraint(
            "correctness_status NOT IN ('wrong', 'failed') OR (n = 0 AND median_s IS NULL)",
            name=op.f("ck_result_no_speed_unless_right"),
        ),
        sa.CheckConstraint(
            "kind <> 'published' OR (source IS NOT NULL AND manifest_id IS NULL)",
            name=op.f("ck_result_published_has_source"),
        ),
        sa.CheckConstraint(
            "kind <> 'measured' OR (manifest_id IS NOT NULL AND \"commit\" IS NOT NULL"
            " AND (n = 0 OR clock IS NOT NULL))",
            name=op.f("ck_result_measured_is_traceable"),
        ),
        sa.CheckConstraint(
            "kind <> 'measured' OR correctness_status IN ('wrong', 'failed')"
            " OR (n > 0 AND median_s IS NOT NULL)",
            name=op.f("ck_result_measured_is_timed"),
        ),
        sa.CheckConstraint(
            "kind IN ('measured', 'published') OR (n = 0 AND clock IS NULL)",
            name=op.f("ck_result_only_clocks_sample"),
        ),
        sa.CheckConstraint("padded_tokens >= tokens", name=op.f("ck_result_padding")),
        sa.CheckConstraint(
            "tokens_per_s IS NULL OR (tokens IS NOT NULL AND abs(tokens_per_s * median_s - tokens)"
            " <= tokens * (CASE WHEN kind = 'published' THEN 0.01 ELSE 1e-9 END))",
            name=op.f("ck_result_throughput"),
        ),
        sa.ForeignKeyConstraint(
            ["manifest_id"], ["manifest.id"], name=op.f("fk_result_manifest_id")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_result_run_id")),
    )
    op.create_index(
        op.f("ix_result_benchmark_implementation_commit"),
        "result",
        ["benchmark", "implementation", "commit"],
    )
    op.create_index(op.f("ix_result_kind"), "result", ["kind"])
    op.create_index(op.f("ix_result_run_id"), "result", ["run_id"])
    op.create_table(
        "samples",
        sa.Column("result_id", sa.String(32), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("values_s", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("result_id", name=op.f("pk_samples")),
        sa.ForeignKeyConstraint(
            ["result_id", "n"], ["result.id", "result.n"], name=op.f("fk_samples_result_id_n")
        ),
        sa.CheckConstraint(
            "n > 0 AND length(values_s) = 8 * n", name=op.f("ck_samples_one_float64_per_sample")
        ),
    )


def downgrade() -> None:
    for table in ("samples", "result", "run", "workload", "manifest"):
        op.drop_table(table)
