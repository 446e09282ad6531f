"""How many decode steps, or forward passes, a trace holds."""

import re
from collections.abc import Mapping

import numpy as np

from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.composition import Phase
from k3bench.attribution.errors import RequestError, StepsError
from k3bench.attribution.events import Trace


def count_steps(
    trace: Trace,
    counts: Mapping[str, tuple[int, float]],
    definition: BlockDefinition,
    phase: Phase,
    *,
    stated: int | None = None,
    replays: int = 0,
) -> tuple[int, str]:
    """(steps, where the number is from).

    In order of trust: the caller's own number, graph replays, step ranges that the definition
    names, and last the structural counts, all of which must then agree. A prefill is one step
    unless the caller says otherwise. ``counts`` are (dispatches, us) by kernel name.

    Raises StepsError where the structural counts contradict one another, RequestError where there
    are none and nothing else answers.
    """
    if stated is not None:
        return stated, "given"
    if replays:
        return replays, "graph replays"
    if phase == "prefill":
        return 1, "one prefill"
    ranges = count_step_ranges(trace, definition)
    if ranges:
        return ranges, "step ranges"
    found: dict[str, float] = {}
    for expected in definition.counts:
        if phase in expected.phases:
            seen = sum(n for name, (n, _) in counts.items() if expected.kernels.search(name))
            found[expected.label] = seen / expected.per_step
    agreed = set(found.values())
    if len(agreed) == 1 and (steps := agreed.pop()) > 0 and steps.is_integer():
        return int(steps), "structural counts"
    if found:
        detail = ", ".join(f"{label} {steps:g}" for label, steps in found.items())
        raise StepsError(
            f"{trace.label}: the structural counts do not agree on the number of steps ({detail}): "
            "give --steps to see which one is wrong"
        )
    raise RequestError(f"{trace.label}: nothing says how many steps this is: give --steps")


def count_step_ranges(trace: Trace, definition: BlockDefinition) -> int:
    """Host ranges that the definition calls steps."""
    if definition.step_ranges is None or not len(trace.ranges):
        return 0
    ids, counts = np.unique(trace.ranges.name[trace.ranges.module == 0], return_counts=True)
    return sum(
        count
        for name, count in zip(ids.tolist(), counts.tolist(), strict=True)
        if definition.step_ranges.fullmatch(trace.strings[name])
    )


def count_matches(counts: Mapping[str, tuple[int, float]], pattern: re.Pattern[str] | None) -> int:
    """Dispatches whose kernel name matches."""
    if pattern is None:
        return 0
    return sum(n for name, (n, _) in counts.items() if pattern.search(name))
