"""The GPUs that are compiled for: what Triton must be told, and what one compute unit holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from k3bench.compiled.errors import CompiledError
from k3bench.roofline.hardware import get_hardware


@dataclass(frozen=True)
class GpuTarget:
    """One GPU as the compiler, the residency arithmetic and the latency model see it.

    Attributes:
        name: as ``--target`` takes it.
        backend, arch, wave_threads: Triton's GPUTarget.
        device: the ledger's name of the device.
        compute_units: CUs (SMs) of the whole device.
        simds: schedulers of a CU, each with its own registers.
        vector_registers: 32-bit registers of one lane, on one SIMD, shared by its waves.
        register_granule: they are allocated in multiples of this.
        max_wave_registers: the most that one wave can address.
        waves_per_simd: limit of resident waves.
        max_workgroups: limit of resident workgroups with more than one wave (barriers).
        lds_bytes, lds_granule_bytes: LDS (shared memory) of a CU, and its allocation unit.
        lds_limit_bytes: the most that one workgroup may have.
        clock_hz: peak engine clock.
        hbm_bytes_per_s: peak bandwidth of the data sheet.
        streamed_hbm_bytes_per_s: what the model assumes that a kernel reaches.
        flops_per_s: dense bf16 with fp32 accumulation, peak.
        l1_bytes_per_cycle: that a CU's vector cache returns.
        l1_latency_cycles: of a load whose cache line the same wave has read before.
        lds_latency_cycles: of an LDS access.
        sources: where figures come from.
        analysed: whether the code object's loops can be read (AMD's assembly; not PTX).
    """

    name: str
    backend: str
    arch: str | int
    wave_threads: int
    device: str
    compute_units: int
    simds: int
    vector_registers: int
    register_granule: int
    max_wave_registers: int
    waves_per_simd: int
    max_workgroups: int
    lds_bytes: int
    lds_granule_bytes: int
    lds_limit_bytes: int
    clock_hz: float
    hbm_bytes_per_s: float
    streamed_hbm_bytes_per_s: float
    flops_per_s: float
    sources: Mapping[str, str] = field(repr=False)
    analysed: bool = True
    l1_bytes_per_cycle: int = 64
    l1_latency_cycles: int = 120
    lds_latency_cycles: int = 64


# Bandwidths and peaks stand in the project's one table of devices.
_MI355X, _MI300X, _H200 = map(get_hardware, ("mi355x", "mi300x", "h200"))

_CDNA_SOURCE = (
    "AMD CDNA3/CDNA4 ISA documents and LLVM's AMDGPU usage guide: 512 registers a lane and SIMD "
    "(VGPRs and AGPRs together), 8 waves a SIMD, 16 multi-wave workgroups a CU"
)
_CDNA_CACHES = {
    "l1_bytes_per_cycle": "AMD CDNA3 white paper: 64 bytes a clock from L1",
    "l1_latency_cycles, lds_latency_cycles": "assumed, of the order of public microbenchmarks",
}

GFX950 = GpuTarget(
    name="gfx950",
    backend="hip",
    arch="gfx950",
    wave_threads=64,
    device="mi355x",
    compute_units=256,
    simds=4,
    vector_registers=512,
    register_granule=8,
    max_wave_registers=512,
    waves_per_simd=8,
    max_workgroups=16,
    lds_bytes=160 << 10,
    lds_granule_bytes=1280,
    lds_limit_bytes=160 << 10,
    clock_hz=2.4e9,
    hbm_bytes_per_s=_MI355X.hbm.value,
    streamed_hbm_bytes_per_s=_MI355X.streamed.value,
    flops_per_s=_MI355X.matrix_flops_per_s("bf16"),
    sources=MappingProxyType(
        {
            "registers, waves": _CDNA_SOURCE,
            "rates": "AMD Instinct MI355X data sheet: 256 CUs, 2.4 GHz, 8 TB/s, 2.5 PFLOP/s bf16",
            "streamed_hbm_bytes_per_s": "assumed: 85% of the peak",
            **_CDNA_CACHES,
        }
    ),
)

GFX942 = GpuTarget(
    name="gfx942",
    backend="hip",
    arch="gfx942",
    wave_threads=64,
    device="mi300x",
    compute_units=304,
    simds=4,
    vector_registers=512,
    register_granule=8,
    max_wave_registers=512,
    waves_per_simd=8,
    max_workgroups=16,
    lds_bytes=64 << 10,
    lds_granule_bytes=512,
    lds_limit_bytes=64 << 10,
    clock_hz=2.1e9,
    hbm_bytes_per_s=_MI300X.hbm.value,
    streamed_hbm_bytes_per_s=_MI300X.streamed.value,
    flops_per_s=_MI300X.matrix_flops_per_s("bf16"),
    sources=MappingProxyType(
        {
            "registers, waves": _CDNA_SOURCE,
            "rates": "AMD Instinct MI300X data sheet: 304 CUs, 2.1 GHz, 5.3 TB/s, 1.307 PFLOP/s",
            "streamed_hbm_bytes_per_s": "assumed: 85% of the peak",
            **_CDNA_CACHES,
        }
    ),
)

# PTX leaves scheduling to a later compiler, so loops are not read: registers, spills, shared
# memory, residency and bounds are all there is.
SM_90 = GpuTarget(
    name="sm_90",
    backend="cuda",
    arch=90,
    wave_threads=32,
    device="h200",
    compute_units=132,
    simds=4,
    vector_registers=512,
    register_granule=8,
    max_wave_registers=255,
    waves_per_simd=16,
    max_workgroups=32,
    lds_bytes=228 << 10,
    lds_granule_bytes=128,
    lds_limit_bytes=227 << 10,
    clock_hz=1.98e9,
    hbm_bytes_per_s=_H200.hbm.value,
    streamed_hbm_bytes_per_s=_H200.streamed.value,
    flops_per_s=_H200.matrix_flops_per_s("bf16"),
    sources=MappingProxyType(
        {
            "registers, waves": "CUDA programming guide, compute capability 9.0",
            "rates": "NVIDIA H200 SXM data sheet: 132 SMs, 4.8 TB/s, 989 TFLOP/s bf16 dense",
            "streamed_hbm_bytes_per_s": "assumed: 85% of the peak",
        }
    ),
    analysed=False,
)

GPU_TARGETS: Mapping[str, GpuTarget] = MappingProxyType(
    {target.name: target for target in (GFX950, GFX942, SM_90)}
)


def get_gpu_target(name: str) -> GpuTarget:
    """The target of that name; CompiledError naming the known ones."""
    try:
        return GPU_TARGETS[name]
    except KeyError:
        raise CompiledError(f"target {name!r}: use one of {', '.join(GPU_TARGETS)}") from None
