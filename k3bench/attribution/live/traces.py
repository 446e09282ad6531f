"""Waits for the trace files a profiler writes, and looks at once whether they hold anything.

An empty profile that reports success is a known fault, so a trace without kernels is an error here,
minutes after it was taken, and not days later on another machine.
"""

import gzip
import hashlib
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATTERNS = ("*.trace.json.gz", "*.trace.json")
_CHUNK = 1 << 20
_POLL_S = 0.5
# Kineto writes `"cat": "kernel"`, other writers leave the space out.
_KERNEL_MARKS = (b'"cat": "kernel"', b'"cat":"kernel"')


class TraceError(ValueError):
    """No usable trace came; the message says what is wrong with it."""


@dataclass(frozen=True)
class TraceFile:
    """A whole trace: its name, size in bytes, SHA-256, and how many kernels and ranges it holds."""

    name: str
    size_bytes: int
    sha256: str
    kernels: int
    ranges: int

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "kernels": self.kernels,
            "ranges": self.ranges,
        }


def traces_in(directory: Path) -> frozenset[str]:
    """Names of the trace files there now; none where the directory does not exist yet."""
    if not directory.is_dir():
        return frozenset()
    return frozenset(path.name for pattern in _PATTERNS for path in directory.glob(pattern))


def wait_for_traces(
    directory: Path,
    known: frozenset[str],
    *,
    timeout_s: float,
    ranks: int = 1,
    range_prefix: str | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[TraceFile, ...]:
    """Wait until ``ranks`` new traces lie in ``directory`` and none of them grows.

    ``known``: names that were there before. ``range_prefix``: ranges so named must be in every
    trace. Raises TraceError if none came in time, or one is cut off or holds no kernels.
    """
    deadline = time.monotonic() + timeout_s
    sizes: dict[str, int] = {}
    while True:
        names = sorted(traces_in(directory) - known)
        now = {name: (directory / name).stat().st_size for name in names}
        if len(now) >= ranks and now == sizes and all(now.values()):
            try:
                return tuple(_inspected(directory / name, range_prefix) for name in names)
            except EOFError:  # no end yet: the profiler paused in the middle of writing
                if time.monotonic() > deadline:
                    raise TraceError(
                        f"{', '.join(names)}: cut off: the profiler did not finish writing within "
                        f"{timeout_s:g} s"
                    ) from None
        elif time.monotonic() > deadline:
            raise TraceError(
                f"{len(names)} of {ranks} new traces in {directory.name}/ after {timeout_s:g} s, "
                "though the profiler reported success: is that the server's output_dir?"
            )
        sizes = now
        sleep(_POLL_S)


def _inspected(path: Path, range_prefix: str | None) -> TraceFile:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_CHUNK):
            digest.update(block)
    range_marks = () if range_prefix is None else (f'"name": "{range_prefix}'.encode(),)
    kernels = ranges = 0
    overlap = max(len(mark) for mark in (*_KERNEL_MARKS, *range_marks)) - 1
    tail = b""
    for block in _decompressed(path):
        text = tail + block
        kernels += sum(_new_hits(text, mark, len(tail)) for mark in _KERNEL_MARKS)
        ranges += sum(_new_hits(text, mark, len(tail)) for mark in range_marks)
        tail = text[-overlap:]
    if not tail.rstrip().endswith((b"}", b"]")):
        raise EOFError
    if kernels == 0:
        raise TraceError(
            f"{path.name}: holds no kernel: the profiler saw no device work (a profile of the "
            "wrong process, or taken while the server idled)"
        )
    if range_marks and ranges == 0:
        raise TraceError(
            f"{path.name}: holds no range {range_prefix}*: was the server started through "
            "k3bench.attribution.live.launch with SGLANG_K3_PROF_RANGES=1?"
        )
    return TraceFile(path.name, path.stat().st_size, digest.hexdigest(), kernels, ranges)


def _new_hits(text: bytes, mark: bytes, overlap: int) -> int:
    """Occurrences of ``mark`` that do not lie wholly within the part seen before."""
    return text.count(mark) - text[:overlap].count(mark)


def _decompressed(path: Path) -> Iterator[bytes]:
    """Raises EOFError where the gzip stream ends early, TraceError where it is none."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as stream:
        while True:
            try:
                block = stream.read(_CHUNK)
            except (gzip.BadGzipFile, zlib.error) as error:
                raise TraceError(f"{path.name}: no gzip file: {error}") from error
            if not block:
                return
            yield block
