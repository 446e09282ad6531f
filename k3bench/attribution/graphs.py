"""Graph traces: the replays in a trace, the captures in another, and pairing them by position.

A replay's kernels carry nothing of the model: on ROCm all of them share the correlation id of one
hipGraphLaunch. A capture trace holds the launches with their kernels' names and the Python stack
around them, and practically no kernels. The n-th launch captured is the n-th kernel replayed, which
is believed only if the names agree one for one.
"""

import re
from dataclasses import dataclass

import numpy as np

from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.errors import MapError, PairingError
from k3bench.attribution.events import ABSENT, Ints, Trace
from k3bench.attribution.ranges import BlockColumn, blocks_of_launches, launch_of_dispatches

_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
_BEGIN_CAPTURE = re.compile(r"BeginCapture")
_END_CAPTURE = re.compile(r"EndCapture")
_COPY = re.compile(r"Memcpy", re.IGNORECASE)
_SET = re.compile(r"Memset", re.IGNORECASE)
_ANY_COPY, _ANY_SET = "Memcpy", "Memset"


@dataclass(frozen=True)
class Capture:
    """One captured graph: the kernel name and the block of every launch, in order."""

    names: tuple[str, ...]
    blocks: tuple[str, ...]


@dataclass(frozen=True)
class Paired:
    """A replay trace whose graph dispatches have their blocks by position.

    ``rows`` are rows of the trace's device table, one replay after another; ``blocks`` their
    blocks. ``replays`` is how many times the graph ran.
    """

    rows: Ints
    blocks: BlockColumn
    replays: int
    capture: Capture


def replays(trace: Trace) -> list[Ints]:
    """Rows of the device table that each graph launch replayed, in order of the launches.

    A dispatch is a replayed one where its launch is a graph launch, or where the trace marks it.
    """
    device = trace.device
    position = launch_of_dispatches(trace)
    is_graph_launch = np.fromiter(
        (_GRAPH_LAUNCH.search(name) is not None for name in trace.names(trace.launches.name)),
        dtype=bool,
        count=len(trace.launches),
    )
    replayed = device.graph == 1
    if len(trace.launches):
        replayed |= (position != ABSENT) & is_graph_launch[position]
    rows = np.flatnonzero(replayed)
    ids = device.correlation[rows]
    if (ids == ABSENT).any():
        raise PairingError(
            f"{trace.label}: {int((ids == ABSENT).sum())} graph kernels have no correlation id, "
            "so their replays cannot be told apart"
        )
    _, first, group = np.unique(ids, return_index=True, return_inverse=True)
    by_start = np.argsort(first, kind="stable")
    return [rows[group == g] for g in by_start.tolist()]


def refuse_replays(trace: Trace) -> None:
    """Raises MapError for a trace with graph replays, where host ranges are asked for.

    The ranges around a graph's launch say nothing of its kernels: of a published 26 ms step they
    saw 1.8 ms, and what they missed would all have gone to the residual.
    """
    runs = replays(trace)
    if runs:
        raise MapError(
            f"{trace.label}: {len(runs)} graph replays, whose kernels no host range encloses: give "
            "--capture or --map, or run eagerly"
        )


def is_capture(trace: Trace) -> bool:
    """Whether most launches that name a kernel made none, as in a capture."""
    named = trace.launches.kernel != ABSENT
    ran = np.isin(trace.launches.correlation, trace.device.correlation)
    return int((named & ~ran).sum()) > int((named & ran).sum())


def captures(trace: Trace, definition: BlockDefinition) -> list[Capture]:
    """The graphs captured in a trace: launches that made no kernel, with the blocks around them.

    A capture spans from hipStreamBeginCapture to hipStreamEndCapture; where the trace has neither,
    all launches without a kernel make one graph.
    """
    launches = trace.launches
    names = trace.names(launches.name)
    ran = np.isin(launches.correlation, trace.device.correlation)
    column = blocks_of_launches(trace, definition)
    found: list[Capture] = []
    opened = any(_BEGIN_CAPTURE.search(name) for name in names)
    inside = not opened
    kernels: list[str] = []
    blocks: list[str] = []
    unnamed = ""
    for row, name in enumerate(names):
        if _BEGIN_CAPTURE.search(name):
            inside, kernels, blocks = True, [], []
        elif _END_CAPTURE.search(name):
            if kernels:
                found.append(Capture(tuple(kernels), tuple(blocks)))
            inside, kernels, blocks = False, [], []
        elif inside and not ran[row] and not _GRAPH_LAUNCH.search(name):
            kernel = int(launches.kernel[row])
            if kernel != ABSENT:
                kernels.append(trace.strings[kernel])
            elif _COPY.search(name):
                kernels.append(_ANY_COPY)
            elif _SET.search(name):
                kernels.append(_ANY_SET)
            else:
                unnamed = unnamed or name
                continue
            blocks.append(column.names[column.index[row]])
    if kernels:
        found.append(Capture(tuple(kernels), tuple(blocks)))
    if unnamed:
        raise PairingError(
            f"{trace.label}: {unnamed} does not say which kernel it launches (CUPTI does not "
            "record it), so this capture cannot be paired by name: use --map"
        )
    if not found:
        raise PairingError(
            f"{trace.label}: no captured launches with kernel names: this is not a capture trace"
        )
    return found


def pair(capture: Trace, replay: Trace, definition: BlockDefinition) -> Paired:
    """Gives every replayed dispatch the block of the launch captured at its position.

    Raises PairingError, naming the first position that differs, unless every replay agrees with
    one captured graph name for name.
    """
    runs = replays(replay)
    if not runs:
        raise PairingError(
            f"{replay.label}: no graph replay in it (no kernel of a hipGraphLaunch or "
            "cudaGraphLaunch): was the server run with graphs?"
        )
    known = captures(capture, definition)
    first = _replay_names(replay, runs[0])
    chosen = _matching_capture(known, first, capture.label, replay.label)
    for number, rows in enumerate(runs[1:], start=2):
        difference = first_difference(chosen.names, _replay_names(replay, rows))
        if difference:
            raise PairingError(f"{replay.label}, replay {number} of {len(runs)}: {difference}")
    names = definition.block_names
    one = np.array([names.index(block) for block in chosen.blocks])
    rows = np.concatenate(runs)
    index = np.tile(one, len(runs))
    column = BlockColumn(names, index, np.ones(len(index), dtype=bool))
    return Paired(rows, column, len(runs), chosen)


def first_difference(captured: tuple[str, ...], replayed: tuple[str, ...]) -> str:
    """Where two sequences of kernel names differ first, in words; empty if they agree."""
    for position, (expected, found) in enumerate(zip(captured, replayed, strict=False)):
        if expected != found and not (
            expected in (_ANY_COPY, _ANY_SET) and found.startswith(expected)
        ):
            return f"kernel {position} is {_short(found)}, captured was {_short(expected)}"
    if len(captured) == len(replayed):
        return ""
    shorter = min(len(captured), len(replayed))
    counts = f"{len(replayed)} kernels replayed, {len(captured)} captured"
    if len(replayed) < len(captured):
        return f"{counts}: kernel {shorter}, {_short(captured[shorter])}, is missing"
    return f"{counts}: kernel {shorter}, {_short(replayed[shorter])}, was not captured"


def _matching_capture(
    known: list[Capture], replayed: tuple[str, ...], captured_in: str, replayed_in: str
) -> Capture:
    differences = [first_difference(capture.names, replayed) for capture in known]
    for capture, difference in zip(known, differences, strict=True):
        if not difference:
            return capture
    # Of several captured graphs, speak of the one that agrees for longest.
    closest = max(range(len(known)), key=lambda n: _agreement(known[n].names, replayed))
    of_several = f" (closest of {len(known)} captured graphs)" if len(known) > 1 else ""
    raise PairingError(
        f"{replayed_in} does not replay what {captured_in} captured{of_several}: "
        f"{differences[closest]}"
    )


def _agreement(captured: tuple[str, ...], replayed: tuple[str, ...]) -> int:
    length = 0
    for expected, found in zip(captured, replayed, strict=False):
        if expected != found and not found.startswith(expected):
            break
        length += 1
    return length


def _replay_names(trace: Trace, rows: Ints) -> tuple[str, ...]:
    return tuple(trace.names(trace.device.name[rows]))


def _short(name: str) -> str:
    return name if len(name) <= 70 else f"{name[:67]}..."
