"""What the roofline page stands on: peaks of devices, the bound of every series, K3 by block."""

from typing import Any

from k3bench.dashboard.rows import COLUMNS, Series
from k3bench.roofline.blocks import model_step
from k3bench.roofline.calls import KernelCall
from k3bench.roofline.distance import PREFIX
from k3bench.roofline.hardware import get_hardware
from k3bench.roofline.machine import Machine, machine_of
from k3bench.roofline.model import get_model
from k3bench.roofline.published import SETTING, distances, published_decodes
from k3bench.roofline.recorded import recorded_call
from k3bench.roofline.step import Step

# A compiled row has no time, and a published one is of a kernel whose call is not pinned here.
KINDS = ("measured", "modelled")
_MEDIAN = COLUMNS.index("median_s")
_FIGURES = COLUMNS.index("figures")


def roofline_of(series: Series) -> dict[str, Any] | None:
    """The work of a series' call and its bound; None where nothing can be said.

    Rows state their own bound since they have one; this is for the others, and for the figure.
    """
    if series.view.kind not in KINDS or not any(row[_MEDIAN] for row in series.rows):
        return None
    call = recorded_call(series.workload_id, series.workload_sha256, series.parameters)
    if call is None:
        stated = any(row[_FIGURES] and f'"{PREFIX}' in row[_FIGURES] for row in series.rows)
        return {"none": "the row states its own"} if stated else None
    document: dict[str, Any] = {
        "dtype": call.dtype,
        "flops": call.usual.flops,
        "hbm_bytes": call.usual.hbm_bytes,
    }
    machine = machine_of(series.view.device)
    if machine is None:
        return document | {
            "none": f"the peaks of {series.view.device} are not known, so there is no bound"
        }
    if "Partition" in series.benchmark:
        return document | {"none": "the row does not say how large its partition was"}
    return document | _bound(call, machine)


def families_of(roofline: dict[str, Any] | None) -> tuple[str, ...]:
    """The page's families: ``roofline`` where work is known, ``bounded`` where a bound is too."""
    if roofline is None:
        return ()
    return ("roofline", "bounded") if roofline.get("bound_s") else ("roofline",)


def _bound(call: KernelCall, machine: Machine) -> dict[str, Any]:
    found = call.bound(machine)
    return {
        "flops": found.cost.flops,
        "hbm_bytes": found.cost.hbm_bytes,
        "bound_s": found.bound.seconds or None,
        "limited_by": found.bound.limited_by,
        "way": found.way,
    }


def peaks_of(device: str) -> dict[str, Any] | None:
    """The roof of a device as records name it; None where its peaks are not known."""
    machine = machine_of(device)
    if machine is None:
        return None
    hardware = machine.hardware
    return {
        "title": hardware.title + machine.part,
        "hbm_bytes_per_s": machine.hbm_bytes_per_s,
        "matrix_flops_per_s": {
            dtype: peak.value * machine.share for dtype, peak in hardware.matrix.items()
        },
        "sources": {dtype: machine.peaks(dtype) for dtype in hardware.matrix},
    }


def k3_decode_by_block() -> dict[str, Any]:
    """K3's published decode step beside its bound: milliseconds by block and context."""
    model, hardware = get_model(SETTING["model"]), get_hardware(SETTING["hardware"])
    batch, tp = SETTING["batch"], SETTING["tp"]
    decodes = published_decodes()
    rows = []
    for decode in decodes:
        cost = model_step(model, Step.decode(decode.context, batch), tp=tp)
        limits = {block.name: block.bound(hardware).limited_by for block in cost.blocks}
        rows += [
            {
                "context": decode.context,
                "block": row.block,
                "bound_ms": row.bound_ms,
                "published_ms": row.published_ms,
                "ratio": row.ratio,
                "limited_by": limits.get(row.block),
            }
            for row in distances(cost, hardware, decode.ms)
        ]
    return {
        **SETTING,
        "title": f"{model.title} on {hardware.title}",
        "source": decodes[0].source if decodes else None,
        "peaks": Machine(hardware).peaks(),
        "assumed": {**model.assumed, **hardware.assumptions()},
        "rows": rows,
    }
