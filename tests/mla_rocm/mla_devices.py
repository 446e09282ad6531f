"""Where the shared test bodies run: the CPU, a GPU where torch finds one, Triton's interpreter."""

import os

import torch

from mla_rocm.platforms import platform_of
from mla_rocm.triton_runtime import ON_CPU

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)

# With TRITON_INTERPRET=1 the same bodies run the Triton kernels, and only those, on CPU tensors.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# The interpreter's products of bfloat16 operands are garbage: it is checked in float16 instead.
HALF = "float16" if INTERPRETED else "bfloat16"


# These launch the kernels of another implementation, which is interpreted instead.
SAME_KERNELS = ("triton_batch_invariant",)


def examples(count: int) -> int:
    """Hypothesis examples to draw: a tenth where a kernel takes a second in the interpreter."""
    return max(1, count // 10) if INTERPRETED else count


def runs_here(implementation, case, device: str) -> bool:
    """Whether an implementation can compute the case on the device in this test session."""
    support = implementation.can_run(platform_of(torch.device(device)), case)
    if INTERPRETED:
        kernels_of_its_own = implementation.name not in SAME_KERNELS
        return support.reason == ON_CPU and kernels_of_its_own and case.dtype != "bfloat16"
    return support.ok


def on_devices(implementations, case) -> list[tuple[str, str]]:
    """(name, device) of every implementation that can run the case in this session."""
    return [
        (name, device)
        for name, implementation in implementations.items()
        for device in DEVICES
        if runs_here(implementation, case, device)
    ]


def tensors_of(inputs) -> dict[str, torch.Tensor]:
    """The tensor fields of an inputs dataclass by name."""
    return {name: value for name, value in vars(inputs).items() if isinstance(value, torch.Tensor)}
