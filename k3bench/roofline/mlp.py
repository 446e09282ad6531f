"""The feed-forward half of a layer: a gated MLP, or experts of which a token takes a few."""

from dataclasses import dataclass, replace

from k3bench.roofline.cost import Cost, Gemm, ceil_div, linear, require_counts
from k3bench.roofline.dense import shard


@dataclass(frozen=True)
class Mlp:
    """Gate, up and down.

    Attributes:
        intermediate: width between them, on this device.
        weight_bytes: of one weight.
        compute: dtype whose matrix peak holds for it.
    """

    intermediate: int
    weight_bytes: float = 2.0
    compute: str = "bf16"

    def __post_init__(self) -> None:
        require_counts(self, intermediate=self.intermediate)

    def shard(self, devices: int) -> "Mlp":
        return replace(self, intermediate=shard(self.intermediate, devices, "MLP columns"))

    def parameters(self, hidden: int) -> tuple[int, int]:
        """Weights of one layer, and those that one token meets: all."""
        count = 3 * self.intermediate * hidden
        return count, count

    def cost(self, tokens: int, hidden: int) -> Cost:
        """Of one layer over ``tokens`` rows."""
        return (
            linear("gate_up", tokens, 2 * self.intermediate, hidden, self.weight_bytes)
            + linear("down", tokens, hidden, self.intermediate, self.weight_bytes)
            + Cost(vector_flops=2 * tokens * self.intermediate)
        )


@dataclass(frozen=True)
class Moe:
    """Routed and shared experts; every expert is split over the devices (tensor parallel).

    Attributes:
        experts, top_k: routed experts, and how many a token takes.
        intermediate: of an expert, on this device.
        shared: of all shared experts together, on this device; 0 for none.
        latent: width in which the routed experts work, with projections from and to the hidden
            vector on every device; None where they take it as it is.
        expert_weight_bytes: of one routed expert's weight, scales included (MXFP4: 4.25 bits).
        shared_weight_bytes: of every other weight.
        compute: dtype whose matrix peak holds for the block.
    """

    experts: int
    top_k: int
    intermediate: int
    shared: int = 0
    latent: int | None = None
    expert_weight_bytes: float = 2.0
    shared_weight_bytes: float = 2.0
    compute: str = "bf16"

    def __post_init__(self) -> None:
        require_counts(self, experts=self.experts, top_k=self.top_k, intermediate=self.intermediate)

    def shard(self, devices: int) -> "Moe":
        return replace(
            self,
            intermediate=shard(self.intermediate, devices, "expert columns"),
            shared=shard(self.shared, devices, "shared expert columns") if self.shared else 0,
        )

    def parameters(self, hidden: int) -> tuple[int, int]:
        """Weights of one layer, and those that one token meets."""
        width = self.latent or hidden
        expert = 3 * self.intermediate * width
        always = (self.experts + 3 * self.shared + 2 * (self.latent or 0)) * hidden
        return always + self.experts * expert, always + self.top_k * expert

    def touched(self, tokens: int) -> float:
        """Experts that ``tokens`` tokens reach between them, expected under uniform routing.

        Real routing is less even, so fewer are reached: at more than one token this is no bound.
        """
        return self.experts * (1 - (1 - self.top_k / self.experts) ** tokens)

    def cost(self, tokens: int, hidden: int) -> Cost:
        """Of one layer over ``tokens`` rows."""
        width = self.latent or hidden
        touched = self.touched(tokens)
        calls = max(1, round(touched))
        rows = ceil_div(tokens * self.top_k, calls)
        routed = tokens * self.top_k * self.intermediate * width
        cost = Cost(
            gemms=(
                Gemm("experts_gate_up", rows, 2 * self.intermediate, width, calls, 2 * routed),
                Gemm("experts_down", rows, width, self.intermediate, calls, routed),
            ),
            vector_flops=2 * tokens * self.top_k * (self.intermediate + width),
            read={
                "weights": round(touched * 3 * self.intermediate * width * self.expert_weight_bytes)
            },
        ) + linear("router", tokens, self.experts, hidden, self.shared_weight_bytes)
        if self.latent:
            cost += linear("to_latent", tokens, self.latent, hidden, self.shared_weight_bytes)
            cost += linear("from_latent", tokens, hidden, self.latent, self.shared_weight_bytes)
        if self.shared:
            cost += Mlp(self.shared, self.shared_weight_bytes).cost(tokens, hidden)
        return cost
