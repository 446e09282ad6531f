"""Opening: where the ledger lies, and one clear line for every way it can fail to open."""

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import delete, select

from k3bench.ledger import LedgerError, ingest, open_ledger, select_results
from k3bench.ledger.faults import explained
from k3bench.ledger.models import Result, Run
from k3bench.paths import MARKER, ProjectNotFound


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    (root / "benchmarks").mkdir(parents=True)
    (root / MARKER).write_text("{}")
    monkeypatch.chdir(root / "benchmarks")
    return root


def pragma(ledger, name: str):
    with ledger.session() as session:
        return session.connection().exec_driver_sql(f"PRAGMA {name}").scalar()


def test_the_default_is_results_sqlite_in_the_project_root(project):
    assert open_ledger().name == str(project / "results.sqlite")
    assert (project / "results.sqlite").is_file()


def test_the_project_root_can_be_given(project, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    assert open_ledger(project_root=other).name == str(other / "results.sqlite")


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"], ids=["path", "URL"])
def test_the_variable_overrides_and_starts_at_the_project_root(project, monkeypatch, form):
    monkeypatch.setenv("K3BENCH_DB", form.format("other.sqlite"))
    assert open_ledger().name == str(project / "other.sqlite")
    absolute = project / "benchmarks" / "absolute.sqlite"
    monkeypatch.setenv("K3BENCH_DB", form.format(absolute))
    assert open_ledger().name == str(absolute)


def test_an_empty_variable_is_no_variable(project, monkeypatch):
    monkeypatch.setenv("K3BENCH_DB", "")
    assert open_ledger().name == str(project / "results.sqlite")


def test_an_argument_starts_at_the_current_directory(project):
    assert open_ledger("mine.sqlite").name == str(project / "benchmarks" / "mine.sqlite")


def test_a_path_may_hold_any_character(tmp_path, manifest, make_record):
    path = tmp_path / "a b%20?#é.sqlite"
    ledger = open_ledger(str(path))
    assert ingest(ledger, [make_record()], [manifest]).inserted == 1
    assert path.is_file()


def test_sqlite_connections_are_set_up_for_durability(ledger, path):
    assert pragma(ledger, "journal_mode") == "wal"
    assert pragma(ledger, "foreign_keys") == 1
    assert pragma(ledger, "synchronous") == 2  # FULL
    assert pragma(ledger, "busy_timeout") >= 30_000


def refusal(*arguments, **options) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        open_ledger(*arguments, **options)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("url", "message", "reason"),
    [
        ("://", "'://' is no database URL", "usage"),
        ("nosuchdb://host/name", "no database called 'nosuchdb' is known", "usage"),
        ("sqlite://", "in-memory ledger", "usage"),
        ("sqlite:///:memory:", "in-memory ledger", "usage"),
        ("sqlite:///file:x?mode=memory&uri=true", "in-memory ledger", "usage"),
        ("sqlite+nosuchdriver:///x.sqlite", "no database called", "usage"),
        ("mysql+pymysql://host/name", "is missing: pip install pymysql", "unavailable"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url, message, reason):
    error = refusal(url)
    assert message in str(error) and error.reason == reason


@pytest.mark.parametrize(
    "url",
    ["x y://user:secret@host/db", "postgresql://user:secret@host:port/db", "no://u:secret@host/db"],
    ids=["no scheme", "no port", "no such database"],
)
def test_no_message_shows_a_password(url):
    error = refusal(url)
    assert "secret" not in str(error) and error.reason == "usage"


def test_a_directory_is_refused(tmp_path):
    assert "is a directory" in str(refusal(str(tmp_path)))


def test_a_missing_directory_is_named(tmp_path):
    error = refusal(str(tmp_path / "no" / "ledger.sqlite"))
    assert f"the directory {tmp_path / 'no'} does not exist" in str(error)
    assert error.reason == "missing"
    assert not (tmp_path / "no").exists()


def test_reading_a_ledger_that_is_not_there_creates_nothing(path):
    error = refusal(str(path), create=False)
    assert f"no ledger at {path}" in str(error) and error.reason == "missing"
    path.touch()
    assert "is empty: run `asv run`" in str(refusal(str(path), create=False))
    assert path.stat().st_size == 0


def test_a_file_that_is_no_database_is_refused_and_left_alone(path):
    path.write_bytes(b"benchmark,median\n" * 100)
    assert "is not a SQLite database" in str(refusal(str(path)))
    assert path.read_bytes() == b"benchmark,median\n" * 100


def test_somebody_elses_database_is_refused_and_left_alone(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE photographs (id)")
    assert "is a database but not a K3Bench ledger (it holds photographs)" in str(
        refusal(str(path))
    )
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert names == [("photographs",)]


def test_a_damaged_ledger_says_how_to_mend_it(ledger, path, manifest, make_record):
    ingest(ledger, [make_record() for _ in range(200)], [manifest])
    ledger.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    message = r"is damaged .* restore results\.sqlite from git"
    with (
        pytest.raises(LedgerError, match=message),
        open_ledger(str(path)) as damaged,
        damaged.session() as session,
    ):
        select_results(session)


def test_a_lock_held_too_long_is_reported(ledger, path, monkeypatch):
    monkeypatch.setattr("k3bench.ledger.faults.BUSY_TIMEOUT_S", 0.1)
    impatient = open_ledger(str(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked by another process") as caught:
            ingest(impatient, [], runs=[{"id": "r", "started_at": "2026-08-01T12:00:00Z"}])
    assert caught.value.reason == "unavailable"
    ingest(impatient, [], runs=[{"id": "r", "started_at": "2026-08-01T12:00:00Z"}])


def test_a_read_only_ledger_reads_and_says_why_it_does_not_write(ledger, path):
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    reader = open_ledger(f"sqlite:///file:{path}?mode=ro&uri=true")
    with reader.session() as session:
        assert select_results(session) == []
    with pytest.raises(LedgerError, match="is read-only: make it writable") as caught:
        ingest(reader, [], runs=[{"id": "r", "started_at": "2026-08-01T12:00:00Z"}])
    assert caught.value.reason == "unavailable"


@pytest.mark.parametrize("how", ["flush", "statement"])
def test_a_reading_session_does_not_write(ledger, how):
    with pytest.raises(LedgerError, match="open it with write=True"), ledger.session() as session:
        if how == "flush":
            session.add(Run(id="r", started_at=None, finished_at=None, command=None))
            session.flush()
        else:
            session.execute(delete(Result))


def test_what_fails_inside_a_writing_session_leaves_nothing(ledger):
    run = {"id": "r", "started_at": "2026-08-01T12:00:00Z"}
    ingest(ledger, [], runs=[run])
    with pytest.raises(KeyError), ledger.session(write=True) as session:
        session.execute(delete(Run))
        raise KeyError("something of the caller's")
    with ledger.session() as session:
        assert session.scalars(select(Run.id)).all() == ["r"]


def test_without_a_project_the_message_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("k3bench.paths.__file__", str(tmp_path / "site" / "k3bench" / "paths.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProjectNotFound, match="run k3bench inside a checkout"):
        open_ledger()


def test_a_postgresql_server_that_is_away_is_reported_without_the_password():
    pytest.importorskip("psycopg", reason="the PostgreSQL driver is not installed")
    error = refusal("postgresql+psycopg://user:secret@127.0.0.1:9/ledger")
    assert error.reason == "unavailable" and "secret" not in str(error)


def test_an_unknown_database_error_still_is_one_line():
    message, reason = explained(RuntimeError("first\nsecond"), "there")
    assert (message, reason) == ("there: first", "unavailable")
