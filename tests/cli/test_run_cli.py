"""`k3bench run` on a toy project: the command it shows, exit codes, interruption, resuming."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness.asv_project import ToyProject

from k3bench.runner.asv_run import RunRequest, outcome


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ToyProject:
    return ToyProject.create(tmp_path_factory.mktemp("run"))


def start(project: ToyProject, *arguments: str, **changes: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "k3bench", "run", *arguments],
        cwd=project.root, env=project.environ(**changes), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def k3bench_run(project: ToyProject, *arguments: str, expect: int = 0, **changes: str) -> str:
    process = start(project, *arguments, **changes)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == expect, output
    return output


def test_it_shows_the_asv_command_and_records_its_points(project: ToyProject) -> None:
    output = k3bench_run(project, "--preset", "smoke", "--bench", r"device_toy\(1")
    assert (
        "k3bench: K3BENCH_PRESET=smoke asv run --record-samples --bench 'device_toy\\(1' 'HEAD^!'"
        in output
    )
    assert "k3bench: 2 points, all right" in output
    rows = project.results("--kind", "measured", "--commit", "HEAD")
    assert [row["implementation"] for row in rows] == ["fast", "slow"]


def test_the_command_is_printed_alone_where_that_is_asked_for(project: ToyProject) -> None:
    before = project.logged()
    output = k3bench_run(
        project, "--print", "--preset", "device", "--commits", "HEAD", "--lock-wait", "0",
        "--fresh", "--", "--show-stderr",
    )  # fmt: skip
    assert output == (
        "K3BENCH_LOCK_WAIT_S=0 K3BENCH_PRESET=device K3BENCH_RESUME=0 "
        "asv run --record-samples --show-stderr 'HEAD^!'\n"
    )
    assert project.logged() == before


def test_the_machine_file_is_made_where_it_is_missing(project: ToyProject, tmp_path: Path) -> None:
    k3bench_run(project, "--bench", r"\(2, 'fast'", HOME=str(tmp_path))
    assert (tmp_path / ".asv-machine.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bench", "toy("), "--bench toy(: no regular expression"),
        (("--commits", "nowhere"), "--commits nowhere: git knows no such commit or range"),
        (("--commits", "HEAD..nowhere"), "git knows no such commit or range"),
        (("--commits", "--all"), "git knows no such commit or range"),
        (("--commits", ""), "git knows no such commit or range"),
        (("--preset", "fast"), "'fast' is not one of"),
        (("--lock-wait", "-1"), "--lock-wait"),
    ],
)
def test_a_request_that_cannot_be_meant_is_usage(
    project: ToyProject, arguments: tuple[str, ...], message: str
) -> None:
    assert message in k3bench_run(project, *arguments, expect=64)


def test_nothing_selected_could_not_be_judged(project: ToyProject) -> None:
    assert "asv ended with 1" in k3bench_run(project, "--bench", "no such thing", expect=2)


def test_what_cannot_run_here_is_nothing_measured(project: ToyProject) -> None:
    output = k3bench_run(project, "--bench", r"\(1, 'absent'", expect=2)
    assert "nothing was measured" in output


def test_a_wrong_kernel_is_a_failed_check(tmp_path: Path) -> None:
    project = ToyProject.create(tmp_path)
    project.commit("Break the slow kernel", seconds=0.001, error=0.25)
    output = k3bench_run(project, "--bench", r"\(1", expect=1)
    assert "1 of 2 points are wrong" in output


def test_a_commit_without_kernels_could_not_be_judged(tmp_path: Path) -> None:
    project = ToyProject.create(tmp_path)
    project.git("rm", "-rq", "--cached", "kda_tpu")
    project.git("commit", "-q", "-m", "No kernels")
    k3bench_run(project, "--bench", r"\(1, 'fast'", expect=2)


def test_an_interrupted_run_says_so_and_the_same_command_resumes(tmp_path: Path) -> None:
    project = ToyProject.create(tmp_path)
    project.commit("Slow enough to be interrupted", seconds=0.03)
    process = start(project)
    deadline = time.monotonic() + 60
    while not list((project.root / ".k3bench" / "runs").glob("*/*/*-*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "the same command resumes" in output
    kept = len(project.results("--kind", "measured"))
    assert kept
    output = k3bench_run(project)
    assert "finished points of the interrupted run" in output
    rows = project.results("--kind", "measured")
    assert len({(row["parameters"]["point"], row["implementation"]) for row in rows}) == 6


@pytest.mark.parametrize(
    ("asv_code", "counts", "interrupted", "code"),
    [
        (0, {"ok": 3}, False, 0),
        (2, {"ok": 3, "wrong": 1}, False, 1),
        (2, {"failed": 1, "wrong": 1}, False, 1),
        (2, {"ok": 3, "failed": 1}, False, 2),
        (2, {"ok": 3}, False, 2),
        (0, {}, False, 2),
        (1, {}, False, 2),
        (1, {"ok": 3}, True, 130),
    ],
)
def test_the_exit_code_says_how_it_went(
    asv_code: int, counts: dict[str, int], interrupted: bool, code: int
) -> None:
    found = outcome(asv_code, {"run_id": "r", "counts": counts}, interrupted)
    assert found.exit_code == code


def test_variables_of_the_request_are_quoted_for_a_shell() -> None:
    request = RunRequest(preset="smoke", variables={"XLA_FLAGS": "--a=b --c"})
    assert request.shown("HEAD^!") == (
        "K3BENCH_PRESET=smoke XLA_FLAGS='--a=b --c' asv run --record-samples 'HEAD^!'"
    )
