"""The wall clock that every jax device shares: a call, then its whole output tree waited for."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class JaxWall:
    """One jax device under the host's clock.

    jax dispatches asynchronously; a sample ends when every array of the output tree (the final
    state too) is computed.

    Attributes:
        device: the name that records carry.
        platform: what the kernels' ``can_run`` asks for.
    """

    device: str
    platform: str
    clock: Literal["wall", "device"] = "wall"

    def wait(self, outputs: Any) -> None:
        import jax

        jax.block_until_ready(outputs)

    def time(self, call: Callable[[], Any]) -> float:
        import jax

        start = time.perf_counter()
        outputs = call()
        jax.block_until_ready(outputs)
        return time.perf_counter() - start
