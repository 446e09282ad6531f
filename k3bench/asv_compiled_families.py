"""What of a compiled point goes where, by family: units for asv, figures for the ledger."""

from collections.abc import Mapping, Sequence
from typing import Any

from k3bench.compiled.amdgpu import GpuPoint, GpuResult, compile_gpu_points, get_gpu_target
from k3bench.compiled.tpu import CompiledError, CompiledResult, KdaPoint, compile_points, get_target
from k3bench.measure import Work, WorkloadRef
from k3bench.measure.work import work_figures
from k3bench.roofline.calls import (
    KernelCall,
    form_call,
    kda_decode_call,
    kda_prefill_call,
    mla_decode_call,
    mla_prefill_call,
)
from k3bench.roofline.form_points import FormPoint, compile_form_points
from k3bench.roofline.recorded import recorded_call

AnyPoint = KdaPoint | GpuPoint | FormPoint
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


def compile_any(points: Sequence[AnyPoint], target: str, **options: Any) -> Sequence[AnyResult]:
    """Results of points of one family, in their order.

    Raises CompiledError for points of several families, and as the family's compiler does.
    """
    kda = [point for point in points if isinstance(point, KdaPoint)]
    gpu = [point for point in points if isinstance(point, GpuPoint)]
    forms = [point for point in points if isinstance(point, FormPoint)]
    if sum(map(bool, (kda, gpu, forms))) > 1:
        raise CompiledError("points of several families in one sweep: give one kind at a time")
    if gpu:
        return compile_gpu_points(gpu, get_gpu_target(target), **options)
    if forms:
        return compile_form_points(forms, get_target(target), **options)
    return compile_points(kda, get_target(target), **options)


def recorded_with(result: AnyResult) -> str:
    """The figure whose benchmark keeps the records: the modelled time."""
    return "modelled_us" if isinstance(result, GpuResult) else "modelled_ms"


def verdict_key(result: AnyResult) -> tuple[str, str]:
    """What a kernel is judged under, and the room that holds it."""
    if isinstance(result, GpuResult):
        return f"{result.point['operation']}/{result.implementation}", "mla_rocm"
    if FormPoint.is_point(result.point):
        # The room of the forms' definitions, which are the suite's and no commit's.
        return f"{result.point['form']}/{result.implementation}", "k3bench.roofline.reference"
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


def modelled_figures(
    result: AnyResult, workload: WorkloadRef, parameters: Mapping[str, Any]
) -> Figures:
    """What goes with a modelled time: rates, the distance from the roofline, the model's error.

    ``bound.*`` are times that no run of this very program can beat; ``roofline.*`` is of the
    problem, whatever program solves it.
    """
    return {**_program_figures(result), **_distance(result, workload, parameters)}


def _distance(result: AnyResult, workload: WorkloadRef, parameters: Mapping[str, Any]) -> Figures:
    # The workload's own lengths where they can be told: a point may have been padded.
    call = recorded_call(workload.id, workload.sha256, parameters)
    work = Work.of_call(call or _call_of_point(result))
    units = result.point["compute_units"] if isinstance(result, GpuResult) else None
    return work_figures(work, modelled_seconds(result), result.device, units)


def _call_of_point(result: AnyResult) -> KernelCall:
    point = result.point
    if FormPoint.is_point(point):
        from k3bench.roofline.reference.ways import PROBLEMS

        return form_call(PROBLEMS[point["form"]].cost)
    sizes: dict[str, Any] = {"heads": point["heads"], "dtype": point["dtype"]}
    if isinstance(result, CompiledResult):
        sizes |= {"k_dim": point["head_dim_k"], "v_dim": point["head_dim_v"]}
        return kda_prefill_call([point["lengths"]], **sizes)
    if point["operation"] == "kda-decode":
        return kda_decode_call(len(point["lengths"]), **sizes)
    if point["operation"] == "mla-decode":
        return mla_decode_call(point["lengths"], **sizes)
    return mla_prefill_call(point["lengths"], point["prefix_lengths"], **sizes)


def _program_figures(result: AnyResult) -> Figures:
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
