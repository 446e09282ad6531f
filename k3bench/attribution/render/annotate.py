"""A copy of a trace with a track for every block, to be opened in Perfetto beside the kernels.

The input is copied as it streams; the new events go in front of its own, so memory does not grow
with the file. Neighbouring dispatches of one block make one slice.
"""

import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from k3bench.attribution.block_map import BlockMap
from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.byte_stream import ByteStream, ReadLimits
from k3bench.attribution.events import Ints, Trace
from k3bench.attribution.graphs import pair
from k3bench.attribution.ranges import blocks_of_dispatches
from k3bench.attribution.render.names import RenderError, visible

COLLECTIVE, UNMAPPED = "collective", "unmapped"
# Above every process id of Linux (at most 2^22), and an integer, as Perfetto wants it.
_PROCESS = 1_999_000_000
_PROCESS_NAME = "K3Bench: blocks"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_TO_ARRAY = re.compile(rb"\s*:\s*\[")
_WRITTEN_AT_ONCE = 4096


@dataclass(frozen=True)
class BlockTracks:
    """A block for each dispatch: ``rows`` of the trace's device table, ``index`` into ``names``."""

    names: tuple[str, ...]
    rows: Ints
    index: Ints


@dataclass(frozen=True)
class Annotated:
    """What was written: slices over all tracks, and the tracks that have any."""

    path: Path
    slices: int
    tracks: tuple[str, ...]


def tracks_by_ranges(trace: Trace, definition: BlockDefinition) -> BlockTracks:
    """Blocks of an eager trace with ranges."""
    column = blocks_of_dispatches(trace, definition)
    return _with_collectives(
        trace, definition, column.names, np.arange(len(trace.device)), column.index
    )


def tracks_by_pairing(capture: Trace, replay: Trace, definition: BlockDefinition) -> BlockTracks:
    """Blocks of a replay's graph kernels, from its capture."""
    paired = pair(capture, replay, definition)
    return _with_collectives(
        replay, definition, paired.blocks.names, paired.rows, paired.blocks.index
    )


def tracks_by_map(trace: Trace, block_map: BlockMap, definition: BlockDefinition) -> BlockTracks:
    """Blocks by kernel name. A name of several blocks gets a track of its own, "kda or moe": which
    of its dispatches is whose, a name cannot tell."""
    block_of = {
        entry.name: " or ".join(use.block for use in entry.uses) for entry in block_map.names
    }
    distinct = np.unique(trace.device.name)
    names: dict[str, int] = {}
    number = np.zeros(len(trace.strings), dtype=np.int64)
    for name in distinct.tolist():
        block = block_of.get(trace.strings[name], UNMAPPED)
        number[name] = names.setdefault(block, len(names))
    rows = np.arange(len(trace.device))
    return _with_collectives(trace, definition, tuple(names), rows, number[trace.device.name])


def _with_collectives(
    trace: Trace, definition: BlockDefinition, names: tuple[str, ...], rows: Ints, index: Ints
) -> BlockTracks:
    kernels = trace.device.name[rows]
    are = [
        name
        for name in np.unique(kernels).tolist()
        if definition.is_collective(trace.strings[name])
    ]
    if not are:
        return BlockTracks(names, rows, index)
    return BlockTracks(
        (*names, COLLECTIVE), rows, np.where(np.isin(kernels, are), len(names), index)
    )


def annotate(
    source: Path,
    destination: Path,
    trace: Trace,
    tracks: BlockTracks,
    *,
    limits: ReadLimits | None = None,
) -> Annotated:
    """Write ``source`` with the block tracks to ``destination`` (gzipped if it ends in .gz).

    ``trace`` is what was read from ``source``. The destination is replaced whole or not at all.
    Raises RenderError where the source is cut off, since a copy of it would not parse, or is the
    destination itself.
    """
    if trace.cut_off:
        raise RenderError(f"{source.name} is {trace.cut_off}: a copy of it would not open")
    if destination.exists() and destination.samefile(source):
        raise RenderError(f"{source.name}: cannot be annotated in place: name another file")
    slices = sorted(_slices(trace, tracks), key=lambda piece: piece[1])
    temporary = destination.with_name(f".{destination.name}.{os.getpid()}.tmp")
    try:
        with ExitStack() as stack:
            out: Any = stack.enter_context(temporary.open("wb"))
            if destination.suffix == ".gz":
                out = stack.enter_context(gzip.GzipFile("", "wb", 1, out, mtime=0))
            stream = ByteStream(source, limits or ReadLimits())
            _copy_with(stream, _events(tracks.names, slices), out)
        temporary.replace(destination)
    finally:
        temporary.unlink(missing_ok=True)
    used = sorted({track for track, *_ in slices})
    return Annotated(destination, len(slices), tuple(tracks.names[track] for track in used))


def _slices(trace: Trace, tracks: BlockTracks) -> Iterator[tuple[int, float, float, int, float]]:
    """(track, start, end, kernels, their microseconds), one per run of dispatches of a block.

    Slices of one track never overlap: where streams run side by side, runs that touch are one.
    """
    starts = trace.device.start_us[tracks.rows]
    order = np.argsort(starts, kind="stable")
    starts, index = starts[order], tracks.index[order]
    durations = trace.device.duration_us[tracks.rows][order]
    ends = starts + durations
    if not len(index):
        return
    heads = np.flatnonzero(np.concatenate(([True], index[1:] != index[:-1])))
    sizes = np.diff(np.append(heads, len(index)))
    times = np.add.reduceat(durations, heads)
    lasts = np.maximum.reduceat(ends, heads)
    open_slices: dict[int, tuple[int, float, float, int, float]] = {}
    for track, start, end, size, us in zip(
        index[heads].tolist(),
        starts[heads].tolist(),
        lasts.tolist(),
        sizes.tolist(),
        times.tolist(),
        strict=True,
    ):
        known = open_slices.get(track)
        if known is not None and start < known[2]:
            open_slices[track] = (
                *(track, known[1], max(known[2], end)),
                *(known[3] + size, known[4] + us),
            )
            continue
        if known is not None:
            yield known
        open_slices[track] = (track, start, end, size, us)
    yield from open_slices.values()


def _events(
    names: tuple[str, ...], slices: Iterable[tuple[int, float, float, int, float]]
) -> Iterator[str]:
    """The new events as JSON texts; ASCII, so that no name can end a string or a line."""
    yield _metadata("process_name", 0, {"name": _PROCESS_NAME})
    yield _metadata("process_sort_index", 0, {"sort_index": -1})
    shown = [visible(name) for name in names]
    for track, name in enumerate(shown):
        yield _metadata("thread_name", track + 1, {"name": name})
        yield _metadata("thread_sort_index", track + 1, {"sort_index": track})
    for track, start, end, kernels, us in slices:
        yield json.dumps(
            {
                "ph": "X",
                "cat": "k3bench_block",
                "name": shown[track],
                "pid": _PROCESS,
                "tid": track + 1,
                "ts": start,
                "dur": round(end - start, 3),
                "args": {"kernels": kernels, "kernel us": round(us, 3)},
            }
        )


def _metadata(name: str, thread: int, arguments: dict[str, Any]) -> str:
    return json.dumps(
        {"ph": "M", "name": name, "pid": _PROCESS, "tid": thread, "ts": 0, "args": arguments}
    )


def _copy_with(stream: ByteStream, events: Iterator[str], out: Any) -> None:
    blocks = iter(stream)
    head = b""
    at = None
    for block in blocks:
        head += block
        at = _start_of_events(head)
        if at is not None:
            break
        if len(head) > stream.limits.envelope_bytes:
            break
    if at is None:
        raise RenderError(f"{stream.path.name}: no traceEvents array at its top level")
    out.write(head[:at])
    rest = head[at:].lstrip()
    while not rest:
        rest = next(blocks).lstrip()
    batch: list[str] = []
    separator = "\n"
    for event in events:
        batch.append(event)
        if len(batch) == _WRITTEN_AT_ONCE:
            out.write((separator + ",\n".join(batch)).encode("ascii"))
            batch, separator = [], ",\n"
    if batch:
        out.write((separator + ",\n".join(batch)).encode("ascii"))
    out.write(b"\n" if rest.startswith(b"]") else b",\n")
    out.write(rest)
    for block in blocks:
        out.write(block)


def _start_of_events(text: bytes) -> int | None:
    """Where the events begin, right behind their array's bracket; None if it is not in ``text``."""
    depth = 0
    for token in _TOKEN.finditer(text):
        what = token[0]
        if what == b"[" and depth == 0:
            return token.end()
        if what in (b"[", b"{"):
            depth += 1
        elif what in (b"]", b"}"):
            depth -= 1
        elif depth == 1 and what == b'"traceEvents"':
            opening = _TO_ARRAY.match(text, token.end())
            if opening is not None:
                return opening.end()
    return None
