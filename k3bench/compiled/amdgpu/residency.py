"""How many workgroups of a kernel a compute unit holds at once, and how often the device refills.

Pure arithmetic on registers, LDS and waves. It says exactly where a launch falls off a cliff: one
workgroup more than the device holds costs a whole further round.
"""

from dataclasses import dataclass

from k3bench.compiled.amdgpu.targets import GpuTarget
from k3bench.compiled.errors import CompiledError


@dataclass(frozen=True)
class Residency:
    """What fits, by each resource, and what follows for one launch.

    Attributes:
        waves_per_simd: waves of this kernel that a SIMD's registers allow, at most the hardware's
            limit (``occupancy`` of the compilers).
        by_registers, by_lds, by_waves: workgroups per CU that each resource alone allows.
        per_compute_unit: the least of them.
        limit: which one that is: ``registers``, ``lds`` or ``waves``.
        resident_workgroups: on the whole device.
        grid: workgroups launched.
        rounds: ceil(grid / resident_workgroups).
    """

    waves_per_simd: int
    by_registers: int
    by_lds: int
    by_waves: int
    per_compute_unit: int
    limit: str
    resident_workgroups: int
    grid: int
    rounds: int


def waves_per_simd(vector_registers: int, target: GpuTarget) -> int:
    """Waves that a SIMD holds when each has that many VGPRs, AGPRs included."""
    granule = target.register_granule
    allocated = max(granule, -(-vector_registers // granule) * granule)
    return min(target.waves_per_simd, target.vector_registers // allocated)


def residency(
    *,
    vector_registers: int,
    lds_bytes: int,
    waves: int,
    grid: int,
    target: GpuTarget,
    compute_units: int | None = None,
) -> Residency:
    """Workgroups per CU and rounds of one launch.

    Args:
        vector_registers: VGPRs and AGPRs of a lane together.
        lds_bytes: of a workgroup.
        waves: of a workgroup.
        grid: workgroups launched.
        target: the GPU.
        compute_units: of the partition, where it is not the whole device (32 in CPX mode).

    Raises:
        CompiledError: on counts that cannot be, and for a workgroup that does not fit at all.
    """
    units = target.compute_units if compute_units is None else compute_units
    for name, value in (("waves", waves), ("grid", grid), ("compute_units", units)):
        if value < 1:
            raise CompiledError(f"{name} is {value}: must be at least 1")
    if lds_bytes > target.lds_limit_bytes:
        raise CompiledError(
            f"a workgroup of {lds_bytes} bytes of LDS does not fit {target.name}: at most "
            f"{target.lds_limit_bytes}"
        )
    per_simd = waves_per_simd(vector_registers, target)
    by_registers = per_simd * target.simds // waves
    granule = target.lds_granule_bytes
    allocated = -(-lds_bytes // granule) * granule
    most = target.waves_per_simd * target.simds
    by_lds = target.lds_bytes // allocated if allocated else most
    # A workgroup of one wave needs no barrier, and barriers are what the workgroup limit counts.
    by_waves = min(most // waves, most if waves == 1 else target.max_workgroups)
    fitting = min(by_registers, by_lds, by_waves)
    if fitting < 1:
        raise CompiledError(
            f"a workgroup of {waves} waves with {vector_registers} registers does not fit a "
            f"compute unit of {target.name}: use fewer warps"
        )
    # Where the wave limit binds as well, saving registers or LDS would bring nothing.
    limits = {"waves": by_waves, "registers": by_registers, "lds": by_lds}
    limit = min(limits, key=lambda name: limits[name])
    return Residency(
        waves_per_simd=per_simd,
        by_registers=by_registers,
        by_lds=by_lds,
        by_waves=by_waves,
        per_compute_unit=fitting,
        limit=limit,
        resident_workgroups=fitting * units,
        grid=grid,
        rounds=-(-grid // (fitting * units)),
    )
