"""What a call must move and compute, and what its time says: rates, shares of peaks, distance."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from k3bench.roofline.calls import KernelCall
from k3bench.roofline.distance import Scalar, distance_figures
from k3bench.roofline.machine import machine_of


@dataclass(frozen=True)
class Work:
    """The work of one call, the same for every implementation of it.

    Attributes:
        hbm_bytes: what must come from and go to memory at least once: what is visited, never what
            is allocated.
        flops: multiply-adds of the mathematics as 2, without padding.
        notes: what else a record should say of the work, e.g. in which form it is done.
        call: what the roofline bounds, which leaves the form open; None for a part of a kernel,
            which has no bound of its own.
    """

    hbm_bytes: int
    flops: int
    notes: Mapping[str, Scalar] = field(default_factory=dict)
    call: KernelCall | None = None

    @classmethod
    def of_call(cls, call: KernelCall, notes: Mapping[str, Scalar] | None = None) -> "Work":
        """The work of a call's usual way."""
        cost = call.usual
        return cls(cost.hbm_bytes, cost.flops, notes or {}, call)

    @property
    def dtype(self) -> str:
        """Of the operands, as the roofline names it: whose matrix peak shares are of."""
        return "bf16" if self.call is None else self.call.dtype


@dataclass(frozen=True)
class Peaks:
    """A device's rates by its data sheet: the denominators of shares.

    Attributes:
        hbm_bytes_per_s: memory bandwidth.
        flops_per_s: dense products with fp32 accumulation, of the dtype that ``source`` names.
        source: where both come from.
    """

    hbm_bytes_per_s: float
    flops_per_s: float
    source: str


def device_peaks(
    device: str, compute_units: int | None = None, dtype: str = "bf16"
) -> Peaks | None:
    """The peaks of a device, or None where its rates are not known (a CPU's are not).

    Args:
        device: the name that records carry.
        compute_units: of the partition that is measured, where it is not the whole device: it gets
            that share of both peaks.
        dtype: of the operands, as the roofline names it.
    """
    machine = machine_of(device, compute_units)
    if machine is None:
        return None
    return Peaks(machine.hbm_bytes_per_s, machine.matrix_flops_per_s(dtype), machine.peaks(dtype))


def work_figures(
    work: Work, median_s: float, device: str, compute_units: int | None = None
) -> dict[str, Scalar]:
    """A record's figures: the work, the rates that its time gives, shares of peaks, the bound.

    Args:
        work: of one call.
        median_s: its time, measured or modelled.
        device: as the record names it; without known peaks there are rates alone.
        compute_units: of the partition that was used.
    """
    bytes_per_s, flops_per_s = work.hbm_bytes / median_s, work.flops / median_s
    figures: dict[str, Scalar] = {
        **work.notes,
        "hbm_bytes": work.hbm_bytes,
        "flops": work.flops,
        "hbm_bytes_per_s": bytes_per_s,
        "flops_per_s": flops_per_s,
    }
    peaks = device_peaks(device, compute_units, work.dtype)
    if peaks is not None:
        figures |= {
            "hbm_share_of_peak": bytes_per_s / peaks.hbm_bytes_per_s,
            "flops_share_of_peak": flops_per_s / peaks.flops_per_s,
            "peak_hbm_bytes_per_s": peaks.hbm_bytes_per_s,
            "peak_flops_per_s": peaks.flops_per_s,
            "peak_source": peaks.source,
        }
    if work.call is not None:
        figures |= distance_figures(work.call, median_s, device, compute_units)
    return figures
