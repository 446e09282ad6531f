"""The tables and documents of `k3bench forms`."""

import math
import sys
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from k3bench.roofline.blocks import StepCost
    from k3bench.roofline.hardware import Hardware

_WIDTH_OF_A_PIPE = 200


def cost_table(
    title: str,
    found: "StepCost",
    device: "Hardware",
    published: dict[str, dict[str, float]] | None,
) -> Table:
    shown = plain_table(
        title, "layers", "GFLOP", "MB", "bound us", "limited by", "matrix peak", justify="right"
    )
    for block in found.blocks:
        bound = block.bound(device)
        shown.add_row(
            block.name,
            str(block.layers),
            f"{block.cost.flops / 1e9:,.2f}",
            f"{block.cost.hbm_bytes / 1e6:,.1f}",
            significant(bound.seconds * 1e6, 4),
            bound.limited_by,
            block.dtype_on(device),
        )
    total = significant(found.total_bound_us(device), 4)
    shown.add_row("total", "", "", "", total, "", "", style="bold")
    for name, row in (published or {}).items():
        shown.add_row(
            f"published {name}",
            "",
            "",
            "",
            f"{row['published_ms'] * 1e3:,.0f}",
            f"{row['published_over_bound']:,.1f} x bound",
            "",
        )
    return shown


def gemm_rows(found: "StepCost") -> list[dict[str, Any]]:
    return [
        {
            "block": block.name,
            "name": gemm.name,
            "M": gemm.M,
            "N": gemm.N,
            "K": gemm.K,
            "count": gemm.count,
            "flops": gemm.flops,
        }
        for block in found.blocks
        for gemm in block.cost.gemms
    ]


def gemm_table(rows: list[dict[str, Any]]) -> Table:
    shown = plain_table("products", "M", "N", "K", "count", "GFLOP", justify="right")
    for row in rows:
        sizes = (f"{row[size]:,}" for size in ("M", "N", "K", "count"))
        shown.add_row(f"{row['block']}: {row['name']}", *sizes, f"{row['flops'] / 1e9:,.3f}")
    return shown


def device_document(device: "Hardware") -> dict[str, Any]:
    def entry(found: Any) -> dict[str, Any]:
        return {"value": found.value, "source": found.source, "assumed": found.assumed}

    return {
        "title": device.title,
        "matrix_flops_per_s": {name: entry(found) for name, found in device.matrix.items()},
        "vector_flops_per_s": entry(device.vector),
        "hbm_bytes_per_s": entry(device.hbm),
        "streamed_bytes_per_s": entry(device.streamed),
        "capacity_bytes": entry(device.capacity),
        "on_chip_bytes": {name: entry(found) for name, found in device.on_chip.items()},
        "link_bytes_per_s": entry(device.link),
        "separate_units": device.separate_units,
    }


def shortage(document: dict[str, Any], device: "Hardware") -> str:
    """What of a step's memory a rank does not hold; its bound stands all the same."""
    memory = document["memory"]
    weights, states, capacity = (
        f"{memory[name] / 1e9:,.1f} GB"
        for name in ("weight_bytes", "state_bytes", "capacity_bytes")
    )
    return (
        f"does not fit at {document['context']:,} tokens: {weights} of weights and {states} of "
        f"caches and states on a rank, {device.title} holds {capacity}: more --tp, or less --batch "
        "or --context"
    )


def significant(value: float, digits: int = 3) -> str:
    """That many significant digits, or all before the point, and never an exponent."""
    decimals = 0 if value == 0 else max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def ranks(tp: int) -> str:
    """Whose cost it is."""
    return "one rank alone" if tp == 1 else f"one of {tp} ranks"


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)


def plain_table(title: str, *columns: str, justify: Any = "left") -> Table:
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    shown.add_column("", overflow="fold")
    for column in columns:
        shown.add_column(column, justify=justify, overflow="fold")
    return shown
