"""The tables that ``k3bench attribute`` prints."""

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from k3bench.attribution.block_map import BlockMap
    from k3bench.attribution.compare import Comparison, KernelDelta, Side
    from k3bench.attribution.composition import CheckOutcome, Composition
    from k3bench.attribution.inventory import ComponentShare
    from k3bench.attribution.mechanism import TrafficRow

_WIDTH_OF_A_PIPE = 120
_NAME_WIDTH = 64
# Kernel and range names come from the trace: nothing in them may move a cursor or hide text.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or 120 columns into a pipe; no markup is read."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_OF_A_PIPE
    return Console(highlight=False, markup=False, emoji=False, stderr=stderr, width=width)


def plain(name: str, width: int = _NAME_WIDTH) -> str:
    """A name as it may be shown: no control characters, at most ``width`` long."""
    shown = _UNPRINTABLE.sub("?", name)
    return shown if len(shown) <= width else f"{shown[: width - 3]}..."


def _table(title: str, *headings: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in headings:
        left = heading in ("block", "kernel", "component", "check", "result", "traffic", "split")
        made.add_column(heading, justify="left" if left else "right", overflow="fold")
    return made


def print_composition(composition: "Composition") -> None:
    """Blocks with their shares, and what stands beside them."""
    title = (
        f"{plain(composition.label)}, {composition.phase}, {plain(composition.device)} [measured; "
        f"per step over {composition.steps}]"
    )
    table = _table(title, "block", "dispatches", "us", "share", "us a layer", "us by split")
    for block in composition.blocks:
        per_layer = block.us_per_layer
        table.add_row(
            block.name,
            f"{block.dispatches:,.6g}",
            f"{block.us:,.1f}",
            f"{block.share:.2%}",
            "" if per_layer is None else f"{per_layer:,.2f}",
            f"{block.shared_us:,.1f}" if block.shared_us else "",
        )
    table.add_section()
    table.add_row("total", f"{composition.dispatches:,.6g}", f"{composition.total_us:,.1f}", "100%")
    out = console()
    out.print(table)
    if composition.excluded_dispatches:
        out.print(
            f"apart: {composition.excluded_dispatches:,.6g} collectives a step, "
            f"{composition.excluded_us:,.1f} us"
        )
    if composition.outside_us:
        out.print(f"outside of the steps' graphs: {composition.outside_us:,.1f} us a step")
    for note in composition.notes:
        out.print(plain(note, 240))


def print_checks(checks: "Sequence[CheckOutcome]", *, stderr: bool = False) -> None:
    table = _table("", "check", "result", "detail")
    table.columns[2].justify = "left"
    for check in checks:
        table.add_row(check.name, check.status, plain(check.detail, 400))
    console(stderr=stderr).print(table)


def print_map(learned: "BlockMap") -> None:
    """How injective the map is, and every shared name with its split."""
    out = console()
    injective = learned.injectivity()
    time = "not known" if injective.time is None else f"{injective.time:.1%}"
    steps = f"{learned.steps} step{'' if learned.steps == 1 else 's'}"
    out.print(
        f"{len(learned.names)} kernel names, {learned.dispatches_per_step:,.6g} dispatches a step "
        f"over {steps}; unique by name: {injective.dispatches:.1%} of non-collective dispatches, "
        f"{time} of their time"
    )
    if not learned.shared_names:
        return
    table = _table("shared names", "kernel", "a step", "split", "durations differ")
    for entry in learned.shared_names:
        spread = entry.spread()
        table.add_row(
            plain(entry.name),
            f"{entry.per_step:,.6g}",
            ", ".join(f"{use.block} {use.per_step:,.6g}" for use in entry.uses),
            "not known" if spread is None else f"{spread:.2f} x",
        )
    out.print(table)


def print_inventory(composition: "Composition", rows: "Sequence[Sequence[str]]") -> None:
    """``rows``: as ``inventory_cells`` gives them, header first."""
    headings = ("kernel", "block", "component", "a step", "us", "% of block", "shared")
    table = _table(f"{plain(composition.label)} [measured; per step]", *headings)
    for row in rows[1:]:
        shared = f"yes, {row[8]}" if row[8] else row[7]
        table.add_row(plain(row[1], 48), row[2], plain(row[3], 24), *row[4:7], shared)
    console().print(table)


def print_components(composition: "Composition", parts: "Sequence[ComponentShare]") -> None:
    table = _table(
        f"{plain(composition.label)} [measured; per step]", "block", "component", "us", "% of block"
    )
    for part in parts:
        table.add_row(
            part.block, plain(part.component), f"{part.us:,.1f}", f"{part.share_of_block:.2%}"
        )
    console().print(table)


def print_traffic(rows: "Sequence[TrafficRow]") -> None:
    table = _table(
        "bytes [modelled] over time [measured]",
        *("block", "traffic", "GB a step", "us a step", "TB/s", "of peak"),
    )
    for row in rows:
        speed = row.bytes_per_s
        table.add_row(
            row.block,
            row.traffic,
            f"{row.bytes_per_step / 1e9:.3f}",
            f"{row.us_per_step:,.1f}",
            "" if speed is None else f"{speed / 1e12:.3f}",
            "" if row.share_of_peak is None else f"{row.share_of_peak:.1%}",
        )
    console().print(table)


def print_comparison(comparison: "Comparison", top: int) -> None:
    """The two sides, kernels of one side only, the largest changes, and the MLA forms."""
    out = console()
    first, second = comparison.first, comparison.second
    for side in (first, second):
        out.print(f"{plain(side.label)}: {side.dispatches:,} kernels, {side.us / 1e3:,.1f} ms")
    for side, rows in ((second, comparison.only_second), (first, comparison.only_first)):
        _print_only(side, rows, top)
    table = _table(
        "in both, largest change first", *("kernel", "first ms", "second ms", "ratio", "n", "n")
    )
    for row in comparison.in_both[:top]:
        table.add_row(
            plain(row.name),
            f"{row.first_us / 1e3:,.2f}",
            f"{row.second_us / 1e3:,.2f}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            str(row.first_count),
            str(row.second_count),
        )
    out.print(table)
    if first.mla or second.mla:
        _print_mla(first, second)


def _print_only(side: "Side", rows: "Sequence[KernelDelta]", top: int) -> None:
    if not rows:
        return
    table = _table(f"only in {plain(side.label)}: {len(rows)}", "kernel", "ms", "n")
    for row in rows[:top]:
        table.add_row(
            plain(row.name),
            f"{(row.first_us + row.second_us) / 1e3:,.2f}",
            str(row.first_count + row.second_count),
        )
    console().print(table)


def _print_mla(first: "Side", second: "Side") -> None:
    table = _table(
        "MLA prefill form, by launch geometry",
        *("pass", "form", "grid", "BLOCK_M", "pairs", "FLOP a layer", "ms a layer", "TFLOP/s"),
    )
    for side in (first, second):
        mla = side.mla
        if mla is None:
            continue
        speed = mla.flop_per_s
        table.add_row(
            plain(side.label, 32),
            mla.form,
            str(list(mla.grid)),
            "" if mla.block_m is None else str(mla.block_m),
            "" if mla.pairs is None else f"{mla.pairs:.3e}",
            "" if mla.flop_per_layer is None else f"{mla.flop_per_layer:.3e}",
            f"{mla.us_per_layer / 1e3:,.2f}",
            "" if speed is None else f"{speed / 1e12:,.0f}",
        )
    out = console()
    out.print(table)
    for side in (first, second):
        if side.mla:
            out.print(f"{plain(side.label)}: {side.mla.detail}")
