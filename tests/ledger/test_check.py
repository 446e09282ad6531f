"""The audit finds every kind of damage: in the file, between tables, and in a row's figures."""

import sqlite3
from contextlib import closing

import pytest
from ledger.records import wrong
from sqlalchemy import text

from k3bench.ledger import ingest, open_ledger
from k3bench.ledger.check import check
from k3bench.ledger.column_types import pack_float64
from k3bench.ledger.engine import transaction_options
from k3bench.ledger.upgrade import HEAD


@pytest.fixture
def tamper(ledger, manifest, make_record, url):
    """Changes a good ledger behind its back, rules switched off; returns what check finds."""
    ingest(ledger, [make_record(id="a" * 32), make_record(**wrong())], [manifest])
    assert check(ledger).problems == ()

    def change(statement: str, value: object = None):
        writer = ledger.engine.execution_options(**transaction_options(ledger.engine, write=True))
        with writer.connect() as connection:
            for switch in switches_off(connection):
                connection.execute(text(switch))
            assert connection.execute(text(statement), {"value": value}).rowcount != 0
            connection.commit()
        ledger.close()
        with open_ledger(url) as again:
            report = check(again)
        assert not report.ok
        return report.problems

    return change


def switches_off(connection) -> list[str]:
    """Statements after which nothing holds the next one back."""
    if connection.dialect.name == "sqlite":
        # Foreign keys can only be switched off between transactions.
        connection.connection.dbapi_connection.execute("PRAGMA foreign_keys = OFF")
        return ["PRAGMA ignore_check_constraints = ON"]
    rules = (
        "SELECT conrelid::regclass, conname FROM pg_constraint WHERE contype = 'c' AND conrelid > 0"
    )
    drops = [
        f"ALTER TABLE {table} DROP CONSTRAINT {name}"
        for table, name in connection.execute(text(rules))
        if name.startswith("ck_")
    ]
    return [*drops, "SET session_replication_role = replica"]


def test_a_good_ledger_is_counted_and_found_good(ledger, backend, manifest, make_record):
    ingest(ledger, [make_record() for _ in range(3)], [manifest])
    report = check(ledger)
    # On a server the file is the server's business.
    file_checks = ["integrity_check", "foreign_key_check"] if backend == "sqlite" else []
    assert report.to_json() == {
        "ok": True,
        "ledger": ledger.name,
        "revision": HEAD,
        "file_checks": file_checks,
        "results": 3,
        "samples": 9,
        "manifests": 1,
        "problems": [],
    }


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("median_s", 0.0021, "median_s: is 0.0021, but the samples give 0.002"),
        ("p10_s", 0.0001, "p10_s: is 0.0001, but"),
        ("tokens", 300, "padded_tokens: is 256, less than tokens 300"),
        ("tokens_per_s", 1.0, "tokens_per_s: is 1.0, but tokens / median_s is 128000.0"),
        ("correctness_status", "wrong", "must be empty and n 0: the kernel is wrong"),
        ("kind", "published", "must be empty: kind is published"),
        ("device", "", "device: is empty"),
        ("parameters", '{"seqlen":null}', "parameters.seqlen: expected string, number or boolean"),
    ],
)
def test_a_changed_figure_is_found(tamper, column, value, message):
    problems = tamper(f"UPDATE result SET {column} = :value WHERE id = '{'a' * 32}'", value)
    assert any(message in problem and "a" * 32 in problem for problem in problems)


@pytest.mark.parametrize("value", [7, None], ids=["another", "none"])
def test_a_key_of_another_series_is_found(tamper, value):
    problems = tamper(f"UPDATE result SET series = :value WHERE id = '{'a' * 32}'", value)
    (problem,) = problems
    assert f"({'a' * 32}): series: is not the key of its fields" in problem


def test_a_changed_sample_is_found(tamper):
    problems = tamper("UPDATE samples SET values_s = :value", pack_float64((0.003, 0.001, 0.0025)))
    assert any("median_s: is 0.002, but the samples give 0.0025" in line for line in problems)


def test_lost_samples_are_found(tamper):
    problems = tamper("DELETE FROM samples")
    assert any("samples_s: is empty" in line for line in problems)


def test_a_count_that_contradicts_the_samples_is_found(tamper, backend):
    problems = tamper("UPDATE result SET n = 2 WHERE n = 3")
    assert any("n: is 2, but there are 3 samples" in line for line in problems)
    if backend == "sqlite":
        assert any("foreign_key_check: row" in line for line in problems)


@pytest.mark.parametrize("table", ["manifest", "workload", "run"])
def test_a_missing_parent_is_found(tamper, path, table):
    assert any(
        line.startswith("foreign_key_check: row") and line.endswith(f"points at no {table}")
        for line in tamper(f"DELETE FROM {table}")
    )


def test_a_changed_manifest_is_found(tamper):
    problems = tamper("UPDATE manifest SET document = '{}'")
    assert any("its content hashes to" in line for line in problems)


def test_a_damaged_page_is_found(ledger, path, manifest, make_record):
    ingest(ledger, [make_record() for _ in range(300)], [manifest])
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'ix_result_commit'"
        (page,) = connection.execute(query).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    # Some entries of one index: reading the results still works, SQLite's own check does not.
    content[page * size - 64 : page * size] = bytes(64)
    path.write_bytes(content)
    report = check(open_ledger(str(path)))
    assert any(line.startswith("integrity_check: ") for line in report.problems)
