"""Gives a trace's device work to blocks: by ranges, by pairing with a capture, or by a map."""

import numpy as np

from k3bench.attribution.block_map import BlockMap, MappedName
from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.composition import (
    FAILED,
    OK,
    SKIPPED,
    CheckOutcome,
    Phase,
    Unmapped,
    tidy,
)
from k3bench.attribution.errors import MapError
from k3bench.attribution.events import Ints, Trace
from k3bench.attribution.graphs import first_difference, pair, refuse_replays, replays
from k3bench.attribution.ranges import blocks_of_dispatches
from k3bench.attribution.steps import count_steps
from k3bench.attribution.totals import (
    Attributed,
    KernelTotal,
    counts_by_name,
    total_by_name_and_block,
)

# Medians of one kernel in two blocks closer than this are one duration: a few microseconds of
# launch-to-launch spread on kernels of some 4 us.
DURATIONS_AGREE = 1.10


def by_ranges(
    trace: Trace, definition: BlockDefinition, phase: Phase, *, steps: int | None = None
) -> Attributed:
    """An eager trace with ranges, kernel by kernel. Raises MapError where it has no such range."""
    refuse_replays(trace)
    column = blocks_of_dispatches(trace, definition)
    if not column.in_range.any():
        raise MapError(
            f"{trace.label}: no kernel was launched inside a range or module of "
            f"{definition.name}: give --capture or --map for a graph trace, or run eagerly with "
            "SGLANG_K3_PROF_RANGES=1"
        )
    rows = np.arange(len(trace.device))
    counted, steps_from = count_steps(
        trace, counts_by_name(trace, rows), definition, phase, stated=steps
    )
    compute, collectives = total_by_name_and_block(trace, rows, column, definition)
    return Attributed(
        trace=trace,
        rows=rows,
        totals=compute,
        collectives=collectives,
        unmapped=(),
        steps=counted,
        steps_from=steps_from,
        method="ranges",
        scope="step",
        outside_us=0.0,
        sources=(trace.source,),
        notes=trace.notes,
    )


def by_pairing(
    capture: Trace, replay: Trace, definition: BlockDefinition, *, steps: int | None = None
) -> Attributed:
    """A replay paired with its capture. Raises PairingError where they differ."""
    paired = pair(capture, replay, definition)
    compute, collectives = total_by_name_and_block(replay, paired.rows, paired.blocks, definition)
    per_replay = len(paired.capture.names)
    return Attributed(
        trace=replay,
        rows=paired.rows,
        totals=compute,
        collectives=collectives,
        unmapped=(),
        steps=steps or paired.replays,
        steps_from="given" if steps else "graph replays",
        method="paired",
        scope="graph",
        outside_us=_outside_us(replay, paired.rows),
        sources=(capture.source, replay.source),
        outcomes=(
            CheckOutcome(
                "paired by position",
                OK,
                f"{per_replay} of {per_replay} kernels agree by name in each of "
                f"{paired.replays} replays",
            ),
        ),
        notes=(*capture.notes, *replay.notes),
    )


def by_map(
    trace: Trace,
    block_map: BlockMap,
    definition: BlockDefinition,
    phase: Phase,
    *,
    steps: int | None = None,
    durations_agree: float = DURATIONS_AGREE,
) -> Attributed:
    """A trace without ranges, by a learned map.

    A map learned from a capture speaks of the graph alone, so only replayed work is counted; one
    learned from an eager run speaks of all the work of a step. A name of several blocks is split
    by their dispatches per step; where their durations disagree by more than ``durations_agree``
    (a ratio of medians), its time is split as in the learning run instead, and a check says so.

    Raises MapError where the map does not go with the definition or with this sort of trace.
    """
    strange = {use.block for entry in block_map.names for use in entry.uses}
    strange -= set(definition.block_names)
    if strange:
        raise MapError(
            f"the map was learned with {block_map.definition} and has a block "
            f"{sorted(strange)[0]!r} that {definition.name} lacks: give that definition"
        )
    runs = replays(trace)
    if block_map.scope == "graph" and not runs:
        raise MapError(
            f"{trace.label}: the map was learned from a graph's capture and this trace has no "
            "graph replay: learn from an eager run instead"
        )
    graph_only = block_map.scope == "graph"
    rows = np.concatenate(runs) if graph_only else np.arange(len(trace.device))
    found = counts_by_name(trace, rows)
    counted, steps_from = count_steps(
        trace, found, definition, phase, stated=steps, replays=len(runs)
    )
    known = {entry.name: entry for entry in block_map.names}
    compute: list[KernelTotal] = []
    collectives: list[KernelTotal] = []
    unmapped: list[Unmapped] = []
    for name, (count, us) in sorted(found.items(), key=lambda item: -item[1][1]):
        entry = known.get(name)
        if definition.is_collective(name):
            collectives.append(KernelTotal(name, "collective", count, us))
        elif entry is None:
            unmapped.append(Unmapped(name, count / counted, us / counted))
        else:
            compute.extend(_split(entry, count, us, durations_agree))
    return Attributed(
        trace=trace,
        rows=rows,
        totals=tuple(compute),
        collectives=tuple(collectives),
        unmapped=tuple(unmapped),
        steps=counted,
        steps_from=steps_from,
        method="map",
        scope=block_map.scope,
        outside_us=_outside_us(trace, rows),
        sources=(trace.source, *block_map.sources),
        outcomes=(
            _replays_alike(trace, runs),
            _counts_as_learned(found, known, definition, counted),
            _shared_durations(found, known, durations_agree),
        ),
        notes=(*trace.notes, *_shared_notes(found, known, durations_agree)),
    )


def _split(entry: MappedName, count: int, us: float, agree: float) -> list[KernelTotal]:
    """One name's dispatches and time, divided among the blocks that launch it."""
    if not entry.shared:
        return [KernelTotal(entry.name, entry.uses[0].block, count, us)]
    whole = entry.per_step
    weights = [use.per_step / whole for use in entry.uses]
    how = "by count"
    spread = entry.spread()
    if spread is not None and spread > agree and entry.us_per_step:
        learned = entry.us_per_step
        weights = [use.per_step * (use.mean_us or 0.0) / learned for use in entry.uses]
        how = "by learned time"
    return [
        KernelTotal(entry.name, use.block, count * use.per_step / whole, us * weight, True, how)
        for use, weight in zip(entry.uses, weights, strict=True)
    ]


def _outside_us(trace: Trace, rows: Ints) -> float:
    inside = float(trace.device.duration_us[rows].sum())
    return max(0.0, float(trace.device.duration_us.sum()) - inside)


def _replays_alike(trace: Trace, runs: list[Ints]) -> CheckOutcome:
    name = "replays alike"
    if len(runs) < 2:
        return CheckOutcome(name, SKIPPED, f"{len(runs)} graph replays in the trace")
    first = tuple(trace.names(trace.device.name[runs[0]]))
    for number, rows in enumerate(runs[1:], start=2):
        other = tuple(trace.names(trace.device.name[rows]))
        if len(other) != len(first) or sorted(other) != sorted(first):
            difference = first_difference(first, other).replace(
                "captured was", "in the first it is"
            )
            return CheckOutcome(name, FAILED, f"replay {number} of {len(runs)}: {difference}")
    return CheckOutcome(name, OK, f"{len(runs)} replays of {len(first)} kernels each")


def _counts_as_learned(
    found: dict[str, tuple[int, float]],
    known: dict[str, MappedName],
    definition: BlockDefinition,
    steps: int,
) -> CheckOutcome:
    """Every mapped kernel as often per step as in the learning run, and none gone missing."""
    name = "counts as learned"
    wrong = []
    for entry in known.values():
        seen = found.get(entry.name, (0, 0.0))[0] / steps
        if seen != entry.per_step:
            wrong.append(
                f"{_short(entry.name)} {tidy(round(seen, 4))} a step, learned "
                f"{tidy(round(entry.per_step, 4))}"
            )
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        return CheckOutcome(name, FAILED, "; ".join(wrong[:3]) + more)
    total = sum(entry.per_step for entry in known.values())
    return CheckOutcome(
        name, OK, f"{len(known)} names, {tidy(total)} dispatches a step, as in the learning run"
    )


def _shared_durations(
    found: dict[str, tuple[int, float]], known: dict[str, MappedName], agree: float
) -> CheckOutcome:
    """Whether the shared names could be split by count, which needs equal durations."""
    name = "shared names"
    shared = [
        entry
        for entry in known.values()
        if entry.shared and not entry.collective and entry.name in found
    ]
    if not shared:
        return CheckOutcome(name, OK, "every name belongs to one block")
    unlike = [e for e in shared if (spread := e.spread()) is not None and spread > agree]
    unknown = [e for e in shared if e.spread() is None]
    if unlike:
        worst = max(unlike, key=lambda entry: entry.spread() or 0.0)
        return CheckOutcome(
            name,
            SKIPPED,
            f"{len(unlike)} of {len(shared)} shared names run at different durations in their "
            f"blocks and cannot be split by count; worst {_short(worst.name)}, "
            f"{worst.spread():.2f} times; split as in the learning run",
        )
    if unknown:
        return CheckOutcome(
            name,
            SKIPPED,
            f"{len(unknown)} shared names split by count; the map has no durations to tell whether "
            "they agree",
        )
    return CheckOutcome(
        name, OK, f"{len(shared)} shared names split by count; durations agree within {agree:g}"
    )


def _shared_notes(
    found: dict[str, tuple[int, float]], known: dict[str, MappedName], agree: float
) -> list[str]:
    notes = []
    for entry in known.values():
        if not entry.shared or entry.collective or entry.name not in found:
            continue
        parts = ", ".join(f"{use.block} {tidy(round(use.per_step, 3))}" for use in entry.uses)
        spread = entry.spread()
        if spread is None:
            how = "durations not known"
        elif spread > agree:
            how = f"durations differ {spread:.2f} times"
        else:
            how = "durations agree"
        notes.append(f"shared name {_short(entry.name)}: {parts} ({how})")
    return notes


def _short(name: str) -> str:
    return name if len(name) <= 70 else f"{name[:67]}..."
