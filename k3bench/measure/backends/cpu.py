"""The CPU's clock, for jax and for torch: wall time around a call that is waited for.

Caches are left warm: a CPU has no fixed-size cache whose hits a serving step would not also have,
and the implementations take turns, so each finds the others' data there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from k3bench.measure.backends.jax_wall import JaxWall


@dataclass(frozen=True)
class JaxCpu(JaxWall):
    """jax's CPU client."""

    device: str = "cpu"
    platform: str = "cpu"


@dataclass(frozen=True)
class TorchCpu:
    """torch on the CPU: calls return when their work is done."""

    device: str = "cpu"
    platform: str = "cpu"
    clock: Literal["wall", "device"] = "wall"

    def wait(self, outputs: Any) -> None:
        del outputs

    def time(self, call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        outputs = call()
        elapsed = time.perf_counter() - start
        del outputs
        return elapsed
