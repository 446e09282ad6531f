"""Sums of device work by kernel name and block: what every way of attribution comes down to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.composition import CheckOutcome, SourceFile, Unmapped
from k3bench.attribution.events import Ints, Trace
from k3bench.attribution.ranges import BlockColumn


@dataclass(frozen=True)
class KernelTotal:
    """Dispatches and microseconds of one kernel name in one block, over the whole trace.

    ``shared``: the name also occurs in another block. ``split``: how a shared name's dispatches
    were divided, where they were not seen one by one.
    """

    name: str
    block: str
    dispatches: float
    us: float
    shared: bool = False
    split: str = ""


@dataclass(frozen=True)
class Attributed:
    """A trace whose device work has been given to blocks; counts and times over the whole trace.

    ``rows`` are the rows of the device table that belong to the steps; ``outside_us`` is what the
    rest took. ``scope`` is "graph" where only replayed work counts and "step" where all of it does.
    ``outcomes`` are checks that only the method itself can make.
    """

    trace: Trace
    rows: Ints
    totals: tuple[KernelTotal, ...]
    collectives: tuple[KernelTotal, ...]
    unmapped: tuple[Unmapped, ...]
    steps: int
    steps_from: str
    method: str
    scope: str
    outside_us: float
    sources: tuple[SourceFile, ...]
    outcomes: tuple[CheckOutcome, ...] = ()
    notes: tuple[str, ...] = field(default=())


def total_by_name_and_block(
    trace: Trace, rows: Ints, blocks: BlockColumn, definition: BlockDefinition
) -> tuple[tuple[KernelTotal, ...], tuple[KernelTotal, ...]]:
    """(compute, collectives) of dispatches whose block is known one by one, largest time first."""
    width = len(blocks.names)
    keys = trace.device.name[rows] * width + blocks.index
    distinct, inverse = np.unique(keys, return_inverse=True)
    counts = np.bincount(inverse, minlength=len(distinct))
    times = np.bincount(inverse, trace.device.duration_us[rows], minlength=len(distinct))
    names, how_many_blocks = np.unique(distinct // width, return_counts=True)
    shared = set(names[how_many_blocks > 1].tolist())
    compute: list[KernelTotal] = []
    collectives: list[KernelTotal] = []
    for key, count, us in zip(distinct.tolist(), counts.tolist(), times.tolist(), strict=True):
        name = trace.strings[key // width]
        row = KernelTotal(name, blocks.names[key % width], count, us, key // width in shared)
        (collectives if definition.is_collective(name) else compute).append(row)
    return _largest_first(compute), _largest_first(collectives)


def _largest_first(rows: Sequence[KernelTotal]) -> tuple[KernelTotal, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.us, row.name, row.block)))


def counts_by_name(trace: Trace, rows: Ints) -> dict[str, tuple[int, float]]:
    """(dispatches, microseconds) of every kernel name among ``rows``."""
    ids, inverse = np.unique(trace.device.name[rows], return_inverse=True)
    counts = np.bincount(inverse, minlength=len(ids))
    times = np.bincount(inverse, trace.device.duration_us[rows], minlength=len(ids))
    return {
        trace.strings[name]: (count, us)
        for name, count, us in zip(ids.tolist(), counts.tolist(), times.tolist(), strict=True)
    }
