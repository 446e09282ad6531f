"""The machine as a capture sees it: text files below a root, the environment, programs on PATH.

Every reader takes a `Machine`, so that a test can hand it a fake tree and fake programs. What
cannot be read is None: a manifest never guesses.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Vendor tools answer in about a second; one that takes ten hangs on a sick driver.
TOOL_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Machine:
    """Where to read: `root` stands for "/", `environ` for the environment of the process."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def path(self, name: str) -> Path:
        """The absolute machine path `name` (e.g. "/proc/cpuinfo") below this machine's root."""
        return self.root / name.lstrip("/")

    def text(self, name: str | Path) -> str | None:
        """A file's text without surrounding blanks; None where it is absent or unreadable."""
        path = name if isinstance(name, Path) else self.path(name)
        try:
            return path.read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n")
        except OSError:
            return None

    def number(self, name: str | Path) -> int | None:
        """A file holding one integer, decimal or 0x-prefixed; None where it holds anything else."""
        text = self.text(name)
        try:
            return None if text is None else int(text, 0)
        except ValueError:
            return None

    def glob(self, pattern: str) -> list[Path]:
        """Paths below the root that match, numbers in names ordered as numbers (cpu2 < cpu10)."""
        return sorted(self.root.glob(pattern.lstrip("/")), key=natural_key)

    def run(self, argv: Sequence[str], timeout_s: float = TOOL_TIMEOUT_S) -> str | None:
        """Standard output of a program on this machine's PATH.

        None where the program is absent, fails, or has not ended after `timeout_s` seconds (then it
        is killed together with everything it started).
        """
        program = shutil.which(argv[0], path=self.environ.get("PATH", os.defpath))
        if program is None:
            return None
        try:
            process = subprocess.Popen(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(self.environ),
                start_new_session=True,
            )
        except OSError:
            return None
        with process:
            try:
                output, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                # The whole group: a grandchild that holds the pipe would keep us waiting.
                os.killpg(process.pid, signal.SIGKILL)
                return None
        return output.decode("utf-8", errors="replace") if process.returncode == 0 else None


def natural_key(path: Path) -> list[tuple[int, int, str]]:
    """Sort key that orders the numbers within a path's name as numbers."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


def cpu_list(cpus: Iterable[int]) -> str:
    """CPU numbers as Linux writes them: {0, 1, 2, 3, 8} is "0-3,8"; the empty set is ""."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def parse_cpu_list(text: str) -> set[int]:
    """The inverse of `cpu_list`. Raises ValueError for text that is not a CPU list."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        cpus.update(range(int(low), int(high or low) + 1))
    return cpus


def key_values(text: str | None, separator: str) -> dict[str, str]:
    """Lines of "key<separator>value" as a mapping; the first of equal keys wins."""
    found: dict[str, str] = {}
    for line in (text or "").splitlines():
        key, sep, value = line.partition(separator)
        if sep:
            found.setdefault(key.strip(), value.strip())
    return found


def selected(text: str | None) -> str | None:
    """The choice in brackets of a sysfs menu such as "always [madvise] never"."""
    match = re.search(r"\[([^\]]+)\]", text or "")
    return match.group(1) if match else None
