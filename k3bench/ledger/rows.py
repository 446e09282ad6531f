"""Between records and rows: the one place that knows how a record lies in the tables."""

from operator import attrgetter
from typing import Any

from sqlalchemy import RowMapping, Select, Table, select

from k3bench.ledger.models import Result, Samples
from k3bench.ledger.record import RECORD_KEYS, Correctness, Record, WorkloadRef

# Record fields that are columns of the same name.
_PLAIN = tuple(key for key in RECORD_KEYS if key not in ("samples_s", "correctness", "workload"))
# Columns whose value lies deeper in a record.
_NESTED = {
    "correctness_status": "correctness.status",
    "max_abs_error": "correctness.max_abs_error",
    "tolerance": "correctness.tolerance",
    "correctness_reference": "correctness.reference",
    "correctness_detail": "correctness.detail",
    "workload_id": "workload.id",
    "workload_sha256": "workload.sha256",
}


def table_of(model: Any) -> Table:
    """The table of a mapped class."""
    table: Table = model.__table__
    return table


RESULT = table_of(Result)
SAMPLES = table_of(Samples)

# The row of table ``result`` for a record, in the order of its columns.
result_values = attrgetter(*(_NESTED.get(column.name, column.name) for column in RESULT.columns))
# The row of table ``samples`` for a record that has samples.
samples_values = attrgetter("id", "n", "samples_s")


def result_row(record: Record) -> dict[str, Any]:
    """The row of table ``result`` for a record, by column name."""
    names = (column.name for column in RESULT.columns)
    return dict(zip(names, result_values(record), strict=True))


def select_records() -> Select[Any]:
    """Every result with its samples; ``record_of`` reads its rows."""
    return select(*RESULT.columns, Samples.values_s).outerjoin_from(
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
