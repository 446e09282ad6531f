"""What Triton's compiler says for gfx950 without one: registers, residency, round trips, a model.

``compile_gpu_points([GpuPoint("mla-decode", "triton", (65536,))], get_gpu_target("gfx950"))`` gives
one GpuResult a point. Importing this package imports neither Triton nor a kernel.
"""

from k3bench.compiled.amdgpu.point import OPERATIONS, GpuPoint
from k3bench.compiled.amdgpu.result import GpuResult
from k3bench.compiled.amdgpu.sweep import compile_gpu_points
from k3bench.compiled.amdgpu.targets import GPU_TARGETS, GpuTarget, get_gpu_target

__all__ = [
    "GPU_TARGETS",
    "OPERATIONS",
    "GpuPoint",
    "GpuResult",
    "GpuTarget",
    "compile_gpu_points",
    "get_gpu_target",
]
