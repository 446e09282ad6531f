"""Eager attribution: from a kernel to its launch, and to the innermost block around the launch."""

from dataclasses import dataclass

import numpy as np

from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.events import ABSENT, Ints, Ranges, Trace, distinct


@dataclass(frozen=True)
class BlockColumn:
    """A block for each row of a table: ``index`` into ``names``, the residual's where none.

    ``in_range`` tells rows that a range decided from those that fell to a name rule or to the
    residual.
    """

    names: tuple[str, ...]
    index: Ints
    in_range: np.ndarray[tuple[int], np.dtype[np.bool_]]


def blocks_of_launches(trace: Trace, definition: BlockDefinition) -> BlockColumn:
    """The block of every launch: that of the innermost range on its thread that encloses it.

    Only ranges that the definition names count. A launch outside of them all goes to the block
    whose kernel-name rule matches the kernel that it names, else to the residual.
    """
    names = definition.block_names
    number = {name: n for n, name in enumerate(names)}
    block_of_range = _blocks_of_ranges(trace, definition, number)
    found = np.full(len(trace.launches), ABSENT)
    for thread in distinct(trace.launches.thread):
        launches = np.flatnonzero(trace.launches.thread == thread)
        rows = np.flatnonzero((trace.ranges.thread == thread) & (block_of_range != ABSENT))
        if len(rows):
            inner = _innermost(
                trace.ranges, rows, block_of_range, trace.launches.start_us[launches], definition
            )
            found[launches] = np.where(inner == ABSENT, ABSENT, block_of_range[inner])
    return _with_name_rules(trace, definition, found, trace.launches.kernel)


def blocks_of_dispatches(trace: Trace, definition: BlockDefinition) -> BlockColumn:
    """The block of every dispatch, through the launch that shares its correlation id.

    A dispatch without such a launch, or launched outside of every range, goes to the block whose
    kernel-name rule matches it, else to the residual.
    """
    if not len(trace.launches):
        found = np.full(len(trace.device), ABSENT)
        return _with_name_rules(trace, definition, found, trace.device.name)
    launched = blocks_of_launches(trace, definition)
    position = launch_of_dispatches(trace)
    inside = (position != ABSENT) & launched.in_range[position]
    found = np.where(inside, launched.index[position], ABSENT)
    return _with_name_rules(trace, definition, found, trace.device.name)


def launch_of_dispatches(trace: Trace) -> Ints:
    """For every dispatch the row of its launch, or ABSENT. The process need not be compared:

    reading refuses a trace in which two processes launched device work.
    """
    order = np.argsort(trace.launches.correlation, kind="stable")
    sorted_ids = trace.launches.correlation[order]
    if not len(sorted_ids):
        return np.full(len(trace.device), ABSENT)
    place = np.searchsorted(sorted_ids, trace.device.correlation)
    place = np.minimum(place, len(sorted_ids) - 1)
    known = (sorted_ids[place] == trace.device.correlation) & (trace.device.correlation != ABSENT)
    return np.where(known, order[place], ABSENT)


def _blocks_of_ranges(trace: Trace, definition: BlockDefinition, number: dict[str, int]) -> Ints:
    """The block number of every range, ABSENT for those that the definition does not name."""
    ranges = trace.ranges
    keys = ranges.name * 2 + ranges.module
    found = np.full(len(ranges), ABSENT)
    for key in distinct(keys):
        name = trace.strings[key // 2]
        block = definition.block_of_range(name, module=bool(key % 2))
        if block is not None:
            found[keys == key] = number[block]
    return found


def _innermost(
    ranges: Ranges,
    rows: Ints,
    block_of_range: Ints,
    times_us: np.ndarray[tuple[int], np.dtype[np.float64]],
    definition: BlockDefinition,
) -> Ints:
    """For each time the innermost of the ranges ``rows`` (of one thread) around it, or ABSENT."""
    starts, ends = ranges.start_us[rows], ranges.start_us[rows] + ranges.duration_us[rows]
    # Of two that start together the longer one encloses the other.
    order = np.lexsort((-ends, starts))
    rows, starts, ends = rows[order], starts[order], ends[order]
    names = definition.block_names
    hidden_in = [
        {names.index(other) for other in definition.block(name).not_within} for name in names
    ]
    parent = np.full(len(rows), ABSENT)
    visible = np.ones(len(rows), dtype=bool)
    open_ranges: list[int] = []
    blocks = block_of_range[rows].tolist()
    for n, start in enumerate(starts.tolist()):
        while open_ranges and ends[open_ranges[-1]] <= start:
            open_ranges.pop()
        parent[n] = open_ranges[-1] if open_ranges else ABSENT
        if hidden_in[blocks[n]]:
            visible[n] = not any(blocks[outer] in hidden_in[blocks[n]] for outer in open_ranges)
        open_ranges.append(n)
    at = np.searchsorted(starts, times_us, side="right") - 1
    # From the last range begun before the time outwards to one that is still open and visible.
    while True:
        outside = (at != ABSENT) & ((ends[at] < times_us) | ~visible[at])
        if not outside.any():
            break
        at[outside] = parent[at[outside]]
    return np.where(at == ABSENT, ABSENT, rows[at])


def _with_name_rules(
    trace: Trace, definition: BlockDefinition, found: Ints, kernel: Ints
) -> BlockColumn:
    """Fills what no range decided: first by kernel-name rule, then with the residual."""
    names = definition.block_names
    in_range = found != ABSENT
    index = np.where(in_range, found, len(names) - 1)
    for name in distinct(kernel[~in_range & (kernel != ABSENT)]):
        block = definition.block_by_name_rule(trace.strings[name])
        if block is not None:
            index[~in_range & (kernel == name)] = names.index(block)
    return BlockColumn(names, index, in_range)
