"""How far a time is from its bound, as figures of a record (docs/data-model.md)."""

from collections.abc import Mapping

from k3bench.roofline.calls import KernelCall
from k3bench.roofline.machine import machine_of

Scalar = str | int | float | bool

# Figures of a record whose names begin so are the roofline's, not the kernel's.
PREFIX = "roofline."


def distance_figures(
    call: KernelCall, seconds: float, device: str, compute_units: int | None = None
) -> dict[str, Scalar]:
    """The bound of a call on a record's device, and how many times it the call takes.

    Args:
        call: what was called.
        seconds: what it took, measured or modelled.
        device: as the record names it.
        compute_units: of the partition that was used.

    Where there is no bound, there is no figure but ``roofline.none``, which says why.
    """
    machine = machine_of(device, compute_units)
    if machine is None:
        return {f"{PREFIX}none": f"the peaks of {device} are not known, so there is no bound"}
    found = call.bound(machine)
    if not found.bound.seconds:
        return {f"{PREFIX}none": "the call has nothing to do, so there is no bound"}
    times = {
        f"{PREFIX}{resource}_s": value
        for resource, value in found.bound.by_resource.items()
        if value
    }
    return {
        f"{PREFIX}bound_s": found.bound.seconds,
        f"{PREFIX}limited_by": found.bound.limited_by,
        f"{PREFIX}times_bound": seconds / found.bound.seconds,
        f"{PREFIX}way": found.way,
        f"{PREFIX}flops": found.cost.flops,
        f"{PREFIX}hbm_bytes": found.cost.hbm_bytes,
        **times,
    }


def times_bound(figures: Mapping[str, object] | None) -> float | None:
    """Time over bound that a record's figures state; None where they state none."""
    value = (figures or {}).get(f"{PREFIX}times_bound")
    return float(value) if isinstance(value, int | float) and value > 0 else None
