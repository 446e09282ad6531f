"""The columnar event table: what of a trace attribution works on, as NumPy arrays."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from k3bench.attribution.composition import SourceFile

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KERNEL, MEMCPY, MEMSET, CPU_OP = 0, 1, 2, 3
ABSENT = -1


@dataclass(frozen=True)
class DeviceWork:
    """Kernels, copies and sets in order of their start; every column has one entry a dispatch.

    ``name`` and ``process`` index ``Trace.strings``; ``start_us`` and ``duration_us`` are
    microseconds; ``kind`` is KERNEL, MEMCPY, MEMSET or CPU_OP; ``correlation`` is the id shared
    with the launch, or ABSENT; ``graph`` is true where the trace itself says that a graph launched
    it ("Dispatch Task" on ROCm, a graph node id on CUDA); ``grid`` and ``block`` index
    ``Trace.geometries``, or are ABSENT, as on every ROCm graph replay.
    """

    name: Ints
    start_us: Floats
    duration_us: Floats
    kind: Ints
    correlation: Ints
    device: Ints
    stream: Ints
    process: Ints
    graph: Ints
    grid: Ints
    block: Ints

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Launches:
    """Host calls that carry a correlation id, in order of their start.

    ``kernel`` indexes ``Trace.strings`` where the trace names the launched kernel (ROCm), else
    ABSENT. ``thread`` indexes the (process, thread) pairs that ``Ranges.thread`` uses too.
    """

    name: Ints
    start_us: Floats
    duration_us: Floats
    correlation: Ints
    process: Ints
    thread: Ints
    kernel: Ints

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Ranges:
    """Host annotations and nn.Module calls; ``module`` is 1 for the latter.

    A module's name is its class name alone: "nn.Module: Qwen3MLP_12" is kept as "Qwen3MLP".
    """

    name: Ints
    start_us: Floats
    duration_us: Floats
    process: Ints
    thread: Ints
    module: Ints

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Trace:
    """One rank's trace.

    ``cut_off`` says where the file ended too early, or is empty. ``categories`` counts every event
    of the file by its category, kept or not. ``rank`` is the rank that the file or the caller
    states. ``base_ns`` is the trace's baseTimeNanoseconds, 0 where absent.
    """

    source: SourceFile
    strings: tuple[str, ...]
    geometries: tuple[tuple[int, ...], ...]
    device: DeviceWork
    launches: Launches
    ranges: Ranges
    device_name: str = "unknown device"
    platform: str = "unknown"
    rank: int | None = None
    base_ns: int = 0
    cut_off: str = ""
    categories: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.source.name

    def names(self, ids: Ints) -> list[str]:
        """The strings behind a column of ids."""
        return [self.strings[i] for i in ids.tolist()]


def distinct(ids: Ints) -> list[int]:
    """The distinct values of a column of small ids from 0, in order.

    ``np.unique`` would import numpy.ma at its first call: a tenth of reading a 17 MB trace.
    """
    return np.flatnonzero(np.bincount(ids)).tolist() if len(ids) else []
