"""Exclusive use of a device: one measuring process at a time, whoever started it.

The lock is a file held with ``flock``: the kernel frees it when its holder dies, however it dies,
so no lock outlives its owner. The file says who holds it; what a dead holder left there is
recognised (the lock is free, the file is not empty) and reported.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from k3bench.devices import has_amd_gpu, has_nvidia_gpu, has_tpu

DIRECTORY_VARIABLE = "K3BENCH_LOCK_DIR"
# How long a point waits for a device that somebody else measures on; 0 fails at once.
WAIT_VARIABLE = "K3BENCH_LOCK_WAIT_S"
DEFAULT_WAIT_S = 600.0
_POLL_S = 0.1
# Presets whose figures promise nothing that a neighbour on the same CPU would break.
_SHARED_CPU_PRESETS = ("smoke", "quick")


class LockError(ValueError):
    """The lock directory or the waiting time cannot be used; the message says how to mend it."""


class DeviceBusyError(RuntimeError):
    """Somebody else measures on the device; the message says who, and how to wait."""


@dataclass(frozen=True)
class Owner:
    """Who holds a device: a process of a host, what it runs and since when (ISO 8601, UTC)."""

    pid: int
    # The process's start in clock ticks since boot: a pid alone may have been given away again.
    started_ticks: int | None
    host: str
    command: str
    since: str

    @classmethod
    def this_process(cls) -> "Owner":
        """The calling process."""
        return cls(
            pid=os.getpid(),
            started_ticks=_started_ticks(os.getpid()),
            host=platform.node(),
            command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200],
            since=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def is_alive(self) -> bool | None:
        """Whether that process still runs; None where this host cannot know."""
        if self.host != platform.node() or self.started_ticks is None:
            return None
        return _started_ticks(self.pid) == self.started_ticks

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} ({self.command}; since {self.since})"


class DeviceLock:
    """The lock of one device of this host.

    Args:
        device: its name, e.g. ``tpu-0`` or ``amd-3`` (``devices_to_lock`` gives them).
        directory: where lock files lie; K3BENCH_LOCK_DIR, else ``k3bench-locks`` below the
            temporary directory, which all users of the host share.

    Attributes:
        left_by: set by taking the lock: a holder that died without giving it back.
    """

    def __init__(self, device: str, directory: Path | None = None) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", device):
            raise LockError(f"device {device!r}: a name of letters, digits, - and . is wanted")
        self.device = device
        self.path = (directory or lock_directory()) / f"{device}.lock"
        self.left_by: Owner | None = None
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Takes the lock if nobody holds it.

        Raises:
            LockError: the lock file cannot be opened.
        """
        descriptor = _open_shared(self.path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self.left_by = _read_owner(descriptor)
        self._descriptor = descriptor
        self.name_owner()
        return True

    def acquire(
        self, wait_s: float, on_wait: Callable[["Owner | None"], None] = lambda owner: None
    ) -> None:
        """Takes the lock, waiting for it up to ``wait_s`` seconds.

        Args:
            wait_s: 0 fails at once.
            on_wait: called once with the present owner, where there is something to wait for.

        Raises:
            DeviceBusyError: it was not freed in time.
        """
        # A second try in any case: somebody may only be looking at the lock (``holders``).
        deadline = time.monotonic() + max(wait_s, _POLL_S)
        told = wait_s == 0
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                raise DeviceBusyError(self._busy(wait_s))
            if not told:
                on_wait(self.owner())
                told = True
            time.sleep(_POLL_S)

    def owner(self) -> Owner | None:
        """What the lock file says about its holder (who may be gone); None where it says nothing.

        Raises:
            LockError: the lock file cannot be opened.
        """
        descriptor = _open_shared(self.path)
        try:
            return _read_owner(descriptor)
        finally:
            os.close(descriptor)

    def forget_owner(self) -> None:
        """Says that the holder is done, while it still holds the device."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)

    def name_owner(self) -> None:
        """Says that this process holds the device."""
        if self._descriptor is not None:
            _write_owner(self._descriptor, Owner.this_process())

    def release(self) -> None:
        """Gives the device back. The file stays: removing it would let two processes hold two."""
        if self._descriptor is not None:
            self.forget_owner()
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _busy(self, wait_s: float) -> str:
        owner = self.owner()
        who = f"held by {owner}" if owner else "held by a process that has not said who it is"
        if owner is not None and owner.is_alive() is False:
            who += "; that process is gone, but one that it started still holds the device"
        waited = f" after {wait_s:g} s" if wait_s else ""
        return (
            f"device {self.device} is still in use{waited}, {who}: wait for it, or set "
            f"{WAIT_VARIABLE} to wait longer"
        )


# Locks that a process keeps until it ends, by process (a fork inherits the table, not its locks).
_kept: dict[tuple[int, Path], DeviceLock] = {}


@contextlib.contextmanager
def exclusive(
    devices: Sequence[str],
    wait_s: float | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
    directory: Path | None = None,
    *,
    until_exit: bool = False,
) -> Iterator[None]:
    """Holds several devices, taken in the order of their names so that two callers cannot deadlock.

    Args:
        devices: their names.
        wait_s: as for ``DeviceLock.acquire``; ``wait_seconds()`` by default.
        say: gets a line where it waits, and where a dead holder is found.
        directory: as for ``DeviceLock``.
        until_exit: keep holding until this process ends. A runtime keeps its device that long (a
            TPU's lets nobody else start), so a device given back earlier would not be free.

    Raises:
        DeviceBusyError: one was not freed in time.
        LockError: the lock directory cannot be used.
    """
    limit = wait_seconds() if wait_s is None else wait_s
    with contextlib.ExitStack() as held:
        for device in sorted(set(devices)):
            lock = DeviceLock(device, directory)
            mine = (os.getpid(), lock.path)
            if mine in _kept:
                _kept[mine].name_owner()
                held.callback(_kept[mine].forget_owner)
                continue

            def waiting(owner: Owner | None, device: str = device) -> None:
                who = owner or "another process"
                say(f"k3bench: waiting up to {limit:g} s for {device}, in use by {who}")

            lock.acquire(limit, waiting)
            if until_exit:
                _kept[mine] = lock
                held.callback(lock.forget_owner)
            else:
                held.enter_context(lock)
            if lock.left_by is not None:
                say(f"k3bench: {device} was left by {lock.left_by}, which died; taken over")
        yield


def holders(devices: Sequence[str], directory: Path | None = None) -> dict[str, Owner | None]:
    """The devices that somebody holds right now, with what is known of the holder."""
    found: dict[str, Owner | None] = {}
    for device in devices:
        lock = DeviceLock(device, directory)
        descriptor = _open_shared(lock.path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            found[device] = _read_owner(descriptor)
        finally:
            os.close(descriptor)
    return found


def devices_to_lock(
    preset: str, environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> tuple[str, ...]:
    """Names of the devices that a measuring process of this environment uses exclusively.

    By device nodes and variables alone, before any runtime is started: a TPU's runtime fails when
    another process holds the chip, and a GPU's would disturb it. The suite measures on the first
    visible device; a visible device is named as the variable names it (an index or a UUID: use one
    way on one host). Without accelerators it is the CPU, except for ``smoke`` and ``quick``.
    """
    environ = os.environ if environ is None else environ
    devices = []
    if has_tpu(root):
        devices.append("tpu-" + _first(environ, "TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"))
    if has_amd_gpu(root):
        devices.append("amd-" + _first_amd(environ))
    if has_nvidia_gpu(root):
        devices.append("nvidia-" + _first(environ, "CUDA_VISIBLE_DEVICES"))
    if not devices and preset not in _SHARED_CPU_PRESETS:
        devices.append("cpu")
    return tuple(devices)


def _first(environ: Mapping[str, str], *variables: str) -> str:
    """The first entry of the first variable that names any; "0" where none does."""
    for variable in variables:
        entry = environ.get(variable, "").split(",")[0].strip()
        if entry:
            return re.sub(r"[^\w.-]", "_", entry)
    return "0"


def _first_amd(environ: Mapping[str, str]) -> str:
    """ROCR_VISIBLE_DEVICES chooses from the host's devices, HIP_VISIBLE_DEVICES among those."""
    chosen = _first(environ, "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    outer = [part.strip() for part in environ.get("ROCR_VISIBLE_DEVICES", "").split(",")]
    if outer != [""] and chosen.isdigit() and int(chosen) < len(outer):
        return re.sub(r"[^\w.-]", "_", outer[int(chosen)])
    return chosen


def wait_seconds(environ: Mapping[str, str] | None = None) -> float:
    """How long to wait for a device: K3BENCH_LOCK_WAIT_S, else ten minutes.

    Raises:
        LockError: the variable is no number of seconds.
    """
    environ = os.environ if environ is None else environ
    text = environ.get(WAIT_VARIABLE, "")
    if not text:
        return DEFAULT_WAIT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise LockError(f"{WAIT_VARIABLE}={text}: give seconds, 0 to fail at once")
    return seconds


def lock_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where the host's lock files lie; made where it is missing, for all users.

    Raises:
        LockError: it is no directory that can be written to.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(DIRECTORY_VARIABLE)
    path = Path(named) if named else Path(tempfile.gettempdir()) / "k3bench-locks"
    try:
        path.mkdir(parents=True)
        path.chmod(0o1777)
    except FileExistsError:
        pass
    except OSError as error:
        raise LockError(f"{path}: {error.strerror}: set {DIRECTORY_VARIABLE}") from error
    if not stat.S_ISDIR(path.lstat().st_mode) and not named:
        raise LockError(f"{path}: is no directory: set {DIRECTORY_VARIABLE} to one")
    return path


def _open_shared(path: Path) -> int:
    """The lock file, made for every user where it is missing; links are not followed."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(3):
        try:
            # Without O_CREAT first: Linux refuses to "create" another user's file in a sticky
            # directory even where it is there to be opened.
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL)
                os.fchmod(descriptor, 0o666)
                return descriptor
        except OSError as error:
            raise LockError(f"{path}: {error.strerror}: set {DIRECTORY_VARIABLE}") from error
    raise LockError(f"{path}: comes and goes: set {DIRECTORY_VARIABLE} to a directory of its own")


def _read_owner(descriptor: int) -> Owner | None:
    text = os.pread(descriptor, 4096, 0)
    try:
        return Owner(**json.loads(text)) if text.strip() else None
    except (TypeError, ValueError):  # half-written by a holder that was killed just then
        return None


def _write_owner(descriptor: int, owner: Owner) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(owner)).encode(), 0)


def _started_ticks(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19])
