"""MHA, MQA and GQA: what full softmax attention over a cache of keys and values costs."""

from dataclasses import dataclass, replace

from k3bench.roofline.cost import Cost, Gemm, itemsize, linear, require_counts
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.pairs import causal_pairs
from k3bench.roofline.step import Step


def attention_gemms(
    heads: int, qk_dim: int, v_dim: int, step: Step, keys: int, pairs: int
) -> tuple[Gemm, Gemm]:
    """Scores and weighted sum of ``heads`` heads over ``keys`` visited keys and ``pairs`` pairs."""
    count = heads * step.batch
    return (
        Gemm("scores", step.new_tokens, keys, qk_dim, count, pairs * qk_dim * count),
        Gemm("values", step.new_tokens, v_dim, keys, count, pairs * v_dim * count),
    )


@dataclass(frozen=True)
class Dense:
    """Full causal attention: MHA where kv_heads = heads, MQA where 1, GQA between.

    Attributes:
        heads: query heads on this device.
        kv_heads: key/value heads on this device.
        qk_dim, v_dim: widths of a head.
        dtype: of cache, queries and outputs.
    """

    heads: int
    kv_heads: int
    qk_dim: int = 128
    v_dim: int = 128
    dtype: str = "bf16"

    def __post_init__(self) -> None:
        require_counts(
            self, heads=self.heads, kv_heads=self.kv_heads, qk_dim=self.qk_dim, v_dim=self.v_dim
        )
        if self.heads % self.kv_heads:
            raise RooflineError(
                f"{self.heads} query heads over {self.kv_heads} key/value heads: give a multiple"
            )

    @property
    def cache_bytes_per_token(self) -> int:
        """Of one layer: a key and a value a key/value head."""
        return self.kv_heads * (self.qk_dim + self.v_dim) * itemsize(self.dtype)

    def state_bytes(self, context: int) -> int:
        """What one request keeps in one layer at a context: it grows with every token."""
        return context * self.cache_bytes_per_token

    def shard(self, devices: int) -> "Dense":
        """The heads of one device; key/value heads are copied where there are too few."""
        return replace(
            self,
            heads=shard(self.heads, devices, "query heads"),
            kv_heads=max(1, shard(self.kv_heads, devices, "key/value heads", copied=True)),
        )

    def pairs(self, step: Step) -> int:
        """Query-key pairs of one sequence and head."""
        return causal_pairs(step.new_tokens, step.prefix_tokens)

    def keys(self, step: Step) -> int:
        """Cached rows that one sequence visits, its new ones included."""
        return step.context

    def attend(self, step: Step, shared_loads: bool = True) -> Cost:
        """Scores, softmax and weighted sum of one layer; queries in, outputs out.

        Args:
            step: the call.
            shared_loads: the query heads of a group read their keys once (one workgroup serves
                them all). Unshared, every query head reads them again.
        """
        pairs, keys = self.pairs(step), self.keys(step)
        reads = 1 if shared_loads else self.heads // self.kv_heads
        width = itemsize(self.dtype)
        return Cost(
            gemms=attention_gemms(self.heads, self.qk_dim, self.v_dim, step, keys, pairs),
            scores=step.batch * self.heads * pairs,
            read={
                "cache": step.batch * keys * self.cache_bytes_per_token * reads,
                "q": step.tokens * self.heads * self.qk_dim * width,
            },
            written={
                "cache": step.tokens * self.cache_bytes_per_token,
                "o": step.tokens * self.heads * self.v_dim * width,
            },
        )

    def project(self, step: Step, hidden: int) -> Cost:
        """Queries, keys, values and output from and to the hidden vector."""
        kv = self.kv_heads * (self.qk_dim + self.v_dim)
        return (
            linear("q", step.tokens, self.heads * self.qk_dim, hidden)
            + linear("kv", step.tokens, kv, hidden)
            + linear("o", step.tokens, hidden, self.heads * self.v_dim)
        )


def shard(count: int, devices: int, what: str, copied: bool = False) -> int:
    """``count`` over ``devices``; at least one where ``copied``. RooflineError where uneven."""
    if copied and count < devices and devices % count == 0:
        return 1
    if count % devices:
        raise RooflineError(f"{count} {what} do not divide over {devices} devices: choose another")
    return count // devices
