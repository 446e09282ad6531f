"""What of a compiled point goes where: units for asv, figures for the ledger; TPU and GPU apart."""

from collections.abc import Mapping
from typing import Any

from k3bench.compiled import CompiledResult, KdaPoint
from k3bench.compiled.amdgpu import GpuPoint, GpuResult

AnyPoint = KdaPoint | GpuPoint
AnyResult = CompiledResult | GpuResult
Figures = dict[str, str | int | float]

# Figure to its unit, as asv shows it. Less is better for all of them.
UNITS: Mapping[str, str] = {
    "modelled_ms": "ms (modelled)",
    "kernel_cycles": "cycles",
    "spill_stores": "spilled registers",
    "hbm_bytes": "bytes of HBM traffic",
    "vmem_bytes": "bytes of scoped VMEM",
}
GPU_UNITS: Mapping[str, str] = {
    "modelled_us": "us (modelled, no gate)",
    "rounds": "rounds of resident workgroups",
    "round_trips": "serialised memory round trips an iteration",
    "scratch_operations_in_loops": "scratch operations an iteration",
    "scratch_bytes": "bytes of scratch a lane",
    "lds_bytes": "bytes of LDS a workgroup",
    "hbm_bytes": "bytes of HBM traffic",
    "flops": "FLOPs of the launches",
    "mfma": "matrix instructions an iteration of the main kernel",
}

_TPU_FIGURES = ("kernel_cycles", "stall_cycles", "spill_stores", "spill_fills", "vmem_bytes",
                "hbm_bytes")  # fmt: skip
_GPU_FIGURES = ("vgpr", "agpr", "sgpr", "scratch_bytes", "scratch_operations_in_loops",
                "lds_bytes", "occupancy", "main_kernel", "resident_workgroups", "rounds",
                "round_trips", "bytes_in_flight_per_cu", "mfma", "hbm_bytes", "flops",
                "code_sha256")  # fmt: skip
_GPU_KERNEL_FIGURES = ("vgpr", "agpr", "scratch_bytes", "lds_bytes", "workgroups",
                       "resident_workgroups", "rounds", "round_trips", "bytes_per_iteration",
                       "bytes_in_flight_per_cu", "iterations")  # fmt: skip


def recorded_with(result: AnyResult) -> str:
    """The figure whose benchmark keeps the records: the modelled time."""
    return "modelled_us" if isinstance(result, GpuResult) else "modelled_ms"


def verdict_key(result: AnyResult) -> tuple[str, str]:
    """What a kernel is judged under, and the room that holds it."""
    if isinstance(result, GpuResult):
        return f"{result.point['operation']}/{result.implementation}", "mla_rocm"
    return result.implementation, "kda_tpu"


def modelled_seconds(result: AnyResult) -> float:
    """The modelled time of an ok result."""
    if isinstance(result, GpuResult):
        return (result.modelled_us or 0.0) / 1e6
    return (result.modelled_ms or 0.0) / 1e3


def padded_tokens(result: AnyResult) -> int | None:
    """Tokens executed, where the compiler's input says."""
    return None if isinstance(result, GpuResult) else result.padded_tokens


def versions(result: AnyResult) -> Figures:
    """The compilers' versions, with the result's fingerprint."""
    if isinstance(result, GpuResult):
        return {"fingerprint": result.fingerprint, "triton": result.triton}
    return {"fingerprint": result.fingerprint, "jax": result.jax, "libtpu": result.libtpu}


def overflow_figures(result: AnyResult) -> Figures:
    """What was wanted and what is there, where a kernel does not fit."""
    names = (
        ("wanted_lds_bytes", "limit_lds_bytes")
        if isinstance(result, GpuResult)
        else ("wanted_vmem_bytes", "limit_vmem_bytes")
    )
    return _known({name: getattr(result, name) for name in names})


def compiled_figures(result: AnyResult) -> Figures:
    """What the compiler states, flat.

    TPU: ``slot.MXU`` and ``share.stall`` are shares of cycles. GPU: ``stage1.vgpr`` is a kernel's.
    """
    if isinstance(result, GpuResult):
        kernels = {
            f"{label}.{name}": kernel[name]
            for label, kernel in _labelled(result)
            for name in _GPU_KERNEL_FIGURES
        }
        own = {name: getattr(result, name) for name in _GPU_FIGURES}
        return {**versions(result), **_known({**own, **kernels})}
    return {
        **versions(result),
        **{name: getattr(result, name) for name in _TPU_FIGURES},
        **{f"xla_ops.{name}": value for name, value in result.xla_ops.items()},
        **{f"assumed.{name}": value for name, value in result.assumed.items()},
        **{f"slot.{name}": share for name, share in result.slots.items()},
        **{f"share.{name}": share for name, share in result.breakdown.items()},
    }


def modelled_figures(result: AnyResult) -> Figures:
    """What goes with a modelled time: the model's error, and times no schedule can beat."""
    errors = {f"model_error.{name}": value for name, value in (result.modelled_error or {}).items()}
    if isinstance(result, GpuResult):
        bounds = {"bound.roofline_s": (result.lower_bound_us or 0.0) / 1e6}
        kernels = {
            f"{label}.modelled_us": kernel["modelled_us"] for label, kernel in _labelled(result)
        }
        return {"fingerprint": result.fingerprint, **bounds, **errors, **_known(kernels)}
    bounds = {f"bound.{name}_s": ms / 1e3 for name, ms in result.lower_bounds_ms.items()}
    return {"fingerprint": result.fingerprint, **bounds, **errors}


def _labelled(result: GpuResult) -> list[tuple[str, Mapping[str, Any]]]:
    """Kernels with their names, numbered where a name comes more than once."""
    names = [str(kernel["name"]) for kernel in result.kernels]
    labels = [
        f"{name}#{names[:number].count(name)}" if names.count(name) > 1 else name
        for number, name in enumerate(names)
    ]
    return list(zip(labels, result.kernels, strict=True))


def _known(values: Mapping[str, Any]) -> Figures:
    return {name: value for name, value in values.items() if value is not None}
