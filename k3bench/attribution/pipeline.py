"""From trace files to a composition in one call: read, attribute, check."""

from dataclasses import replace
from pathlib import Path

from k3bench.attribution.apply import by_map, by_pairing, by_ranges
from k3bench.attribution.block_map import (
    BlockMap,
    learn_from_capture,
    learn_from_eager,
    load_map,
)
from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.byte_stream import ReadLimits
from k3bench.attribution.checks import learning_checks
from k3bench.attribution.compose import compose
from k3bench.attribution.composition import Composition, Phase
from k3bench.attribution.graphs import is_capture
from k3bench.attribution.reader import read_trace, require_work
from k3bench.attribution.table_builder import DeviceSort


def compose_trace(
    path: str | Path,
    definition: BlockDefinition,
    *,
    phase: Phase = "decode",
    capture: str | Path | None = None,
    block_map: BlockMap | str | Path | None = None,
    steps: int | None = None,
    label: str | None = None,
    input_tokens: int | None = None,
    measured_us: float | None = None,
    include_collectives: bool = False,
    rank: int | None = None,
    device: DeviceSort = "gpu",
    limits: ReadLimits | None = None,
) -> Composition:
    """The composition of one trace, with its checks (which may have failed: see ``passed``).

    With ``capture`` the trace is a graph replay paired by position; with ``block_map`` its kernels
    are looked up by name; with neither it is an eager trace with ranges or modules of its own.

    Raises AttributionError where no composition can be made, OSError where a file cannot be read.
    """
    if capture is not None and block_map is not None:
        raise ValueError("give a capture or a map, not both")
    trace = read_trace(path, limits=limits, rank=rank, device=device)
    if capture is not None:
        captured = read_trace(capture, limits=limits, rank=rank, require_device_work=False)
        attributed = by_pairing(captured, trace, definition, steps=steps)
    elif block_map is not None:
        learned = block_map if isinstance(block_map, BlockMap) else load_map(block_map)
        attributed = by_map(trace, learned, definition, phase, steps=steps)
    else:
        attributed = by_ranges(trace, definition, phase, steps=steps)
    return compose(
        attributed,
        definition,
        phase,
        label=label,
        input_tokens=input_tokens,
        measured_us=measured_us,
        include_collectives=include_collectives,
    )


def learn_map(
    path: str | Path,
    definition: BlockDefinition,
    *,
    replay: str | Path | None = None,
    steps: int | None = None,
    rank: int | None = None,
    device: DeviceSort = "gpu",
    limits: ReadLimits | None = None,
) -> BlockMap:
    """The map from an eager trace with ranges, or from a capture (and its replay), with checks.

    A trace counts as a capture where a replay is given, or where most of its launches made no
    kernel.
    """
    trace = read_trace(path, limits=limits, rank=rank, device=device, require_device_work=False)
    if replay is not None:
        replayed = read_trace(replay, limits=limits, rank=rank)
        learned = learn_from_capture(trace, definition, replayed)
        checked = replayed
    elif is_capture(trace):
        learned = learn_from_capture(trace, definition)
        checked = trace
    else:
        require_work(trace)
        learned = learn_from_eager(trace, definition, steps=steps)
        checked = trace
    return replace(learned, checks=learning_checks(learned, checked, definition))
