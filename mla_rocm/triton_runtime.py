"""Runs described launches on tensors, and says where Triton can run at all."""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from mla_rocm.base import Support
from mla_rocm.geometry import MI355X_COMPUTE_UNITS
from mla_rocm.launch import HIP_OPTIONS, Launch
from mla_rocm.platforms import torch_support

ON_CPU = "Triton kernel: runs on a CPU only in the interpreter, which is never timed"


def triton_support(platform: str) -> Support:
    """Whether Triton kernels can run on a platform, asked without importing triton."""
    if platform == "cpu":
        return Support(False, ON_CPU)
    support = torch_support(platform)
    if support.ok and not triton_installed():
        return Support(False, "triton is not installed: pip install 'k3bench[rocm]'")
    return support


@functools.cache
def triton_installed() -> bool:
    """Whether an import of triton would find it."""
    return importlib.util.find_spec("triton") is not None


def compute_units(device: torch.device) -> int:
    """Compute units of a GPU; of an MI355X on a CPU, where the interpreter walks its launch."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return MI355X_COMPUTE_UNITS


def launcher(launch: Launch) -> Callable[..., Any]:
    """The launch as a function of its other arguments, given by name."""
    options = launch.options
    if torch.version.hip is None:
        options = {name: value for name, value in options.items() if name not in HIP_OPTIONS}
    return functools.partial(launch.kernel[launch.grid], **launch.constexprs, **options)
