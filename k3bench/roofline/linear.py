"""Linear attention, RetNet and Lightning Attention-2: a K x V state a head instead of a cache.

S <- d S + k v^T; o = q^T S, with d = 1 (linear attention) or a constant decay a head (RetNet,
Lightning Attention-2). Three ways to the same numbers: token by token, all pairs at once, or chunk
by chunk, where pairs inside a chunk go through scores and the rest through the state.
"""

from dataclasses import dataclass, replace
from typing import Literal

from k3bench.roofline.cost import Cost, Gemm, itemsize, linear, require_counts
from k3bench.roofline.dense import shard
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.pairs import causal_pairs
from k3bench.roofline.step import Step

Way = Literal["recurrent", "chunked", "parallel"]


def chunk_lengths(tokens: int, chunk: int) -> tuple[tuple[int, int], ...]:
    """(length, how many) of the chunks of a sequence: whole ones, then what is left."""
    whole, rest = divmod(tokens, chunk)
    return tuple(
        (length, count) for length, count in ((chunk, whole), (rest, 1 if rest else 0)) if count
    )


@dataclass(frozen=True)
class LinearState:
    """One layer on one device.

    Attributes:
        heads: on this device.
        k_dim, v_dim: K and V of a head's state.
        decayed: whether the state decays by a constant a head (RetNet, Lightning) or not.
        gated: outputs are normalised and multiplied by a gate of their own projection.
        chunk: tokens of a chunk; Lightning Attention-2's blocks are of 256.
        dtype, state_dtype: of tokens and of the state.
    """

    heads: int
    k_dim: int = 128
    v_dim: int = 128
    decayed: bool = False
    gated: bool = False
    chunk: int = 64
    dtype: str = "bf16"
    state_dtype: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("heads", "k_dim", "v_dim", "chunk"):
            require_counts(self, **{name: getattr(self, name)})

    @property
    def cache_bytes_per_token(self) -> int:
        """Nothing grows with the context."""
        return 0

    @property
    def head_state_bytes(self) -> int:
        """64 KiB for 128 x 128 in fp32."""
        return self.k_dim * self.v_dim * itemsize(self.state_dtype)

    def state_bytes(self, context: int = 0) -> int:
        """What one request keeps in one layer, at any context."""
        return self.heads * self.head_state_bytes

    def shard(self, devices: int) -> "LinearState":
        return replace(self, heads=shard(self.heads, devices, "heads"))

    @property
    def step_flops(self) -> int:
        """Of one token and head: update 2, output 2, decay 1 an element of the state."""
        return (5 if self.decayed else 4) * self.k_dim * self.v_dim

    def attend(self, step: Step, way: Way | None = None) -> Cost:
        """One layer's attention: recurrent for one token, chunked for more, unless told."""
        way = way or ("recurrent" if step.new_tokens == 1 else "chunked")
        tokens = step.tokens * self.heads
        width = itemsize(self.dtype)
        states = step.batch * self.state_bytes()
        moved = Cost(
            read={"state": states, "q": tokens * self.k_dim * width}
            | {"k": tokens * self.k_dim * width, "v": tokens * self.v_dim * width},
            written={"state": states, "o": tokens * self.v_dim * width},
        )
        if way == "recurrent":
            return moved + Cost(vector_flops=tokens * self.step_flops)
        if way == "parallel":
            if step.prefix_tokens:
                raise RooflineError("the parallel way starts from no state: use chunked")
            return moved + self._inside(step.new_tokens, step.batch)
        if way != "chunked":
            raise RooflineError(f"way {way!r}: use recurrent, chunked or parallel")
        work = moved
        for length, count in chunk_lengths(step.new_tokens, self.chunk):
            calls = count * step.batch
            work += self._inside(length, calls) + self._across(length, calls)
        return work

    def _inside(self, length: int, calls: int) -> Cost:
        """Pairs of one chunk through scores: no exponential, a decay factor a pair at the most."""
        count, pairs = calls * self.heads, causal_pairs(length)
        return Cost(
            gemms=(
                Gemm("scores", length, length, self.k_dim, count, pairs * self.k_dim * count),
                Gemm("values", length, self.v_dim, length, count, pairs * self.v_dim * count),
            ),
            vector_flops=pairs * count if self.decayed else 0,
        )

    def _across(self, length: int, calls: int) -> Cost:
        """What a chunk takes from the state and leaves in it."""
        count = calls * self.heads
        return Cost(
            gemms=(
                Gemm("from_state", length, self.v_dim, self.k_dim, count),
                Gemm("to_state", self.k_dim, self.v_dim, length, count),
            ),
            vector_flops=(self.k_dim * self.v_dim + length * (self.k_dim + self.v_dim)) * count
            if self.decayed
            else 0,
        )

    def project(self, step: Step, hidden: int) -> Cost:
        """Queries, keys, values, gate and output."""
        width = self.heads * (2 * self.k_dim + self.v_dim)
        cost = linear("qkv", step.tokens, width, hidden)
        if self.gated:
            cost += linear("gate", step.tokens, self.heads * self.v_dim, hidden)
        return cost + linear("o", step.tokens, hidden, self.heads * self.v_dim)


def retnet(heads: int, k_dim: int = 256, v_dim: int = 512, chunk: int = 512) -> LinearState:
    """RetNet's retention: values twice as wide as keys, one decay a head, gated outputs."""
    return LinearState(heads, k_dim, v_dim, decayed=True, gated=True, chunk=chunk)


def lightning(heads: int, head_dim: int = 128, block: int = 256) -> LinearState:
    """Lightning Attention-2: blocks of 256, inside through scores, across through the state."""
    return LinearState(heads, head_dim, head_dim, decayed=True, gated=True, chunk=block)
