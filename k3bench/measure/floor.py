"""The dispatch floor: what a call that does nothing costs under a device's clock.

Below it no kernel can be told from another; published TPU medians contain it (0.13 ms on v6e).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from k3bench.measure.backends.base import Backend
from k3bench.measure.backends.gpu import TorchGpu
from k3bench.measure.backends.jax_wall import JaxWall
from k3bench.measure.result import Summary, summarise

WARMUP, REPEAT = 10, 100


@dataclass(frozen=True)
class DispatchFloor:
    """The floor of one device under one clock, with all its samples in seconds."""

    device: str
    clock: str
    call: str
    samples_s: tuple[float, ...]

    @property
    def summary(self) -> Summary:
        """Median and spread."""
        return summarise(self.samples_s)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "device": self.device,
            "clock": self.clock,
            "call": self.call,
            "samples_s": list(self.samples_s),
        }


def measure_floor(backend: Backend) -> DispatchFloor:
    """Times the smallest call that still reaches the device: one addition on one tile.

    torch's CPU calls have no device to reach; theirs is an empty Python call.
    """
    description, call = _smallest_call(backend)
    for _ in range(WARMUP):
        backend.wait(call())
    samples = tuple(backend.time(call) for _ in range(REPEAT))
    return DispatchFloor(backend.device, backend.clock, description, samples)


def _smallest_call(backend: Backend) -> tuple[str, Callable[[], Any]]:
    if isinstance(backend, JaxWall):
        import jax

        # One register tile. Not the identity: jax would return its argument and run nothing.
        tile = jax.numpy.zeros((8, 128), jax.numpy.float32)
        program = jax.jit(lambda x: x + 1).lower(tile).compile()
        return "compiled x + 1 on f32[8,128]", lambda: program(tile)
    if isinstance(backend, TorchGpu):
        import torch

        one = torch.zeros(1, device="cuda")
        return "x.add_(1) on f32[1]", lambda: one.add_(1)
    return "an empty Python call", lambda: None
