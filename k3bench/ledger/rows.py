"""Between records and rows: the one place that knows how a record lies in the tables."""

from operator import attrgetter
from typing import Any

from sqlalchemy import RowMapping, Select, select

from k3bench.ledger.models import Result, Samples
from k3bench.ledger.record import RECORD_KEYS, Correctness, Record, WorkloadRef

# Record fields that are columns of the same name.
_PLAIN = tuple(key for key in RECORD_KEYS if key not in ("samples_s", "correctness", "workload"))
_plain_values = attrgetter(*_PLAIN)


def result_row(record: Record) -> dict[str, Any]:
    """The row of table ``result`` for a record."""
    row: dict[str, Any] = dict(zip(_PLAIN, _plain_values(record), strict=True))
    correctness = record.correctness
    row["correctness_status"] = correctness.status
    row["max_abs_error"] = correctness.max_abs_error
    row["tolerance"] = correctness.tolerance
    row["correctness_reference"] = correctness.reference
    row["correctness_detail"] = correctness.detail
    row["workload_id"] = record.workload.id
    row["workload_sha256"] = record.workload.sha256
    return row


def samples_row(record: Record) -> dict[str, Any]:
    """The row of table ``samples`` for a record that has samples."""
    return {"result_id": record.id, "n": record.n, "values_s": record.samples_s}


def select_records() -> Select[Any]:
    """Every result with its samples; ``record_of`` reads its rows."""
    return select(*Result.__table__.columns, Samples.values_s).outerjoin_from(
        Result, Samples, Samples.result_id == Result.id
    )


def record_of(row: RowMapping) -> Record:
    """The record that a row of ``select_records`` was made from, unchecked."""
    values = {key: row[key] for key in _PLAIN}
    return Record(
        **values,
        samples_s=row["values_s"] or (),
        correctness=Correctness(
            status=row["correctness_status"],
            max_abs_error=row["max_abs_error"],
            tolerance=row["tolerance"],
            reference=row["correctness_reference"],
            detail=row["correctness_detail"],
        ),
        workload=WorkloadRef(id=row["workload_id"], sha256=row["workload_sha256"]),
    )
