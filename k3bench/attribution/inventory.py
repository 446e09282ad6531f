"""Every kernel of a composition: its block, component, dispatches and time, shared or not."""

from dataclasses import dataclass

from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.composition import Composition, KernelShare, tidy

_NAME_WIDTH = 60


@dataclass(frozen=True)
class ComponentShare:
    """One component of a block: microseconds per step, and its fraction of the block."""

    block: str
    component: str
    us: float
    share_of_block: float


def inventory_rows(
    composition: Composition, definition: BlockDefinition
) -> list[tuple[KernelShare, str, float]]:
    """(kernel, component, fraction of its block), by block and largest time first."""
    sums = {block.name: block.us for block in composition.blocks}
    order = {name: n for n, name in enumerate(sums)}
    rows = sorted(
        composition.kernels, key=lambda row: (order.get(row.block, len(order)), -row.us, row.name)
    )
    return [
        (
            row,
            _component(definition, row.block, row.name),
            row.us / sums[row.block] if sums.get(row.block) else 0.0,
        )
        for row in rows
    ]


def components(composition: Composition, definition: BlockDefinition) -> list[ComponentShare]:
    """Blocks by component, largest first; a block without components by kernel name, cut to 60."""
    sums: dict[tuple[str, str], float] = {}
    for row, component, _ in inventory_rows(composition, definition):
        key = (row.block, component)
        sums[key] = sums.get(key, 0.0) + row.us
    totals = {block.name: block.us for block in composition.blocks}
    order = {name: n for n, name in enumerate(totals)}
    return [
        ComponentShare(block, component, us, us / totals[block] if totals[block] else 0.0)
        for (block, component), us in sorted(
            sums.items(), key=lambda item: (order.get(item[0][0], len(order)), -item[1])
        )
        if block in totals
    ]


def _component(definition: BlockDefinition, block: str, kernel: str) -> str:
    if definition.block(block).components:
        return definition.component(block, kernel)
    return kernel[:_NAME_WIDTH]


def inventory_cells(composition: Composition, definition: BlockDefinition) -> list[list[str]]:
    """A header and a row a kernel and block, for a CSV file."""
    cells = [
        [
            "context",
            "kernel",
            "block",
            "component",
            "dispatches_per_step",
            "us_per_step",
            "pct_of_block",
            "shared",
            "split",
        ]
    ]
    for row, component, share in inventory_rows(composition, definition):
        cells.append(
            [
                composition.label,
                row.name,
                row.block,
                component,
                str(tidy(round(row.dispatches, 6))),
                f"{row.us:.3f}",
                f"{100 * share:.2f}",
                "yes" if row.shared else "no",
                row.split,
            ]
        )
    return cells


def component_cells(composition: Composition, definition: BlockDefinition) -> list[list[str]]:
    """The published layout of decode-block-internals.csv, header first."""
    cells = [["context", "input_tokens", "block", "component", "us_per_step", "pct_of_block"]]
    tokens = "" if composition.input_tokens is None else str(composition.input_tokens)
    for part in components(composition, definition):
        cells.append(
            [
                *(composition.label, tokens, part.block, part.component),
                *(f"{part.us:.1f}", f"{100 * part.share_of_block:.2f}"),
            ]
        )
    return cells
