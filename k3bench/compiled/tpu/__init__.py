"""What the TPU compiler says without a TPU: schedules, slots, spills, bytes, a modelled time.

``compile_points([KdaPoint("original", (2048,) * 4, heads=16)], get_target("v6e"))`` gives one
CompiledResult a point. Importing this package imports neither jax nor a kernel.
"""

from k3bench.compiled.errors import CompiledError, CompiledFormatError, CompilerUnavailableError
from k3bench.compiled.tpu.aot import compiler_versions
from k3bench.compiled.tpu.evaluate import compile_point
from k3bench.compiled.tpu.point import KdaPoint
from k3bench.compiled.tpu.result import CompiledResult
from k3bench.compiled.tpu.sweep import compile_points
from k3bench.compiled.tpu.targets import TARGETS, Target, get_target

__all__ = [
    "TARGETS",
    "CompiledError",
    "CompiledFormatError",
    "CompiledResult",
    "CompilerUnavailableError",
    "KdaPoint",
    "Target",
    "compile_point",
    "compile_points",
    "compiler_versions",
    "get_target",
]
