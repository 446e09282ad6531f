"""The schema: five tables and the rules that the database itself keeps (see docs/ledger.md).

    manifest (id) <--- result (id) ---> workload (id, sha256)
                         |     |
              run (id) <-+     +---> samples (result_id, n)

The rules are CHECK constraints, so that a row written past ``ingest`` obeys them too.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from k3bench.ledger.column_types import CanonicalJson, Float64Array, UtcDateTime

KINDS = ("measured", "compiled", "modelled", "published")
CLOCKS = ("wall", "device")
CORRECTNESS_STATUSES = ("ok", "wrong", "failed", "not_checked")
PRESETS = ("smoke", "ladder", "device", "quick")


def _one_of(column: str, values: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


class Base(DeclarativeBase):
    """Declarative base; the naming convention gives every constraint a stable name."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Manifest(Base):
    """An environment manifest; ``id`` is the SHA-256 of its canonical JSON."""

    __tablename__ = "manifest"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64), index=True)
    captured_at: Mapped[datetime] = mapped_column(UtcDateTime)
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


class Workload(Base):
    """A name and the hash of the lengths it stood for: both, because a name can be reused."""

    __tablename__ = "workload"

    id: Mapped[str] = mapped_column(String, primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)


class Run(Base):
    """One ``asv run``. ``finished_at`` is null while it runs, and stays so if it was killed."""

    __tablename__ = "run"

    id: Mapped[str] = mapped_column(String, primary_key=True)
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    command: Mapped[str | None] = mapped_column(Text)


class Result(Base):
    """One record (docs/data-model.md), all but its samples. Times in seconds."""

    __tablename__ = "result"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    benchmark: Mapped[str] = mapped_column(String)
    parameters: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    implementation: Mapped[str] = mapped_column(String)
    kind: Mapped[str] = mapped_column(String)
    device: Mapped[str] = mapped_column(String)
    clock: Mapped[str | None] = mapped_column(String)
    preset: Mapped[str | None] = mapped_column(String)
    warmup: Mapped[int | None] = mapped_column(BigInteger)
    median_s: Mapped[float | None] = mapped_column(Double)
    p10_s: Mapped[float | None] = mapped_column(Double)
    p90_s: Mapped[float | None] = mapped_column(Double)
    n: Mapped[int] = mapped_column(BigInteger)
    compile_s: Mapped[float | None] = mapped_column(Double)
    tokens: Mapped[int | None] = mapped_column(BigInteger)
    padded_tokens: Mapped[int | None] = mapped_column(BigInteger)
    tokens_per_s: Mapped[float | None] = mapped_column(Double)
    correctness_status: Mapped[str] = mapped_column(String)
    max_abs_error: Mapped[float | None] = mapped_column(Double)
    tolerance: Mapped[float | None] = mapped_column(Double)
    correctness_reference: Mapped[str | None] = mapped_column(Text)
    correctness_detail: Mapped[str | None] = mapped_column(Text)
    workload_id: Mapped[str] = mapped_column(String)
    workload_sha256: Mapped[str] = mapped_column(String(64))
    manifest_id: Mapped[str | None] = mapped_column(ForeignKey("manifest.id"))
    commit: Mapped[str | None] = mapped_column(String(64))
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("run.id"))
    source: Mapped[str | None] = mapped_column(Text)
    figures: Mapped[dict[str, Any] | None] = mapped_column(CanonicalJson)
    # series.series_key of the row; null only where something else than ingest wrote it.
    series: Mapped[int | None] = mapped_column(BigInteger)

    __table_args__ = (
        ForeignKeyConstraint(
            ["workload_id", "workload_sha256"], ["workload.id", "workload.sha256"]
        ),
        # The target of samples(result_id, n): a sample list can only hang on a row that counts it.
        UniqueConstraint("id", "n"),
        # A benchmark's history; a commit's results; what a run measured, and under which presets;
        # the newest result of every series.
        Index(None, "benchmark", "implementation", "commit"),
        Index(None, "commit"),
        Index(None, "run_id", "preset"),
        Index(None, "series", "started_at"),
        CheckConstraint(_one_of("kind", KINDS), "kind"),
        CheckConstraint(f"clock IS NULL OR {_one_of('clock', CLOCKS)}", "clock"),
        CheckConstraint(_one_of("correctness_status", CORRECTNESS_STATUSES), "correctness_status"),
        CheckConstraint("n >= 0", "counted"),
        CheckConstraint("median_s > 0", "positive_median"),
        CheckConstraint(
            "(p10_s IS NULL OR p10_s <= median_s) AND (p90_s IS NULL OR median_s <= p90_s)",
            "ordered_percentiles",
        ),
        CheckConstraint(
            "median_s IS NOT NULL OR (p10_s IS NULL AND p90_s IS NULL AND tokens_per_s IS NULL)",
            "nothing_without_median",
        ),
        CheckConstraint(
            "correctness_status NOT IN ('wrong', 'failed') OR (n = 0 AND median_s IS NULL)",
            "no_speed_unless_right",
        ),
        CheckConstraint(
            "kind <> 'published' OR (source IS NOT NULL AND manifest_id IS NULL)",
            "published_has_source",
        ),
        CheckConstraint(
            "kind <> 'measured' OR (manifest_id IS NOT NULL AND \"commit\" IS NOT NULL"
            " AND (n = 0 OR clock IS NOT NULL))",
            "measured_is_traceable",
        ),
        CheckConstraint(
            "kind <> 'measured' OR correctness_status IN ('wrong', 'failed')"
            " OR (n > 0 AND median_s IS NOT NULL)",
            "measured_is_timed",
        ),
        CheckConstraint(
            "kind IN ('measured', 'published') OR (n = 0 AND clock IS NULL)", "only_clocks_sample"
        ),
        CheckConstraint("padded_tokens >= tokens", "padding"),
        # Published throughputs are rounded figures beside rounded medians: 1% covers that.
        CheckConstraint(
            "tokens_per_s IS NULL OR (tokens IS NOT NULL AND abs(tokens_per_s * median_s - tokens)"
            " <= tokens * (CASE WHEN kind = 'published' THEN 0.01 ELSE 1e-9 END))",
            "throughput",
        ),
    )


class Samples(Base):
    """Every sample of one result, in the order taken.

    Apart from ``result`` so that queries over medians do not read them. ``n`` repeats the result's
    n: through the foreign key a wrong result (n = 0) can have no samples at all.
    """

    __tablename__ = "samples"

    result_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    n: Mapped[int] = mapped_column(BigInteger)
    values_s: Mapped[tuple[float, ...]] = mapped_column(Float64Array)

    __table_args__ = (
        ForeignKeyConstraint(["result_id", "n"], ["result.id", "result.n"]),
        CheckConstraint("n > 0 AND length(values_s) = 8 * n", "one_float64_per_sample"),
    )
