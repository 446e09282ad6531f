"""From Triton's answer to figures: code parsed, residency counted, bounds, modelled time."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from k3bench.compiled.amdgpu.figures import CodeFigures, PathFigures, code_figures
from k3bench.compiled.amdgpu.isa import parse
from k3bench.compiled.amdgpu.model import (
    LatencyModel,
    Work,
    judged_error,
    kernel_profile,
    kernel_seconds,
    latency_model,
)
from k3bench.compiled.amdgpu.nvidia import parse_usage, ptx_sha256
from k3bench.compiled.amdgpu.residency import Residency, residency, waves_per_simd
from k3bench.compiled.amdgpu.result import GpuResult
from k3bench.compiled.amdgpu.targets import GpuTarget

# What a launch reads counts as cached where the launch before it wrote it, give or take lengths
# and the like, and a cache beyond L2 holds it.
_PRODUCED_SLACK = 1.05
_PRODUCED_LIMIT_BYTES = 256 << 20

TimeModel = Callable[[LatencyModel], float]


@dataclass(frozen=True)
class Kernel:
    """One launch with its code understood; no figures where only registers are known (NVIDIA)."""

    answer: Mapping[str, Any]
    vgpr: int
    agpr: int | None
    sgpr: int | None
    scratch_bytes: int
    occupancy: int
    code_sha256: str
    figures: CodeFigures | None
    fit: Residency
    reads_produced: bool

    @property
    def hbm_bytes(self) -> int:
        """Read and written."""
        return int(self.answer["read_bytes"] + self.answer["written_bytes"])

    @property
    def work(self) -> Work:
        """What the model is asked about."""
        return Work(
            iterations=int(self.answer["iterations"]),
            mean_iterations=float(self.answer["mean_iterations"]),
            iteration_bytes=self.answer["iteration_bytes"],
            merge_iterations=int(self.answer["merge_iterations"]),
            hbm_bytes=self.hbm_bytes,
        )

    @property
    def described(self) -> PathFigures | None:
        """The main loop's iteration, or the whole pass of a kernel without loops."""
        return None if self.figures is None else self.figures.described

    @property
    def bytes_in_flight_per_cu(self) -> int | None:
        """Of the workgroups that one compute unit really has: a small grid leaves room unused."""
        if self.described is None:
            return None
        units = self.fit.resident_workgroups // self.fit.per_compute_unit
        here = min(self.fit.per_compute_unit, -(-self.fit.grid // units))
        return self.described.bytes_in_flight * here


def evaluate(
    answer: Mapping[str, Any],
    point: Mapping[str, Any],
    target: GpuTarget,
    *,
    compute_units: int | None = None,
) -> GpuResult:
    """The figures of an answer of child.py.

    Args:
        answer: what the compiler made of the point.
        point: the point as JSON, kept in the result.
        target: what was compiled for.
        compute_units: of a partition, where it is not the whole device.

    Raises:
        CompiledFormatError: for code that this analysis does not understand.
    """
    common: dict[str, Any] = {
        "status": answer["status"],
        "detail": answer["detail"],
        "point": dict(point),
        "target": target.name,
        "device": target.device,
        "triton": answer["triton"],
    }
    if answer["status"] != "ok":
        return GpuResult(**common)
    units = compute_units or target.compute_units
    widest = max(answer["kernels"], key=lambda kernel: kernel["lds_bytes"])
    if widest["lds_bytes"] > target.lds_limit_bytes:
        detail = (
            f"{widest['name']} wants {widest['lds_bytes']} bytes of LDS, a workgroup on "
            f"{target.name} may have {target.lds_limit_bytes}"
        )
        return GpuResult(
            **{**common, "status": "oom", "detail": detail},
            wanted_lds_bytes=widest["lds_bytes"],
            limit_lds_bytes=target.lds_limit_bytes,
            lds_bytes=widest["lds_bytes"],
            compile_s=answer["compile_s"],
        )
    kernels = understood(answer["kernels"], target, units)
    main = max(kernels, key=lambda kernel: kernel.hbm_bytes)
    models = [time_model(kernel, target, units) for kernel in kernels]
    seconds = [None if model is None else model(latency_model()) for model in models]
    modelled = [value for value in seconds if value is not None]
    documents = [
        _kernel_json(kernel, value, target, units)
        for kernel, value in zip(kernels, seconds, strict=True)
    ]
    described = main.described
    codes = "\n".join(kernel.code_sha256 for kernel in kernels)
    return GpuResult(
        **common,
        vgpr=max(kernel.vgpr for kernel in kernels),
        agpr=_largest(kernel.agpr for kernel in kernels),
        sgpr=_largest(kernel.sgpr for kernel in kernels),
        scratch_bytes=max(kernel.scratch_bytes for kernel in kernels),
        scratch_operations_in_loops=sum(
            kernel.figures.scratch_operations_in_loops for kernel in kernels if kernel.figures
        )
        if target.analysed
        else None,
        lds_bytes=widest["lds_bytes"],
        occupancy=min(kernel.occupancy for kernel in kernels),
        main_kernel=main.answer["name"],
        resident_workgroups=main.fit.resident_workgroups,
        rounds=main.fit.rounds,
        round_trips=described.round_trips if described else None,
        bytes_in_flight_per_cu=main.bytes_in_flight_per_cu,
        mfma=sum(described.mfma.values()) if described else None,
        hbm_bytes=sum(kernel.hbm_bytes for kernel in kernels),
        flops=sum(int(kernel.answer["flops"]) for kernel in kernels),
        lower_bound_us=sum(document["lower_bound_us"] for document in documents),
        modelled_us=1e6 * sum(modelled) if len(modelled) == len(kernels) else None,
        modelled_error=judged_error(target.name) if target.analysed else None,
        code_sha256=sha256(codes.encode()).hexdigest(),
        kernels=tuple(documents),
        compile_s=answer["compile_s"],
    )


def understood(answers: Sequence[Mapping[str, Any]], target: GpuTarget, units: int) -> list[Kernel]:
    """The launches of one answer, in order; CompiledFormatError for code that is not understood."""
    kernels: list[Kernel] = []
    written: float = 0
    for answer in answers:
        produced = answer["read_bytes"] <= min(_PRODUCED_SLACK * written, _PRODUCED_LIMIT_BYTES)
        kernels.append(_kernel(answer, target, units, reads_produced=produced))
        written = answer["written_bytes"]
    return kernels


def _kernel(
    answer: Mapping[str, Any], target: GpuTarget, units: int, *, reads_produced: bool
) -> Kernel:
    waves = int(answer["num_warps"])
    grid = int(answer["busy_workgroups"])
    if not target.analysed:
        usage = parse_usage(answer["usage"])
        fit = residency(
            vector_registers=usage.registers,
            lds_bytes=answer["lds_bytes"],
            waves=waves,
            grid=grid,
            target=target,
            compute_units=units,
        )
        return Kernel(
            answer, usage.registers, None, None, usage.stack_bytes, fit.waves_per_simd,
            ptx_sha256(answer["text"]), None, fit, reads_produced,
        )  # fmt: skip
    program = parse(answer["text"])
    allocated = -(-program.vgpr // 4) * 4 + program.agpr if program.agpr else program.vgpr
    fit = residency(
        vector_registers=allocated,
        lds_bytes=answer["lds_bytes"],
        waves=waves,
        grid=grid,
        target=target,
        compute_units=units,
    )
    figures = code_figures(program, waves=waves, wave_threads=target.wave_threads)
    return Kernel(
        answer, program.vgpr, program.agpr, program.sgpr, program.scratch_bytes,
        waves_per_simd(allocated, target), program.sha256, figures, fit, reads_produced,
    )  # fmt: skip


def time_model(kernel: Kernel, target: GpuTarget, units: int) -> TimeModel | None:
    """A launch's modelled seconds by the constants; None where its loops are not read."""
    if kernel.figures is None:
        return None
    waves = int(kernel.answer["num_warps"])
    profile = kernel_profile(kernel.figures, target, waves=waves, all_near=kernel.reads_produced)
    return functools.partial(
        kernel_seconds,
        profile,
        kernel.fit,
        waves=waves,
        work=kernel.work,
        target=target,
        compute_units=units,
    )


def _kernel_json(
    kernel: Kernel, seconds: float | None, target: GpuTarget, units: int
) -> dict[str, Any]:
    answer, figures, fit = kernel.answer, kernel.figures, kernel.fit
    share = units / target.compute_units
    bounds = (
        kernel.hbm_bytes / (target.hbm_bytes_per_s * share),
        answer["flops"] / (target.flops_per_s * share),
    )
    described = kernel.described
    program = figures.program if figures else None
    return {
        "name": answer["name"],
        "function": program.name if program else None,
        "grid": list(answer["grid"]),
        "num_warps": answer["num_warps"],
        "num_stages": answer["num_stages"],
        "vgpr": kernel.vgpr,
        "agpr": kernel.agpr,
        "sgpr": kernel.sgpr,
        "vgpr_spills": program.vgpr_spills if program else None,
        "scratch_bytes": kernel.scratch_bytes,
        "scratch_operations_in_loops": figures.scratch_operations_in_loops if figures else None,
        "lds_bytes": answer["lds_bytes"],
        "occupancy": kernel.occupancy,
        **{f"residency_{key}": value for key, value in asdict(fit).items() if key in _FIT_KEYS},
        "resident_workgroups": fit.resident_workgroups,
        "workgroups": fit.grid,
        "rounds": fit.rounds,
        "iterations": answer["iterations"],
        "mean_iterations": answer["mean_iterations"],
        "round_trips": described.round_trips if described else None,
        "round_trips_are_of": _unit(figures),
        "round_trips_of_a_pass": figures.whole.round_trips if figures else None,
        "bytes_per_iteration": described.data_bytes if described else None,
        "bytes_in_flight_per_cu": kernel.bytes_in_flight_per_cu,
        "read_bytes": answer["read_bytes"],
        "written_bytes": answer["written_bytes"],
        "hbm_bytes": kernel.hbm_bytes,
        "reads_what_was_just_written": kernel.reads_produced,
        "flops": answer["flops"],
        "lower_bound_us": 1e6 * max(bounds),
        "modelled_us": None if seconds is None else 1e6 * seconds,
        "code_sha256": kernel.code_sha256,
        "main_loop": described.to_json() if described and _unit(figures) == "iteration" else None,
        "whole_pass": figures.whole.to_json() if figures else None,
        "loops": [
            {"depth": loop.depth, "innermost": loop.innermost, "main": number == figures.main,
             "instructions": found.instructions, "round_trips": found.round_trips,
             "scratch_operations": found.scratch_operations, "load_bytes": found.load_bytes}
            for number, (loop, found) in enumerate(figures.loops)
        ] if figures else [],
    }  # fmt: skip


_FIT_KEYS = ("by_registers", "by_lds", "by_waves", "per_compute_unit", "limit")


def _unit(figures: CodeFigures | None) -> str | None:
    if figures is None:
        return None
    return "pass" if figures.main is None else "iteration"


def _largest(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return max(known, default=None)
