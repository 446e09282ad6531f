"""A database that goes away in the middle of a run loses nothing: the journal holds the points."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness.asv_project import ToyProject
from ledger.postgres_server import PostgresServer

from k3bench.ledger import iterate_records, open_ledger, select_runs
from k3bench.ledger.check import check

EVERY_POINT = sorted((point, name) for point in (1, 2, 3) for name in ("fast", "slow"))


@pytest.fixture
def server(postgres: PostgresServer) -> PostgresServer:
    return postgres


@pytest.fixture
def url(database: str) -> str:
    return database


def points_in(url: str) -> list[tuple[int, str]]:
    with open_ledger(url) as ledger, ledger.session() as session:
        records = list(iterate_records(session))
    return sorted((record.parameters["point"], record.implementation) for record in records)


def journals(project: ToyProject) -> list[Path]:
    return list((project.root / ".k3bench" / "runs").glob("*/*/*-*.json"))


def k3bench(project: ToyProject, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "k3bench", *arguments],
        cwd=project.root, env=project.environ(K3BENCH_DB=url), text=True, capture_output=True,
    )  # fmt: skip


@pytest.mark.slow
def test_a_server_killed_in_mid_run_loses_no_point_and_doubles_none(tmp_path, server, url):
    project = ToyProject.create(tmp_path)
    project.commit("Slow enough to be interrupted", seconds=0.03)
    run = project.start("run", "--record-samples", "HEAD^!", K3BENCH_DB=url)
    deadline = time.monotonic() + 60
    while not points_in(url):
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.02)
    before = points_in(url)
    server.kill()
    output, _ = run.communicate(timeout=120)

    assert run.returncode == 0, output
    assert len(before) < len(EVERY_POINT), "the server was killed too late to show anything"
    assert "6 points in the journal, not yet in the ledger (6 ok)" in output
    assert "stay in its journal" in output and "`k3bench ledger sync`" in output
    assert "Traceback" not in output
    assert len(journals(project)) == 6
    away = k3bench(project, url, "ledger", "sync")
    assert away.returncode == 69 and "cannot be reached" in away.stderr
    assert len(journals(project)) == 6

    server.start()
    assert points_in(url) == before, "what was acknowledged is still there"
    for _ in range(2):
        synced = k3bench(project, url, "ledger", "sync", "--json")
        assert synced.returncode == 0, synced.stderr
        assert json.loads(synced.stdout) == {"points": 6}
        assert points_in(url) == EVERY_POINT
    with open_ledger(url) as ledger:
        report = check(ledger)
        assert report.problems == () and report.results == 6 and report.samples == 60

    # asv has these points in its own files, so the next run measures afresh and leaves no journal.
    output = project.asv("run", "HEAD^!", "--bench", "fast", K3BENCH_DB=url)
    assert "3 points in the ledger (3 ok)" in output
    assert journals(project) == []
    assert len(points_in(url)) == 9
    with open_ledger(url) as ledger, ledger.session() as session:
        assert len(select_runs(session)) == 2


@pytest.mark.slow
def test_a_server_that_restarts_in_mid_run_is_caught_up_with_by_the_run_itself(
    tmp_path, server, url
):
    project = ToyProject.create(tmp_path)
    project.commit("Slow enough to be interrupted", seconds=0.03)
    run = project.start("run", "HEAD^!", K3BENCH_DB=url)
    deadline = time.monotonic() + 60
    while not journals(project):
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.02)
    server.kill()
    server.start()
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output
    assert "6 points in the ledger (6 ok)" in output
    assert points_in(url) == EVERY_POINT
    assert journals(project) == []
