"""What a call must move and compute, and what share of the device its time says it used."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Work:
    """The work of one call, the same for every implementation of it.

    Attributes:
        hbm_bytes: what must come from and go to memory at least once: what is visited, never what
            is allocated.
        flops: multiply-adds of the mathematics as 2, without padding.
        notes: what else a record should say of the work, e.g. in which form it is done.
    """

    hbm_bytes: int
    flops: int
    notes: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Peaks:
    """A device's rates by its data sheet: the denominators of shares.

    Attributes:
        hbm_bytes_per_s: memory bandwidth.
        flops_per_s: dense bf16 with fp32 accumulation.
        source: where both come from.
    """

    hbm_bytes_per_s: float
    flops_per_s: float
    source: str


# Names as the torch backend gives them to the names of the compiled targets, which hold the rates.
_TARGETS = {"mi355x": "gfx950", "mi300x": "gfx942", "nvidia-h200": "sm_90"}


def device_peaks(device: str, compute_units: int | None = None) -> Peaks | None:
    """The peaks of a device, or None where its rates are not known (a CPU's are not).

    Args:
        device: the name that records carry.
        compute_units: of the partition that is measured, where it is not the whole device: it gets
            that share of both peaks.
    """
    if device not in _TARGETS:
        return None
    from k3bench.compiled.amdgpu.targets import get_gpu_target

    target = get_gpu_target(_TARGETS[device])
    units = compute_units or target.compute_units
    share = units / target.compute_units
    part = "" if share == 1 else f", {units} of {target.compute_units} compute units"
    return Peaks(
        target.hbm_bytes_per_s * share, target.flops_per_s * share, target.sources["rates"] + part
    )


def work_figures(work: Work, median_s: float, peaks: Peaks | None) -> dict[str, Scalar]:
    """A measured record's figures: the work, the rates that its median gives, shares of peaks.

    Without peaks there are rates and no shares.
    """
    bytes_per_s, flops_per_s = work.hbm_bytes / median_s, work.flops / median_s
    figures: dict[str, Scalar] = {
        **work.notes,
        "hbm_bytes": work.hbm_bytes,
        "flops": work.flops,
        "hbm_bytes_per_s": bytes_per_s,
        "flops_per_s": flops_per_s,
    }
    if peaks is not None:
        figures |= {
            "hbm_share_of_peak": bytes_per_s / peaks.hbm_bytes_per_s,
            "flops_share_of_peak": flops_per_s / peaks.flops_per_s,
            "peak_hbm_bytes_per_s": peaks.hbm_bytes_per_s,
            "peak_flops_per_s": peaks.flops_per_s,
            "peak_source": peaks.source,
        }
    return figures
