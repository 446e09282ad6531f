"""Makes the composition out of an attributed trace: per step, per block, with its checks."""

from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.checks import check_attributed
from k3bench.attribution.composition import (
    Composition,
    KernelShare,
    Phase,
    make_blocks,
)
from k3bench.attribution.steps import count_matches
from k3bench.attribution.totals import Attributed, KernelTotal, counts_by_name

COLLECTIVE = "collective"


def compose(
    attributed: Attributed,
    definition: BlockDefinition,
    phase: Phase,
    *,
    label: str | None = None,
    input_tokens: int | None = None,
    measured_us: float | None = None,
    include_collectives: bool = False,
) -> Composition:
    """The composition of one step (decode) or of one prefill, with every check's outcome.

    Collectives stay apart from the blocks unless ``include_collectives`` makes them a block of
    their own. ``measured_us`` is an ITL or TTFT from a run without ranges, to check the total by.
    """
    steps = attributed.steps
    chunks = 1
    if phase == "prefill":
        counts = counts_by_name(attributed.trace, attributed.rows)
        passes = count_matches(counts, definition.forward_boundary)
        chunks = max(1, passes // steps)
    rows = [
        KernelTotal(
            row.name,
            definition.counted_in(row.block, phase),
            row.dispatches,
            row.us,
            row.shared,
            row.split,
        )
        for row in attributed.totals
    ]
    names = list(definition.block_names)
    if include_collectives:
        names.append(COLLECTIVE)
        rows += [
            KernelTotal(row.name, COLLECTIVE, row.dispatches, row.us)
            for row in attributed.collectives
        ]
    layers = definition.layers()
    sums = []
    for name in names:
        own = [row for row in rows if row.block == name]
        if own or (name in layers and definition.counted_in(name, phase) == name):
            sums.append(
                (
                    name,
                    _whole(sum(row.dispatches for row in own) / steps),
                    sum(row.us for row in own) / steps,
                    sum(row.us for row in own if row.shared) / steps,
                )
            )
    blocks, total_us = make_blocks(sums, layers)
    apart = () if include_collectives else attributed.collectives
    return Composition(
        label=label or attributed.trace.label,
        phase=phase,
        device=attributed.trace.device_name,
        steps=steps,
        blocks=blocks,
        total_us=total_us,
        method=attributed.method,
        definition=definition.name,
        sources=attributed.sources,
        unmapped=attributed.unmapped,
        checks=check_attributed(
            attributed,
            definition,
            phase,
            chunks=chunks,
            measured_us=measured_us,
            collectives_included=include_collectives,
        ),
        kernels=tuple(
            KernelShare(
                row.name,
                row.block,
                _whole(row.dispatches / steps),
                row.us / steps,
                row.shared,
                row.split,
            )
            for row in _merged(
                [*rows, *(KernelTotal(r.name, COLLECTIVE, r.dispatches, r.us) for r in apart)]
            )
        ),
        excluded_us=sum(row.us for row in apart) / steps,
        excluded_dispatches=_whole(sum(row.dispatches for row in apart) / steps),
        outside_us=attributed.outside_us / steps,
        input_tokens=input_tokens,
        chunks=chunks if phase == "prefill" else None,
        measured_us=measured_us,
        notes=(
            f"{steps} step{'' if steps == 1 else 's'}: {attributed.steps_from}",
            *attributed.notes,
        ),
    )


def _merged(rows: list[KernelTotal]) -> list[KernelTotal]:
    """One row a name and block: folding a block into another can make two of them."""
    found: dict[tuple[str, str], KernelTotal] = {}
    for row in rows:
        old = found.get((row.name, row.block))
        found[row.name, row.block] = (
            row
            if old is None
            else KernelTotal(
                row.name,
                row.block,
                old.dispatches + row.dispatches,
                old.us + row.us,
                old.shared or row.shared,
                old.split or row.split,
            )
        )
    return sorted(found.values(), key=lambda row: -row.us)


def _whole(count: float) -> float:
    """Takes off what floating point left: a count split 69:24 and summed again is whole."""
    return round(count, 9)
