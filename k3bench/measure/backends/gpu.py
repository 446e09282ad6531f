"""The clock of a ROCm or CUDA GPU: the device's own events, with the last-level cache flushed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from k3bench.measure.backends.jax_wall import JaxWall

# torch's device name (a part of it) to the record's name and the size of the last-level cache.
# MI355X and MI300X: 256 MiB Infinity Cache. Others: torch's L2 size.
KNOWN_GPUS = {
    "MI355X": ("mi355x", 256 * 2**20),
    "MI300X": ("mi300x", 256 * 2**20),
}

# A flush writes this many times the cache, so that nothing of the last call survives in it.
FLUSH_FACTOR = 2


@dataclass(frozen=True)
class TorchGpu:
    """One GPU through torch (``torch.cuda`` speaks HIP on ROCm).

    Attributes:
        device: ``mi355x``, ``mi300x`` or a slug of torch's name.
        platform: ``rocm`` or ``cuda``.
        flush_bytes: how much is overwritten before each timed call.
        compute_units: of the device, or of the partition of it that torch sees.
    """

    device: str
    platform: str
    flush_bytes: int
    compute_units: int | None = None
    clock: Literal["wall", "device"] = "device"
    _scratch: list[Any] = field(default_factory=list, repr=False, compare=False)

    def wait(self, outputs: Any) -> None:
        import torch

        del outputs
        torch.cuda.synchronize()

    def flush(self) -> None:
        """Overwrites ``flush_bytes`` so that the next call finds none of its data cached."""
        import torch

        if not self._scratch:
            self._scratch.append(torch.empty(self.flush_bytes, dtype=torch.int8, device="cuda"))
        self._scratch[0].zero_()

    def time(self, call: Callable[[], Any]) -> float:
        import torch

        self.flush()
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        outputs = call()
        end.record()
        torch.cuda.synchronize()
        del outputs
        return float(start.elapsed_time(end)) * 1e-3


@dataclass(frozen=True)
class JaxGpu(JaxWall):
    """One GPU through jax."""

    platform: str = "gpu"


def describe_torch_gpu(name: str, l2_bytes: int) -> tuple[str, int]:
    """The record's device name and the bytes to flush, from torch's device name and L2 size."""
    for part, (device, cache_bytes) in KNOWN_GPUS.items():
        if part in name:
            return device, FLUSH_FACTOR * cache_bytes
    slug = "-".join(name.lower().split())
    return slug, FLUSH_FACTOR * max(l2_bytes, 2**20)
