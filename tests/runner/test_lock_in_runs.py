"""An asv run and the device lock: a point waits for its device, or fails with the reason."""

import subprocess
import sys
from pathlib import Path

from harness.asv_project import ToyProject

HOLD = """
import sys, time
from k3bench.runner.lock import exclusive
with exclusive(["cpu"], 0):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
    with open(sys.argv[2], "a") as log:
        log.write("given back\\n")
"""


def hold(project: ToyProject, seconds: float, **environ: str) -> "subprocess.Popen[str]":
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(seconds), str(project.log)],
        env=project.environ(**environ), text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


def test_a_busy_device_fails_a_point_or_is_waited_for_and_smoke_shares_the_cpu(
    tmp_path: Path,
) -> None:
    project = ToyProject.create(tmp_path)
    locks = {"K3BENCH_LOCK_DIR": str(tmp_path / "locks")}
    ladder = {**locks, "K3BENCH_PRESET": "ladder"}
    one = ("run", "--show-stderr", "--bench", r"\(1, 'fast'")

    holder = hold(project, 300, **locks)
    output = project.asv(*one, expect=2, **ladder, K3BENCH_LOCK_WAIT_S="0")
    assert f"cpu is in use by pid {holder.pid}" in output
    assert "device cpu is still in use, held by pid" in output
    assert not project.logged(), "nothing of the point was run"
    project.asv(*one, **locks)
    assert [row["preset"] for row in project.results("--kind", "measured")] == ["smoke"]
    holder.kill()
    holder.wait()

    holder = hold(project, 12, **locks)
    before = len(project.logged())
    project.asv(*one, **ladder, K3BENCH_LOCK_WAIT_S="60")
    assert holder.wait() == 0
    assert project.logged()[before:] == ["given back", "experiment 1", "prepare 1 fast"]
    assert "ladder" in {row["preset"] for row in project.results("--kind", "measured")}
