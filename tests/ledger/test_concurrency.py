"""Several processes at once, and processes that die: everything acknowledged is there, once."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
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


def ids_in(url) -> set[str]:
    with open_ledger(url) as ledger, ledger.session() as session:
        return {record.id for record in iterate_records(session)}


def audited(url):
    with open_ledger(url) as ledger:
        return check(ledger)


def test_four_processes_ingesting_at_once_all_land(empty_url, manifest_file):
    # Neither the file nor its schema exists yet: the first opening races as well.
    arguments = ("batches", empty_url, manifest_file, 8, 20)
    with ExitStack() as stack:
        processes = [stack.enter_context(writer(*arguments)) for _ in range(4)]
        start_together(processes)
        acknowledged = [set(process.stdout.read().split()) for process in processes]
        for process in processes:
            assert process.wait() == 0, process.stderr.read()
    assert [len(ids) for ids in acknowledged] == [160] * 4
    assert ids_in(empty_url) == set().union(*acknowledged)
    report = audited(empty_url)
    assert report.problems == () and report.results == 640 and report.manifests == 1


def test_processes_with_the_same_records_enter_them_once(url, manifest_file):
    # Same keys in different orders: what would deadlock if anything did.
    with ExitStack() as stack:
        processes = [
            stack.enter_context(writer("same", url, manifest_file, 10, 30)) for _ in range(3)
        ]
        start_together(processes)
        for process in processes:
            assert len(process.stdout.read().split()) == 300, process.stderr.read()
            assert process.wait() == 0
    assert ids_in(url) == {f"{number:032x}" for number in range(300)}
    assert audited(url).problems == ()


def test_readers_go_on_while_a_writer_writes(ledger, url, manifest, make_record):
    ingest(ledger, [make_record()], [manifest])
    with ledger.session(write=True) as session:
        session.connection().exec_driver_sql("UPDATE result SET compile_s = 1")
        with open_ledger(url) as other, other.session() as reader:
            assert [record.compile_s for record in iterate_records(reader)] == [0.5]


def test_a_reader_sees_one_state_however_many_questions_it_asks(ledger, url, manifest, make_record):
    ingest(ledger, [make_record()], [manifest])
    with open_ledger(url) as other, other.session() as reader:
        before = [record.id for record in iterate_records(reader)]
        ingest(ledger, [make_record() for _ in range(3)])
        assert [record.id for record in iterate_records(reader)] == before
    assert len(ids_in(url)) == 4


def test_a_writer_killed_in_mid_transaction_leaves_nothing_and_no_lock(
    ledger, url, manifest, manifest_file, make_record
):
    before = [make_record() for _ in range(20)]
    ingest(ledger, before, [manifest])
    with writer("stuck", url, manifest_file) as process:
        assert process.stdout.readline() == "half-way\n", process.stderr.read()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert ids_in(url) == {record["id"] for record in before}
    start = time.monotonic()
    assert ingest(ledger, [make_record()]).inserted == 1
    assert time.monotonic() - start < 5
    assert audited(url).problems == ()


def test_kill_at_any_moment_loses_no_acknowledged_record(url, manifest_file):
    acknowledged: set[str] = set()
    for delay in (0.0, 0.05, 0.13):
        with writer("batches", url, manifest_file, 2_000, 5) as process:
            start_together([process])
            acknowledged.add(process.stdout.readline().strip())
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            acknowledged.update(process.stdout.read().split())
    # A batch can be in without having been acknowledged, but never in part.
    found = ids_in(url)
    assert len(acknowledged) >= 3
    assert acknowledged <= found and len(found) % 5 == 0
    assert len(found) - len(acknowledged) <= 3 * 5
    assert audited(url).problems == ()
