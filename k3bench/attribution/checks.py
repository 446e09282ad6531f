"""The checks that a composition must pass before anybody prints it."""

import numpy as np

from k3bench.attribution.block_map import BlockMap
from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.composition import (
    FAILED,
    OK,
    SKIPPED,
    CheckOutcome,
    Composition,
    Phase,
    tidy,
)
from k3bench.attribution.events import Floats, Trace
from k3bench.attribution.steps import count_matches
from k3bench.attribution.totals import Attributed, counts_by_name

# Below this many dispatches, durations that are all whole microseconds may be chance.
_ENOUGH_DURATIONS = 20


def check_attributed(
    attributed: Attributed,
    definition: BlockDefinition,
    phase: Phase,
    *,
    chunks: int = 1,
    measured_us: float | None = None,
    collectives_included: bool = False,
) -> tuple[CheckOutcome, ...]:
    """Every check of one attributed trace, in the order of the method.

    ``measured_us`` is an ITL (decode) or TTFT (prefill) from a run of its own, without ranges.
    """
    return (
        whole_file(attributed),
        fractional_durations(attributed),
        *attributed.outcomes,
        *structural_counts(attributed, definition, phase, chunks),
        integral_counts(attributed),
        unmapped_names(attributed),
        collectives(attributed, phase, collectives_included),
        total(attributed, definition, phase, measured_us, collectives_included),
    )


def whole_file(attributed: Attributed) -> CheckOutcome:
    return _whole_trace(attributed.trace)


def _whole_trace(trace: Trace) -> CheckOutcome:
    name = "whole file"
    if trace.cut_off:
        return CheckOutcome(name, FAILED, f"{trace.label} is {trace.cut_off}")
    return CheckOutcome(name, OK, f"{trace.label} ends where it should")


def fractional_durations(attributed: Attributed) -> CheckOutcome:
    """Floored microseconds lose time: 5.7% on one published trace."""
    return _fractional(attributed.trace.device.duration_us[attributed.rows])


def _fractional(durations: Floats) -> CheckOutcome:
    name = "fractional durations"
    if (durations != np.floor(durations)).any():
        return CheckOutcome(name, OK, "durations carry fractions of a microsecond")
    if len(durations) < _ENOUGH_DURATIONS:
        return CheckOutcome(name, SKIPPED, f"{len(durations)} dispatches are too few to tell")
    lost = 0.5 * len(durations) / max(float(durations.sum()), 1.0)
    return CheckOutcome(
        name,
        FAILED,
        f"all {len(durations):,} durations are whole microseconds: they were floored, which loses "
        f"about {lost:.1%} of the time; take the trace with a profiler that keeps nanoseconds",
    )


def structural_counts(
    attributed: Attributed, definition: BlockDefinition, phase: Phase, chunks: int
) -> list[CheckOutcome]:
    """Kernels that run once a layer must have run once a layer."""
    counts = counts_by_name(attributed.trace, attributed.rows)
    found = []
    for expected in definition.counts:
        if phase not in expected.phases:
            continue
        wanted = expected.per_step * chunks
        seen = count_matches(counts, expected.kernels)
        status = OK if seen == wanted * attributed.steps else FAILED
        detail = f"{tidy(round(seen / attributed.steps, 4))} a step, expected {wanted}"
        if status == FAILED:
            detail += (
                f" (kernel {expected.kernels.pattern}, {seen} dispatches in {attributed.steps} "
                f"steps by {attributed.steps_from})"
            )
        found.append(CheckOutcome(f"count of {expected.label}", status, detail))
    if not found:
        found.append(
            CheckOutcome("structural counts", SKIPPED, f"{definition.name} states none for {phase}")
        )
    return found


def integral_counts(attributed: Attributed) -> CheckOutcome:
    """Every kernel a whole number of times per step."""
    name = "integral counts"
    counts = counts_by_name(attributed.trace, attributed.rows)
    wrong = [(kernel, count) for kernel, (count, _) in counts.items() if count % attributed.steps]
    if not wrong:
        steps = f"{attributed.steps} step{'s' if attributed.steps > 1 else ''}"
        return CheckOutcome(name, OK, f"{len(counts)} names, whole counts in each of {steps}")
    kernel, count = max(wrong, key=lambda item: item[1])
    more = f", and {len(wrong) - 1} more names" if len(wrong) > 1 else ""
    return CheckOutcome(
        name,
        FAILED,
        f"{_short(kernel)}: {count} dispatches in {attributed.steps} steps{more}",
    )


def unmapped_names(attributed: Attributed) -> CheckOutcome:
    name = "unmapped names"
    if not attributed.unmapped:
        return CheckOutcome(name, OK, "every kernel has a block")
    first = attributed.unmapped[0]
    more = f", and {len(attributed.unmapped) - 1} more" if len(attributed.unmapped) > 1 else ""
    return CheckOutcome(
        name,
        FAILED,
        f"{_short(first.name)}: {tidy(round(first.dispatches, 4))} a step, {first.us:,.1f} us, not "
        f"in the map{more}",
    )


def collectives(attributed: Attributed, phase: Phase, included: bool) -> CheckOutcome:
    """Whether the collectives' time can be work.

    Without a graph every rank launches on its own, and a collective waits for the last: in a
    published eager decode 135 of 156 ms. In a graph, or a prefill, nothing explains such a wait.
    """
    name = "collectives"
    waiting = sum(row.us for row in attributed.collectives) / attributed.steps
    compute = (sum(row.us for row in attributed.totals)) / attributed.steps
    compute += sum(row.us for row in attributed.unmapped)
    count = sum(row.dispatches for row in attributed.collectives) / attributed.steps
    if not count:
        return CheckOutcome(name, OK, "none in the trace")
    found = (
        f"{tidy(round(count, 4))} a step, {waiting:,.1f} us against {compute:,.1f} us of compute"
    )
    if waiting <= compute:
        role = "included" if included else "kept apart"
        return CheckOutcome(name, OK, f"{found}; {role}")
    in_graph = bool(attributed.trace.device.graph[attributed.rows].any())
    if in_graph or phase == "prefill" or included:
        reason = (
            "ranks were out of step when this was traced"
            if in_graph or phase == "prefill"
            else "launch skew, not work, and it was asked to be counted in"
        )
        return CheckOutcome(name, FAILED, f"{found}: {reason}")
    return CheckOutcome(name, OK, f"{found}: launch skew of an eager run, left out")


def total(
    attributed: Attributed,
    definition: BlockDefinition,
    phase: Phase,
    measured_us: float | None,
    collectives_included: bool,
) -> CheckOutcome:
    """The device time against a total that was measured on its own."""
    name = "total"
    if measured_us is None:
        what = "ITL" if phase == "decode" else "TTFT"
        return CheckOutcome(name, SKIPPED, f"no independently measured {what} was given")
    found = sum(row.us for row in attributed.totals) / attributed.steps
    found += sum(row.us for row in attributed.unmapped)
    if phase == "prefill" or collectives_included:
        found += sum(row.us for row in attributed.collectives) / attributed.steps
    low, high = definition.total_band[phase]
    ratio = found / measured_us
    detail = (
        f"{found / 1e3:,.3f} ms of device time against {measured_us / 1e3:,.3f} ms measured, "
        f"{ratio:.3f} of it; allowed {low:g} to {high:g}"
    )
    return CheckOutcome(name, OK if low <= ratio <= high else FAILED, detail)


def learning_checks(
    learned: BlockMap, trace: Trace, definition: BlockDefinition
) -> tuple[CheckOutcome, ...]:
    """What a map must hold to be believed: whole counts, structural counts, sound durations."""
    per_step = {entry.name: entry.per_step for entry in learned.names}
    outcomes = [_whole_trace(trace)]
    if len(trace.device):
        outcomes.append(_fractional(trace.device.duration_us))
    for expected in definition.counts:
        if "decode" in expected.phases:
            seen = sum(n for kernel, n in per_step.items() if expected.kernels.search(kernel))
            detail = f"{tidy(round(seen, 4))} a step, expected {expected.per_step}"
            status = OK if seen == expected.per_step else FAILED
            outcomes.append(CheckOutcome(f"count of {expected.label}", status, detail))
    uneven = [
        (entry, use)
        for entry in learned.names
        for use in entry.uses
        if not float(use.per_step).is_integer()
    ]
    strays = sum(entry.stray for entry in learned.names)
    if uneven:
        entry, use = uneven[0]
        outcomes.append(
            CheckOutcome(
                "integral counts",
                FAILED,
                f"{_short(entry.name)}: {use.per_step:.4f} a step in {use.block} over "
                f"{learned.steps} steps, and {len(uneven) - 1} more",
            )
        )
    else:
        beyond = f"; {strays} dispatches outside of every range beyond them" if strays else ""
        detail = f"{len(learned.names)} names, whole counts over {learned.steps} steps{beyond}"
        outcomes.append(CheckOutcome("integral counts", OK, detail))
    return tuple(outcomes)


def is_independent(check: CheckOutcome) -> bool:
    """Whether a check compares the trace with something that is not in it."""
    return check.name.startswith("count of ") or check.name in ("total", "counts as learned")


def same_counts(compositions: list[Composition]) -> CheckOutcome:
    """The same dispatches per step at every context, kernel by kernel."""
    name = "same counts at every context"
    if len(compositions) < 2:
        return CheckOutcome(name, SKIPPED, "one trace has nothing to agree with")
    first = compositions[0]
    expected = _dispatches(first)
    for other in compositions[1:]:
        found = _dispatches(other)
        for kernel in expected.keys() | found.keys():
            if expected.get(kernel, 0) != found.get(kernel, 0):
                return CheckOutcome(
                    name,
                    FAILED,
                    f"{_short(kernel)}: {tidy(found.get(kernel, 0))} a step in {other.label}, "
                    f"{tidy(expected.get(kernel, 0))} in {first.label}",
                )
    every = first.dispatches + first.excluded_dispatches
    return CheckOutcome(
        name, OK, f"{tidy(every)} dispatches a step in each of {len(compositions)} traces"
    )


def _dispatches(composition: Composition) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in composition.kernels:
        found[row.name] = round(found.get(row.name, 0.0) + row.dispatches, 6)
    for lost in composition.unmapped:
        found[lost.name] = round(found.get(lost.name, 0.0) + lost.dispatches, 6)
    return found


def _short(name: str) -> str:
    return name if len(name) <= 70 else f"{name[:67]}..."
