"""Which platforms this installation of torch can run on, asked without touching a device."""

import torch

from mla_rocm.base import PLATFORMS, Support


def torch_support(platform: str) -> Support:
    """Whether torch as installed can run on ``cpu``, ``cuda`` or ``rocm`` at all.

    A build for CUDA or ROCm may still find no device; making the inputs says so.
    """
    if platform not in PLATFORMS:
        return Support(False, f"platform {platform!r} is not one of {', '.join(PLATFORMS)}")
    if platform == "cuda" and torch.version.cuda is None:
        return Support(False, f"torch {torch.__version__} is built without CUDA")
    if platform == "rocm" and torch.version.hip is None:
        return Support(False, f"torch {torch.__version__} is built without ROCm")
    return Support(True)


def platform_of(device: torch.device) -> str:
    """The platform that a tensor's device belongs to; torch calls ROCm devices ``cuda``."""
    if device.type == "cuda":
        return "rocm" if torch.version.hip is not None else "cuda"
    return str(device.type)
