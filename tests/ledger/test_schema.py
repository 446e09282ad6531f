"""The database keeps its own rules: rows written past ``ingest`` are refused as well."""

import re
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from k3bench.ledger import LedgerError, ingest
from k3bench.ledger.models import Base, Result, Samples
from k3bench.ledger.record import parse_record
from k3bench.ledger.rows import result_row

WRONG = {
    "correctness_status": "wrong",
    "n": 0,
    "median_s": None,
    "p10_s": None,
    "p90_s": None,
    "tokens_per_s": None,
}
STATED = {"clock": None, "n": 0, "p10_s": None, "p90_s": None}
PUBLISHED = {**STATED, "kind": "published", "manifest_id": None, "source": "a report"}


@pytest.fixture
def insert_row(ledger, manifest, make_record):
    """Inserts a row of table result that differs from a good one in the columns given."""
    ingest(ledger, [make_record()], [manifest])

    def insert_changed(**columns: Any) -> None:
        row = result_row(parse_record(make_record())) | columns
        with ledger.session(write=True) as session:
            session.execute(insert(Result), [row])

    return insert_changed


ACCEPTED = {
    "measured": {},
    "wrong": WRONG,
    "wrong and never timed": {**WRONG, "clock": None},
    "published": PUBLISHED,
    "published with n": {**PUBLISHED, "n": 100, "clock": "wall"},
    "published with rounded throughput": {**PUBLISHED, "tokens_per_s": 256 / 0.002 * 1.009},
    "compiled": {**STATED, "kind": "compiled"},
    "modelled without a time": {
        **STATED,
        "kind": "modelled",
        "median_s": None,
        "tokens_per_s": None,
    },
    "without throughput": {"tokens_per_s": None, "tokens": None},
}

REFUSED = {
    "an unknown kind": ("kind", {"kind": "guessed"}),
    "an unknown clock": ("clock", {"clock": "sundial"}),
    "an unknown status": ("correctness_status", {"correctness_status": "maybe"}),
    "a negative count": ("counted", {**PUBLISHED, "n": -1}),
    "wrong with a median": ("no_speed_unless_right", {**WRONG, "median_s": 0.1}),
    "failed with a median": (
        "no_speed_unless_right",
        {**WRONG, "correctness_status": "failed", "median_s": 0.1},
    ),
    "wrong with a count": ("no_speed_unless_right", {**WRONG, "n": 3}),
    "wrong with throughput": ("nothing_without_median", {**WRONG, "tokens_per_s": 1e3}),
    "wrong with a percentile": ("nothing_without_median", {**WRONG, "p10_s": 0.1}),
    "a median of zero": ("positive_median", {"median_s": 0.0, "p10_s": None}),
    "p10 above the median": ("ordered_percentiles", {"p10_s": 0.0021}),
    "p90 below the median": ("ordered_percentiles", {"p90_s": 0.0019}),
    "measured without manifest": ("measured_is_traceable", {"manifest_id": None}),
    "measured without commit": ("measured_is_traceable", {"commit": None}),
    "measured without clock": ("measured_is_traceable", {"clock": None}),
    "measured without a figure": (
        "measured_is_timed",
        {**WRONG, "correctness_status": "ok"},
    ),
    "published without source": ("published_has_source", {**PUBLISHED, "source": None}),
    "published with manifest": ("published_has_source", {"kind": "published", "source": "x"}),
    "compiled with a clock": (
        "only_clocks_sample",
        {**STATED, "kind": "compiled", "clock": "wall"},
    ),
    "modelled with samples": ("only_clocks_sample", {**STATED, "kind": "modelled", "n": 3}),
    "fewer padded tokens than tokens": ("padding", {"padded_tokens": 255}),
    "another throughput": ("throughput", {"tokens_per_s": 128001.0}),
    "throughput without tokens": ("throughput", {"tokens": None}),
    "published far from its throughput": (
        "throughput",
        {**PUBLISHED, "tokens_per_s": 256 / 0.002 * 1.02},
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_database_accepts(insert_row, name):
    insert_row(**ACCEPTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_the_database_refuses(insert_row, name):
    constraint, columns = REFUSED[name]
    with pytest.raises(LedgerError, match=f"CHECK constraint failed: ck_result_{constraint}$"):
        insert_row(**columns)


def test_every_check_constraint_of_result_is_tested():
    constraints = {str(c.name) for c in Result.__table__.constraints if hasattr(c, "sqltext")}
    assert constraints == {f"ck_result_{constraint}" for constraint, _ in REFUSED.values()}


@pytest.mark.parametrize(
    "column", ["manifest_id", "run_id", "workload_sha256"], ids=lambda column: column
)
def test_what_a_row_points_at_must_exist(insert_row, column):
    with pytest.raises(LedgerError, match="FOREIGN KEY constraint failed"):
        insert_row(**{column: "f" * 64})


def test_a_wrong_result_can_have_no_samples(ledger, insert_row, make_record):
    record_id = "e" * 32
    insert_row(id=record_id, **WRONG)
    for n in (0, 1):  # n = 0 breaks the CHECK, n = 1 the foreign key to the row's n = 0
        assert_samples_refused(ledger, record_id, n, (0.1,) * n)


def test_samples_and_n_cannot_disagree(ledger, insert_row):
    insert_row(id="e" * 32)
    assert_samples_refused(ledger, "e" * 32, 3, (0.1, 0.2))
    assert_samples_refused(ledger, "e" * 32, 2, (0.1, 0.2))


def assert_samples_refused(ledger, result_id: str, n: int, values_s: tuple[float, ...]) -> None:
    row = {"result_id": result_id, "n": n, "values_s": values_s}
    message = "constraint failed"
    with pytest.raises(LedgerError, match=message), ledger.session(write=True) as session:
        session.execute(insert(Samples), [row])


def scalar(ledger, query: str):
    with ledger.session() as session:
        return session.connection().exec_driver_sql(query).scalar_one()


def test_samples_are_packed_little_endian_float64(ledger, manifest, make_record):
    ingest(ledger, [make_record(samples_s=(0.5, 0.25))], [manifest])
    blob = bytes(scalar(ledger, "SELECT values_s FROM samples"))
    assert blob == bytes.fromhex("000000000000e03f") + bytes.fromhex("000000000000d03f")


def test_parameters_are_stored_as_canonical_text(ledger, manifest, make_record):
    ingest(ledger, [make_record(parameters={"s": 8, "b": 1.0, "é": True})], [manifest])
    text = scalar(ledger, "SELECT parameters FROM result")
    assert text == '{"b":1.0,"s":8,"\\u00e9":true}'


@pytest.mark.parametrize("table", Base.metadata.sorted_tables, ids=lambda table: table.name)
def test_the_schema_can_be_written_for_postgresql(table):
    statement = str(CreateTable(table).compile(dialect=postgresql.dialect()))
    assert not re.search(r"\b(BLOB|DATETIME)\b", statement)  # SQLite's own types
