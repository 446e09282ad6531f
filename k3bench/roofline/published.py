"""Bounds beside published times: which block is how far from what no schedule beats."""

from collections.abc import Mapping
from dataclasses import dataclass

from k3bench.roofline.blocks import StepCost
from k3bench.roofline.hardware import Hardware

# The published decode counts the first layer's MLP among the experts.
COUNTED_AS = {"dense_mlp": "moe"}


@dataclass(frozen=True)
class Distance:
    """One block's bound (modelled) and its published time, in milliseconds a step."""

    block: str
    bound_ms: float
    published_ms: float

    @property
    def ratio(self) -> float:
        """Published over bound: 1 is as fast as can be."""
        return self.published_ms / self.bound_ms


def distances(
    cost: StepCost, hardware: Hardware, published_ms: Mapping[str, float]
) -> tuple[Distance, ...]:
    """Every block that both know, and their total.

    Args:
        cost: the step on one rank.
        hardware: whose peaks bound it.
        published_ms: by block, with ``device_total`` for their sum.
    """
    bounds: dict[str, float] = {}
    for block in cost.blocks:
        name = COUNTED_AS.get(block.name, block.name)
        bounds[name] = bounds.get(name, 0.0) + 1e3 * block.bound(hardware).seconds
    rows = [
        Distance(name, bounds[name], published_ms[name]) for name in bounds if name in published_ms
    ]
    if "device_total" in published_ms:
        total = cost.total_bound_us(hardware) / 1e3
        rows.append(Distance("device_total", total, published_ms["device_total"]))
    return tuple(rows)
