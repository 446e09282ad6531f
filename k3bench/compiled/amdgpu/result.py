"""What is known of one GPU point after compiling it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3bench.compiled.amdgpu.point import GpuPoint
from k3bench.compiled.document import ResultDocument

# Raised whenever the same code would give other figures; part of the cache's key.
PARSER_VERSION = 2


@dataclass(frozen=True)
class GpuResult(ResultDocument):
    """One point on one GPU, all its launches. Everything but ``compile_s`` is deterministic.

    ``kernels`` has every launch with figures of its own; the fields here sum them up. Registers,
    scratch and LDS are the largest of any kernel, occupancy the least; bytes, FLOPs and times are
    sums over the launches; residency, rounds, round trips and bytes in flight are the main
    kernel's, which is the one that moves most bytes.

    Attributes:
        status: ``ok``, ``oom`` (more LDS than a workgroup may have), ``unsupported`` or ``error``.
        detail: one line, None where ok.
        point, target, device: what was compiled, for what; the ledger's name of the device.
        triton: version. No kernel is the same code under two versions.
        wanted_lds_bytes, limit_lds_bytes: of an overflow.
        vgpr, agpr, sgpr: registers; vgpr without AGPRs (all registers of a thread on NVIDIA, where
            the others are None).
        scratch_bytes: of one lane.
        scratch_operations_in_loops: loads and stores of scratch over an iteration of every
            innermost loop: what a spill really costs. None where loops are not read.
        lds_bytes: of a workgroup.
        occupancy: waves per SIMD by registers.
        main_kernel: its name.
        resident_workgroups: on the whole device (or partition).
        rounds: times the device is filled.
        round_trips: serialised memory round trips of one main-loop iteration, or of the whole pass
            of a kernel without loops; None where loops are not read.
        bytes_in_flight_per_cu: most bytes of data on their way at one moment, over the workgroups
            that a compute unit has at once. None where loops are not read.
        mfma: matrix instructions of one main-loop iteration and wave. None where loops are not
            read.
        hbm_bytes: each byte that the launches read or write, once per launch.
        flops: of the mathematics, without padding.
        lower_bound_us: no schedule beats it: bytes at peak bandwidth or FLOPs at peak rate.
        modelled_us: by model.py. It informs, and is no gate. None where it is not modelled.
        modelled_error: {"mean", "worst"}, relative, of the model on published points; None on a
            target that it was not judged on.
        code_sha256: of all the code, source paths and lines stripped.
        compile_s: compiling in the run that filled the cache.
        parser: version of this analysis.
    """

    triton: str
    detail: str | None = None
    wanted_lds_bytes: int | None = None
    limit_lds_bytes: int | None = None
    vgpr: int | None = None
    agpr: int | None = None
    sgpr: int | None = None
    scratch_bytes: int | None = None
    scratch_operations_in_loops: int | None = None
    lds_bytes: int | None = None
    occupancy: int | None = None
    main_kernel: str | None = None
    resident_workgroups: int | None = None
    rounds: int | None = None
    round_trips: float | None = None
    bytes_in_flight_per_cu: int | None = None
    mfma: int | None = None
    hbm_bytes: int | None = None
    flops: int | None = None
    lower_bound_us: float | None = None
    modelled_us: float | None = None
    modelled_error: Mapping[str, float] | None = None
    code_sha256: str | None = None
    kernels: tuple[Mapping[str, Any], ...] = ()
    compile_s: float | None = None
    parser: int = PARSER_VERSION

    def gpu_point(self) -> GpuPoint:
        """The point that was compiled."""
        return GpuPoint.from_json(self.point)
