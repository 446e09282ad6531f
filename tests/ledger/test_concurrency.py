"""Several processes at once, and processes that die: everything acknowledged is there, once."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from k3bench.ledger import ingest, iterate_records, open_ledger
from k3bench.ledger.check import check

WRITERS = Path(__file__).with_name("writers.py")


@pytest.fixture
def manifest_file(tmp_path, manifest):
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(manifest))
    return file


@contextmanager
def writer(*arguments):
    process = subprocess.Popen(
        [sys.executable, str(WRITERS), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(WRITERS.parents[2])},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def start_together(processes):
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


def ids_in(path) -> set[str]:
    with open_ledger(str(path)) as ledger, ledger.session() as session:
        return {record.id for record in iterate_records(session)}


def test_two_processes_ingesting_at_once_both_land(path, manifest_file):
    # Neither the file nor its schema exists yet: the first opening races as well.
    arguments = ("batches", path, manifest_file, 15, 20)
    with writer(*arguments) as first, writer(*arguments) as second:
        start_together([first, second])
        acknowledged = [set(process.stdout.read().split()) for process in (first, second)]
        for process in (first, second):
            process.wait()
        assert (first.returncode, second.returncode) == (0, 0)
    assert [len(ids) for ids in acknowledged] == [300, 300]
    assert ids_in(path) == acknowledged[0] | acknowledged[1]
    report = check(open_ledger(str(path)))
    assert report.problems == () and report.results == 600 and report.manifests == 1


def test_readers_go_on_while_a_writer_writes(ledger, path, manifest, make_record):
    ingest(ledger, [make_record()], [manifest])
    with ledger.session(write=True) as session:
        session.connection().exec_driver_sql("UPDATE result SET compile_s = 1")
        with open_ledger(str(path)).session() as reader:
            assert [record.compile_s for record in iterate_records(reader)] == [0.5]


def test_a_writer_killed_in_mid_transaction_leaves_nothing_and_no_lock(
    ledger, path, manifest, manifest_file, make_record
):
    before = [make_record() for _ in range(20)]
    ingest(ledger, before, [manifest])
    with writer("stuck", path, manifest_file) as process:
        assert process.stdout.readline() == "half-way\n", process.stderr.read()
        process.send_signal(signal.SIGKILL)
        process.wait()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert ids_in(path) == {record["id"] for record in before}
    start = time.monotonic()
    assert ingest(open_ledger(str(path)), [make_record()]).inserted == 1
    assert time.monotonic() - start < 5
    assert check(ledger).ok


def test_kill_at_any_moment_loses_no_acknowledged_record(path, manifest_file):
    acknowledged: set[str] = set()
    for delay in (0.0, 0.05, 0.13):
        with writer("batches", path, manifest_file, 10_000, 5) as process:
            start_together([process])
            acknowledged.add(process.stdout.readline().strip())
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            acknowledged.update(process.stdout.read().split())
    # A batch can be in without having been acknowledged, but never in part.
    found = ids_in(path)
    assert len(acknowledged) >= 3
    assert acknowledged <= found and len(found) % 5 == 0
    assert len(found) - len(acknowledged) <= 3 * 5
    assert check(open_ledger(str(path))).problems == ()
