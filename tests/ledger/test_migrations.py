"""Migrations: they make what the models say, up and down, and cost nothing when none is due."""

import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event, inspect

from k3bench.ledger import (
    Ledger,
    LedgerError,
    ingest,
    iterate_records,
    open_ledger,
    select_results,
)
from k3bench.ledger.check import check
from k3bench.ledger.engine import make_engine, resolve, transaction_options
from k3bench.ledger.models import Base
from k3bench.ledger.upgrade import (
    HEAD,
    REVISIONS,
    VERSION_TABLE,
    alembic_config,
    downgrade,
    recorded_revision,
    upgrade,
)


def schema_of(ledger) -> dict[str, str]:
    """Name of each table, constraint and index to what the database says made it."""
    with ledger.engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
            rows = connection.exec_driver_sql(query).all()
            return {name: _levelled(sql) for name, sql in rows if name != VERSION_TABLE}
        found = {}
        for query in _POSTGRES_SCHEMA:
            found |= {row[0]: str(row[1:]) for row in connection.exec_driver_sql(query)}
    return {name: what for name, what in found.items() if VERSION_TABLE not in name}


_POSTGRES_SCHEMA = (
    """SELECT table_name || '.' || column_name, data_type, character_maximum_length, is_nullable
    FROM information_schema.columns WHERE table_schema = 'public'""",
    """SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "SELECT tablename || '.' || indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
)


def _levelled(sql: str) -> str:
    # One line a column or constraint: a column added later stands after the constraints.
    opening, _, rest = sql.partition("(")
    body, _, closing = rest.rpartition(")")
    parts, depth, start = [], 0, 0
    for position, character in enumerate(body):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(body[start:position])
            start = position + 1
    parts.append(body[start:])
    levelled = sorted(re.sub(r"\s+", " ", part).strip() for part in parts)
    return "\n".join([opening.strip(), *levelled, closing.strip()])


def test_an_empty_file_gets_the_schema_of_the_models(ledger):
    with ledger.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": VERSION_TABLE}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_migrations_and_models_make_the_same_schema(ledger, backend, tmp_path, request):
    # compare_metadata does not look at CHECK constraints, and those carry the rules.
    if backend == "sqlite":
        other = str(tmp_path / "models.sqlite")
    else:
        server = request.getfixturevalue("postgres")
        other = server.url(server.create_database())
    models = Ledger(make_engine(resolve(other, None)), "models")
    with models:
        Base.metadata.create_all(models.engine)
        assert schema_of(ledger) == schema_of(models)
        assert len(schema_of(models)) > 5


def test_the_revisions_listed_are_the_ones_there_are(ledger):
    with ledger.engine.connect() as connection:
        scripts = ScriptDirectory.from_config(alembic_config(connection))
    walked = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(walked)) == REVISIONS
    assert scripts.get_heads() == [HEAD]


def test_down_and_up_again_leads_to_the_same_schema(ledger, url):
    before = schema_of(ledger)
    writer = ledger.engine.execution_options(**transaction_options(ledger.engine, write=True))
    with writer.begin() as connection:
        downgrade(connection, "base")
        assert set(inspect(connection).get_table_names()) == {VERSION_TABLE}
        assert recorded_revision(connection) is None
    with writer.begin() as connection:
        upgrade(connection)
    assert schema_of(ledger) == before
    open_ledger(url).close()


def test_a_ledger_emptied_by_downgrade_is_upgraded_on_opening(ledger, url, manifest, make_record):
    with ledger.engine.execution_options(
        **transaction_options(ledger.engine, write=True)
    ).begin() as connection:
        downgrade(connection, "base")
    with open_ledger(url) as again:
        assert ingest(again, [make_record()], [manifest]).inserted == 1


def test_a_failed_migration_leaves_nothing(empty_url, monkeypatch):
    def broken(connection, *_):
        upgrade(connection)
        raise LedgerError("the second half fails")

    monkeypatch.setattr("k3bench.ledger.database.upgrade", broken)
    with pytest.raises(LedgerError, match="second half"):
        open_ledger(empty_url)
    engine = make_engine(resolve(empty_url, None))
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    monkeypatch.undo()
    with open_ledger(empty_url) as ledger, ledger.session() as session:
        assert list(iterate_records(session)) == []


def test_a_newer_schema_is_refused_in_one_line(ledger, url):
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(LedgerError, match=r"has schema 9999, newer than this .* update K3Bench"):
        open_ledger(url)


def test_opening_a_current_ledger_is_one_query_and_no_alembic(ledger, path):
    code = f"""
import sys, time
from sqlalchemy import event, Engine
from k3bench.ledger import open_ledger
queries = []
event.listen(Engine, "before_cursor_execute", lambda *a: queries.append(a[2]))
times = []
for _ in range(5):
    queries.clear()
    start = time.perf_counter()
    open_ledger({str(path)!r})
    times.append(time.perf_counter() - start)
print(min(times), times[0], [q for q in queries if q != "BEGIN"])
print([m for m in ("alembic", "manifests", "jsonschema", "numpy", "jax", "torch")
       if m in sys.modules])
"""
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    best, first, queries = output[0].split(" ", 2)
    assert queries == f"['SELECT version_num FROM {VERSION_TABLE}']"
    assert output[1] == "[]"
    # Measured: 1 ms, 8 ms the first time (SQLAlchemy's dialect is imported then).
    assert float(best) < 0.03 and float(first) < 0.1


def test_reading_leaves_a_resting_file_untouched(ledger, path, manifest, make_record):
    ingest(ledger, [make_record()], [manifest])
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    before = path.read_bytes()
    time.sleep(0.01)
    modified = path.stat().st_mtime_ns
    with open_ledger(str(path)) as reader, reader.session() as session:
        assert len(list(iterate_records(session))) == 1
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before and path.stat().st_mtime_ns == modified
    ingest(open_ledger(str(path)), [make_record()])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_statements_of_a_transaction_begin_as_they_should(ledger, path):
    begun = []
    event.listen(
        ledger.engine,
        "before_cursor_execute",
        lambda *arguments: begun.append(arguments[2]) if "BEGIN" in arguments[2] else None,
    )
    with ledger.session() as session:
        list(iterate_records(session))
    ingest(ledger, [], runs=[{"id": "r", "started_at": "2026-08-01T12:00:00Z"}])
    assert begun == ["BEGIN", "BEGIN IMMEDIATE"]


def test_rows_written_before_figures_existed_are_kept_and_have_none(
    ledger, url, manifest, make_record
):
    record = make_record()
    ingest(ledger, [record], [manifest])
    writer = ledger.engine.execution_options(**transaction_options(ledger.engine, write=True))
    with writer.begin() as connection:
        downgrade(connection, "0001")
        columns = {column["name"] for column in inspect(connection).get_columns("result")}
        assert "figures" not in columns
    with open_ledger(url) as upgraded, upgraded.session() as session:
        [kept] = iterate_records(session)
    assert kept.id == record["id"] and kept.figures is None
    assert kept.samples_s == tuple(record["samples_s"])


def test_rows_from_before_series_had_a_key_get_one(ledger, url, manifest, make_record):
    records = [make_record(parameters={"seqlen": n, "scale": 1.0, "é": "ü"}) for n in range(7)]
    records += [make_record(preset=None), make_record(), make_record(figures={"flops": 3})]
    ingest(ledger, records, [manifest])
    writer = ledger.engine.execution_options(**transaction_options(ledger.engine, write=True))
    with writer.begin() as connection:
        downgrade(connection, "0003")
    with open_ledger(url) as upgraded:
        # The audit compares every key with the one that ingest would give it now.
        report = check(upgraded)
        assert report.problems == () and report.results == len(records)
        with upgraded.session() as session:
            assert len(select_results(session, latest=True)) == 9
