"""KDA and the gated delta rule: a state that forgets by channel and corrects what it holds.

S <- diag(e^g) S; S <- S + beta k (v - k^T S)^T; o = scale q^T S. Decoding is one pass over the
state; a prefill works chunk by chunk (BT tokens): strictly and lower triangular products of q and
k, one triangular solve, and three products with the state.
"""

from dataclasses import dataclass, replace

from k3bench.roofline.cost import Cost, Gemm, itemsize, linear, require_counts
from k3bench.roofline.dense import shard
from k3bench.roofline.linear import chunk_lengths
from k3bench.roofline.step import Step


@dataclass(frozen=True)
class Kda:
    """One layer on one device; the defaults are Kimi K3's under TP8.

    Attributes:
        heads: on this device.
        k_dim, v_dim: K and V of a head's state.
        gate_rank: of the low-rank projection that makes the decay of every channel.
        output_gate_rank: of the output gate's, or None where it is one full-rank product.
        conv_taps: of the short causal convolution over q, k and v.
        chunk: tokens of a chunk in a prefill.
        channel_decay: every channel has its own decay (KDA), or a head one (gated delta rule).
        dtype, state_dtype: of tokens and of the state.
    """

    heads: int = 12
    k_dim: int = 128
    v_dim: int = 128
    gate_rank: int = 128
    output_gate_rank: int | None = None
    conv_taps: int = 4
    chunk: int = 64
    channel_decay: bool = True
    dtype: str = "bf16"
    state_dtype: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("heads", "k_dim", "v_dim", "gate_rank", "conv_taps", "chunk"):
            require_counts(self, **{name: getattr(self, name)})

    @property
    def cache_bytes_per_token(self) -> int:
        """Nothing grows with the context."""
        return 0

    @property
    def channels(self) -> int:
        """Of the short convolution: q, k and v of all heads."""
        return self.heads * (2 * self.k_dim + self.v_dim)

    def state_bytes(self, context: int = 0) -> int:
        """The recurrent state of one request and layer; the convolution's is apart."""
        return self.heads * self.k_dim * self.v_dim * itemsize(self.state_dtype)

    @property
    def conv_state_bytes(self) -> int:
        """The last taps - 1 inputs of the convolution."""
        return (self.conv_taps - 1) * self.channels * itemsize(self.dtype)

    def shard(self, devices: int) -> "Kda":
        return replace(self, heads=shard(self.heads, devices, "heads"))

    @property
    def step_flops(self) -> int:
        """Of one token and head: decay 1, prediction 2, update 2, output 2 an element."""
        return 7 * self.k_dim * self.v_dim

    def chunk_gemms(self, length: int, count: int) -> tuple[Gemm, ...]:
        """The products of ``count`` chunks of one head; triangular ones count what is needed."""
        K, V = self.k_dim, self.v_dim
        lower, strict = length * (length + 1) // 2, length * (length - 1) // 2
        return (
            Gemm("qk", length, length, K, count, lower * K * count),
            Gemm("kk", length, length, K, count, strict * K * count),
            Gemm("solve", length, K + V, length, count, strict * (K + V) * count),
            Gemm("w_state", length, V, K, count),
            Gemm("q_state", length, V, K, count),
            Gemm("qk_values", length, V, length, count, lower * V * count),
            Gemm("to_state", K, V, length, count),
        )

    def attend(self, step: Step) -> Cost:
        """The recurrence of one layer, gate and convolution left out (``mix`` has them)."""
        tokens = step.tokens * self.heads
        width = itemsize(self.dtype)
        states = step.batch * self.state_bytes()
        decays = tokens * (self.k_dim if self.channel_decay else 1)
        moved = Cost(
            read={
                "state": states,
                "q": tokens * self.k_dim * width,
                "k": tokens * self.k_dim * width,
                "v": tokens * self.v_dim * width,
                "decay": decays * width,
                "beta": tokens * 4,
            },
            written={"state": states, "o": tokens * self.v_dim * width},
        )
        if step.new_tokens == 1:
            return moved + Cost(vector_flops=tokens * self.step_flops)
        work = moved
        for length, count in chunk_lengths(step.new_tokens, self.chunk):
            calls = count * step.batch * self.heads
            # A chunk's decays: q, k twice and the kept k scaled, and the state once.
            scaled = length * (4 * self.k_dim + self.v_dim) + self.k_dim * self.v_dim
            work += Cost(self.chunk_gemms(length, calls), vector_flops=calls * scaled)
        return work

    def mix(self, step: Step) -> Cost:
        """The short convolution over q, k and v with its state, and the gated output norm."""
        outputs = step.tokens * self.heads * self.v_dim
        states = step.batch * self.conv_state_bytes
        return Cost(
            vector_flops=2 * self.conv_taps * step.tokens * self.channels + 5 * outputs,
            read={
                "conv_state": states,
                "weights": self.conv_taps * self.channels * itemsize(self.dtype),
            },
            written={"conv_state": states},
        )

    def project(self, step: Step, hidden: int) -> Cost:
        """q, k, v, decay, beta, output gate and output; the low ranks are copied on devices."""
        outputs = self.heads * self.v_dim
        cost = (
            linear("qkv", step.tokens, self.channels, hidden)
            + linear("decay_a", step.tokens, self.gate_rank, hidden)
            + linear("decay_b", step.tokens, self.heads * self.k_dim, self.gate_rank)
            + linear("beta", step.tokens, self.heads, hidden)
        )
        if self.output_gate_rank is None:
            cost += linear("gate", step.tokens, outputs, hidden)
        else:
            cost += linear("gate_a", step.tokens, self.output_gate_rank, hidden)
            cost += linear("gate_b", step.tokens, outputs, self.output_gate_rank)
        return cost + linear("o", step.tokens, hidden, outputs)
