"""Bounds beside published times: which block is how far from what no schedule beats."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3bench.ledger.published import published_records
from k3bench.roofline.blocks import StepCost
from k3bench.roofline.hardware import Hardware

# The published decode counts the first layer's MLP among the experts.
COUNTED_AS = {"dense_mlp": "moe"}
_COMPOSITION = "published.k3_decode.composition"


@dataclass(frozen=True)
class PublishedDecode:
    """K3's published decode step on MI355X, batch 1, one of 8 ranks, at one context.

    ``ms`` by block, with ``device_total`` for their sum; ``source`` says where they stand.
    """

    context: int
    ms: Mapping[str, float]
    source: str


# What it was published for, as `k3bench forms cost` names it.
SETTING: Mapping[str, Any] = {
    "model": "kimi-k3",
    "hardware": "mi355x",
    "phase": "decode",
    "batch": 1,
    "tp": 8,
}


def published_decodes() -> tuple[PublishedDecode, ...]:
    """Every published context, shortest first."""
    found: dict[int, dict[str, float]] = {}
    source = ""
    for record in published_records():
        if record["benchmark"] == _COMPOSITION:
            parameters = record["parameters"]
            block_ms = found.setdefault(parameters["context"], {})
            block_ms[parameters["block"]] = 1e3 * record["median_s"]
            source = record["source"]
    return tuple(PublishedDecode(context, found[context], source) for context in sorted(found))


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
