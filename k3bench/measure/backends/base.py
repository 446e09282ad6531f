"""What every device's clock can do."""

from collections.abc import Callable
from typing import Any, Literal, Protocol


class Backend(Protocol):
    """A device and its clock.

    Attributes:
        device: the name that records carry: ``cpu``, ``tpu-v6e``, ``mi355x``, ...
        platform: what the kernels' ``can_run`` asks for: ``cpu``, ``tpu``, ``gpu``, ``cuda``,
            ``rocm``.
        clock: ``wall`` (the host's, around a synchronised call) or ``device`` (the device's own
            events around the launch).
    """

    @property
    def device(self) -> str: ...
    @property
    def platform(self) -> str: ...
    @property
    def clock(self) -> Literal["wall", "device"]: ...

    def wait(self, outputs: Any) -> None:
        """Blocks until every array in ``outputs`` is computed."""

    def time(self, call: Callable[[], Any]) -> float:
        """Seconds of one call, from an idle device to all outputs computed."""
