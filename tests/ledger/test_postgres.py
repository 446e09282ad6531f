"""PostgreSQL itself: what it refuses, deadlocks and races, and a server that comes and goes."""

import threading
import time

import pytest
from ledger.postgres_server import PostgresServer
from sqlalchemy import event, text

from k3bench.ledger import LedgerError, faults, ingest, iterate_records, open_ledger
from k3bench.ledger.check import check


@pytest.fixture
def server(postgres: PostgresServer) -> PostgresServer:
    return postgres


@pytest.fixture
def url(database: str) -> str:
    return database


def refusal(url: str) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        open_ledger(url)
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_plain_scheme_means_the_driver_that_is_installed(ledger):
    assert ledger.engine.driver == "psycopg"
    assert ledger.name.startswith("postgresql+psycopg://")


def test_a_missing_database_is_named(server):
    error = refusal(server.url("nowhere"))
    assert "no such database: create it first" in str(error) and error.reason == "missing"
    assert not error.transient


def test_a_refused_login_is_not_tried_again(server):
    start = time.monotonic()
    error = refusal(server.url("postgres").replace("tester", "stranger"))
    assert "refuses the login" in str(error) and error.reason == "usage"
    assert time.monotonic() - start < faults.RETRY_FOR_S


def test_a_password_in_the_query_is_not_shown(server):
    error = refusal(server.url("nowhere") + "&password=secret&sslpassword=secret")
    assert "secret" not in str(error)


def test_settings_of_the_url_are_kept_beside_ours(url):
    with open_ledger(url + "&options=-c%20work_mem%3D7MB") as ledger, ledger.session() as session:
        shown = {
            name: session.scalar(text(f"SHOW {name}"))
            for name in ("work_mem", "TimeZone", "lock_timeout", "application_name")
        }
    assert shown == {
        "work_mem": "7MB", "TimeZone": "UTC", "lock_timeout": "1min", "application_name": "k3bench",
    }  # fmt: skip


def test_the_server_itself_keeps_a_reading_session_from_writing(ledger):
    with (
        pytest.raises(LedgerError, match="is read-only") as caught,
        ledger.session() as session,
    ):
        session.connection().exec_driver_sql("DELETE FROM result")
    assert caught.value.reason == "unavailable"


def test_other_tables_in_the_database_are_left_alone(server):
    url = server.url(server.create_database())
    name = url.split("@/")[1].split("?")[0]
    with server.connect(name) as connection:
        connection.execute("CREATE TABLE photographs (id int)")
    open_ledger(url).close()
    with server.connect(name) as connection:
        assert connection.execute("SELECT count(*) FROM photographs").fetchone() == (0,)


def test_a_deadlock_is_met_by_trying_again(url, manifest, make_record):
    runs = [{"id": name, "started_at": "2026-08-01T12:00:00Z"} for name in ("run-a", "run-b")]
    finished = [{**run, "finished_at": "2026-08-01T13:00:00Z"} for run in runs]
    victim_url = url + "&options=-c%20deadlock_timeout%3D500ms"
    outcome: list[int] = []
    lock = "SELECT * FROM run WHERE id = '{}' FOR UPDATE"
    with open_ledger(url) as other, open_ledger(victim_url) as ledger:
        ingest(ledger, [], [manifest], runs)
        failures: list[str] = []
        event.listen(
            ledger.engine, "handle_error", lambda e: failures.append(e.original_exception.sqlstate)
        )
        with other.engine.connect() as crossing:
            # run-b first, then run-a: against the order in which ingest locks them. It is ingest
            # whose lock check comes first, and which has to give way.
            crossing.exec_driver_sql("SET deadlock_timeout = '60s'")
            crossing.exec_driver_sql(lock.format("run-b"))
            thread = threading.Thread(
                target=lambda: outcome.append(
                    ingest(ledger, [make_record(run_id="run-b")], runs=finished).inserted
                )
            )
            thread.start()
            wait_for_a_waiting_lock(other)
            crossing.exec_driver_sql(lock.format("run-a"))
            crossing.rollback()
        thread.join(10)
        assert failures == ["40P01"] and outcome == [1]
        assert check(ledger).problems == ()


def wait_for_a_waiting_lock(ledger) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with ledger.engine.connect() as connection:
            if connection.exec_driver_sql(
                "SELECT count(*) FROM pg_locks WHERE NOT granted"
            ).scalar():
                return
        time.sleep(0.01)
    raise AssertionError("nobody waits for a lock")


def test_a_serialization_failure_is_tried_again_and_then_reported(ledger, monkeypatch):
    monkeypatch.setattr(faults, "RETRY_FOR_S", 0.3)
    attempts = []

    def always() -> None:
        attempts.append(time.monotonic())
        raise_state("40001")

    def raise_state(state: str) -> None:
        with ledger.session(write=True) as session:
            session.connection().exec_driver_sql(
                f"DO $$ BEGIN RAISE EXCEPTION 'made up' USING ERRCODE = '{state}'; END $$"
            )

    with pytest.raises(LedgerError, match="SQLSTATE 40001"):
        faults.retrying(always)
    assert 3 <= len(attempts) <= 12
    assert attempts[-1] - attempts[0] <= 0.35
    attempts.clear()
    with pytest.raises(LedgerError, match="SQLSTATE 22012"):
        faults.retrying(lambda: (attempts.append(0), raise_state("22012")))
    assert len(attempts) == 1, "what will fail again is not tried again"


def test_a_lock_held_too_long_is_reported(url, manifest, make_record, monkeypatch):
    monkeypatch.setattr(faults, "BUSY_TIMEOUT_S", 1)
    with open_ledger(url) as holder, open_ledger(url) as impatient:
        with holder.engine.connect() as connection:
            connection.exec_driver_sql("LOCK TABLE result IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(LedgerError, match="has been locked by another process") as caught:
                ingest(impatient, [make_record()], [manifest])
        assert caught.value.reason == "unavailable"
        assert ingest(impatient, [make_record()], [manifest]).inserted == 1


def test_an_open_ledger_outlives_a_restart_of_its_server(server, url, manifest, make_record):
    before, after = make_record(), make_record()
    with open_ledger(url) as ledger:
        ingest(ledger, [before], [manifest])
        server.kill()
        server.start()
        assert ingest(ledger, [after]).inserted == 1
        with ledger.session() as session:
            found = {record.id for record in iterate_records(session)}
    assert found == {before["id"], after["id"]}


def test_an_ingest_waits_for_a_server_that_restarts(
    server, url, manifest, make_record, monkeypatch
):
    monkeypatch.setattr(faults, "RETRY_FOR_S", 30.0)
    record = make_record()
    with open_ledger(url) as ledger:
        ingest(ledger, [], [manifest])
        server.kill()
        restart = threading.Timer(0.5, server.start)
        restart.start()
        assert ingest(ledger, [record]).inserted == 1
        restart.join()
        assert check(ledger).results == 1


def test_a_server_that_stays_away_is_reported_in_bounded_time(server, url, manifest, make_record):
    with open_ledger(url) as ledger:
        ingest(ledger, [], [manifest])
        server.kill()
        start = time.monotonic()
        with pytest.raises(LedgerError, match="cannot be reached") as caught:
            ingest(ledger, [make_record()])
        with pytest.raises(LedgerError, match="cannot be reached"):
            open_ledger(url)
        assert time.monotonic() - start < 2 * faults.RETRY_FOR_S + 2
    assert caught.value.reason == "unavailable" and caught.value.transient


def test_a_server_killed_in_mid_transaction_keeps_nothing_of_it(server, url, manifest, make_record):
    with open_ledger(url) as ledger:
        ingest(ledger, [make_record()], [manifest])
        with (
            pytest.raises(LedgerError, match=r"57P0|cannot be reached"),
            ledger.session(write=True) as session,
        ):
            session.connection().exec_driver_sql("UPDATE result SET compile_s = 7")
            server.kill()
            server.start()
        with ledger.session() as session:
            assert [record.compile_s for record in iterate_records(session)] == [0.5]


def test_a_server_killed_in_the_middle_of_a_copy_is_met_by_trying_again(
    server, url, manifest, make_record, monkeypatch
):
    monkeypatch.setattr(faults, "RETRY_FOR_S", 30.0)
    records = [make_record() for _ in range(200)]
    with open_ledger(url) as ledger:
        ingest(ledger, [], [manifest])
        killed = []

        @event.listens_for(ledger.engine, "after_cursor_execute")
        def kill_before_the_copy(_connection, _cursor, statement, *_):
            if statement.startswith("CREATE TEMPORARY TABLE") and not killed:
                killed.append(statement)
                server.kill()
                server.start()

        assert ingest(ledger, records).inserted == 200
        assert killed and check(ledger).problems == ()
