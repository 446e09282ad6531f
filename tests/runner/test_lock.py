"""The device lock, with real processes: exclusive, waited for, free when its holder dies."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from k3bench.runner.lock import (
    DeviceBusyError,
    DeviceLock,
    LockError,
    devices_to_lock,
    exclusive,
    holders,
    lock_directory,
    wait_seconds,
)

HOLDER = """
import os, sys, time
from pathlib import Path
from k3bench.runner.lock import DeviceLock
lock = DeviceLock("amd-0", Path(sys.argv[1]))
lock.acquire(30)
if "fork" in sys.argv[2:]:
    if os.fork():
        print("held", os.getpid(), flush=True)
        os._exit(0)
    time.sleep(float(sys.argv[3]))
    os._exit(0)
print("held", os.getpid(), flush=True)
time.sleep(float(sys.argv[2]))
lock.release()
"""

COUNTER = """
import sys, time
from pathlib import Path
from k3bench.runner.lock import exclusive
directory, log, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
for _ in range(5):
    with exclusive(["amd-0"], 30, say=lambda line: None, directory=directory):
        with open(log, "a") as stream:
            stream.write(f"in {name}\\n"); stream.flush()
            time.sleep(0.02)
            stream.write(f"out {name}\\n")
"""


def hold(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), *arguments],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline().startswith("held")
    return process


def test_a_device_in_use_is_refused_at_once_with_its_owner_named(tmp_path: Path) -> None:
    holder = hold(tmp_path, "30")
    try:
        with pytest.raises(DeviceBusyError, match=f"held by pid {holder.pid} on .*K3BENCH_LOCK_W"):
            DeviceLock("amd-0", tmp_path).acquire(0)
        owner = holders(["amd-0", "amd-1"], tmp_path)
        assert list(owner) == ["amd-0"] and owner["amd-0"] is not None
        assert owner["amd-0"].pid == holder.pid and owner["amd-0"].is_alive() is True
    finally:
        holder.kill()
        holder.wait()


def test_another_device_is_free(tmp_path: Path) -> None:
    holder = hold(tmp_path, "30")
    with exclusive(["amd-1"], 0, directory=tmp_path):
        pass
    holder.kill()
    holder.wait()


def test_a_waiting_process_says_so_once_and_goes_on_when_the_device_is_given_back(
    tmp_path: Path,
) -> None:
    holder = hold(tmp_path, "0.5")
    said: list[str] = []
    with exclusive(["amd-0"], 30, said.append, tmp_path):
        assert len(said) == 1
        assert said[0].startswith(
            f"k3bench: waiting up to 30 s for amd-0, in use by pid {holder.pid}"
        )
    assert holder.wait() == 0


def test_a_killed_holder_frees_the_device_and_is_reported(tmp_path: Path) -> None:
    holder = hold(tmp_path, "60")
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    said: list[str] = []
    before = time.monotonic()
    with exclusive(["amd-0"], 30, said.append, tmp_path):
        assert time.monotonic() - before < 5
    assert len(said) == 1
    assert f"left by pid {holder.pid}" in said[0] and "which died; taken over" in said[0]
    # It is given back properly now: the next one has nothing to report.
    with exclusive(["amd-0"], 0, said.append, tmp_path):
        assert len(said) == 1


def test_a_child_of_a_dead_holder_still_holds_the_device(tmp_path: Path) -> None:
    holder = hold(tmp_path, "fork", "3")
    holder.wait()
    with pytest.raises(DeviceBusyError, match="is gone, but one that it started still holds"):
        DeviceLock("amd-0", tmp_path).acquire(0)


KEEPER = """
import sys, time
from pathlib import Path
from k3bench.runner.lock import exclusive
for _ in range(2):  # the same process again: it holds the device already
    with exclusive(["tpu-0"], 0, directory=Path(sys.argv[1]), until_exit=True):
        owner = (Path(sys.argv[1]) / "tpu-0.lock").read_text()
        assert "pid" in owner
print("done", flush=True)
time.sleep(60)
"""


def test_a_device_kept_until_exit_is_held_after_its_use_and_left_clean(tmp_path: Path) -> None:
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdout is not None and keeper.stdout.readline() == "done\n"
    with pytest.raises(DeviceBusyError, match="held by a process that has not said who it is"):
        DeviceLock("tpu-0", tmp_path).acquire(0)
    keeper.kill()
    keeper.wait()
    said: list[str] = []
    with exclusive(["tpu-0"], 5, said.append, tmp_path):
        assert said == [], "it was done: nothing was left behind"


def test_processes_never_hold_it_together(tmp_path: Path) -> None:
    log = tmp_path / "log"
    crowd = [
        subprocess.Popen([sys.executable, "-c", COUNTER, str(tmp_path), str(log), str(number)])
        for number in range(3)
    ]
    assert [process.wait(60) for process in crowd] == [0, 0, 0]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 30
    for entering, leaving in zip(lines[::2], lines[1::2], strict=True):
        assert entering == ["in", leaving[1]] and leaving[0] == "out"


def test_the_lock_file_is_everybody_s_and_links_are_not_followed(tmp_path: Path) -> None:
    lock = DeviceLock("tpu-0", tmp_path)
    assert lock.try_acquire()
    assert stat.S_IMODE(lock.path.stat().st_mode) == 0o666
    assert json.loads(lock.path.read_text())["pid"] == os.getpid()
    lock.release()
    assert lock.path.read_text() == ""
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "tpu-1.lock").symlink_to(target)
    with pytest.raises(LockError, match="tpu-1"):
        DeviceLock("tpu-1", tmp_path).try_acquire()
    assert target.read_text() == "precious"


def test_a_half_written_owner_is_no_owner(tmp_path: Path) -> None:
    (tmp_path / "amd-0.lock").write_text('{"pid": 12')
    with exclusive(["amd-0"], 0, directory=tmp_path):
        pass


@pytest.mark.parametrize(
    ("nodes", "environ", "preset", "devices"),
    [
        ((), {}, "smoke", ()),
        ((), {}, "quick", ()),
        ((), {}, "device", ("cpu",)),
        (("accel0",), {}, "smoke", ("tpu-0",)),
        (("vfio/0",), {"TPU_VISIBLE_CHIPS": "2"}, "device", ("tpu-2",)),
        (("kfd",), {}, "device", ("amd-0",)),
        (("kfd",), {"HIP_VISIBLE_DEVICES": "3,4"}, "device", ("amd-3",)),
        (("kfd",), {"ROCR_VISIBLE_DEVICES": "5,6"}, "device", ("amd-5",)),
        (
            ("kfd",),
            {"ROCR_VISIBLE_DEVICES": "5,6", "HIP_VISIBLE_DEVICES": "1"},
            "device",
            ("amd-6",),
        ),
        (("kfd",), {"ROCR_VISIBLE_DEVICES": "GPU-ab/1"}, "device", ("amd-GPU-ab_1",)),
        (("nvidiactl",), {"CUDA_VISIBLE_DEVICES": ""}, "smoke", ("nvidia-0",)),
    ],
)
def test_which_devices_a_process_locks(
    tmp_path: Path, nodes: tuple[str, ...], environ: dict[str, str], preset: str, devices: tuple
) -> None:
    for node in nodes:
        path = tmp_path / "dev" / node
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert devices_to_lock(preset, environ, tmp_path) == devices


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_waiting_time_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(LockError, match="give seconds, 0 to fail at once"):
        wait_seconds({"K3BENCH_LOCK_WAIT_S": text})


def test_a_lock_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LockError, match="K3BENCH_LOCK_DIR"):
        lock_directory({"K3BENCH_LOCK_DIR": str(tmp_path / "file" / "below")})
