"""Which points a preset measures: a few under ``smoke``, all of them otherwise."""

from collections.abc import Sequence
from typing import TypeVar

from k3bench.measure.protocol import preset_name

T = TypeVar("T")


def by_preset(*, smoke: Sequence[T], full: Sequence[T]) -> list[T]:
    """``smoke`` under the smoke preset, ``full`` under every other; smoke must be part of full."""
    outside = [point for point in smoke if point not in full]
    if outside:
        raise ValueError(f"smoke points {outside} are not among the full ones")
    return list(smoke if preset_name() == "smoke" else full)
