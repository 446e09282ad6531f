"""Block-sparse attention, NSA and DSA: fewer keys for the main attention, and what finds them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from k3bench.roofline.cost import Cost, Gemm, itemsize, linear, require_counts
from k3bench.roofline.dense import Dense, attention_gemms, shard
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.mla import Mla
from k3bench.roofline.pairs import (
    block_sparse_pairs,
    causal_pairs,
    top_k_pairs,
    window_keys,
    window_pairs,
)
from k3bench.roofline.step import Step


@dataclass(frozen=True)
class BlockSparse(Dense):
    """Attention inside the visible blocks of a fixed mask.

    Attributes:
        block: tokens along a block's side.
        visible: by query block and key block, for the longest context that is asked about.
    """

    block: int = 64
    visible: tuple[tuple[bool, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(self, block=self.block)

    def pairs(self, step: Step) -> int:
        return block_sparse_pairs(step.new_tokens, self.block, self._mask(step), step.prefix_tokens)

    def keys(self, step: Step) -> int:
        """Rows in key blocks that any of the query blocks sees."""
        rows = self._mask(step)[step.prefix_tokens // self.block :]
        first = step.prefix_tokens // self.block
        seen = {
            key
            for number, row in enumerate(rows)
            for key, visible in enumerate(row)
            if visible and key <= first + number
        }
        return sum(min(self.block, step.context - key * self.block) for key in seen)

    def _mask(self, step: Step) -> Sequence[Sequence[bool]]:
        rows = -(-step.context // self.block)
        if rows > len(self.visible):
            raise RooflineError(
                f"context {step.context} has {rows} blocks of {self.block}, visible states "
                f"{len(self.visible)}: give a larger mask or a shorter context"
            )
        return [row[:rows] for row in self.visible[:rows]]


def compressed_keys(position: int, block: int, stride: int) -> int:
    """Compressed keys that the query at ``position`` sees: blocks that end at or before it."""
    return 0 if position + 1 < block else (position + 1 - block) // stride + 1


def compressed_pairs(new: int, block: int, stride: int, prefix: int = 0) -> int:
    """Pairs of ``new`` queries after ``prefix`` with compressed keys."""

    def up_to(positions: int) -> int:
        """Summed over the first positions."""
        whole, rest = divmod(max(0, positions - block + 1), stride)
        return stride * whole * (whole + 1) // 2 + rest * (whole + 1)

    return up_to(prefix + new) - up_to(prefix)


@dataclass(frozen=True)
class Nsa(Dense):
    """Native sparse attention: three branches over one GQA layer, summed with gates.

    Every query attends (1) one compressed key and value a block, (2) the ``selected`` best blocks,
    as all heads of its group score them together through (1), and (3) a window. Each branch has its
    own keys and values in training; the cache here keeps those of (2) and (3) together and the
    compressed ones apart.

    Attributes:
        compress, stride: tokens of a compressed block, and between the starts of two.
        select_block, selected: tokens of a block that is selected, and how many are.
        window: of the third branch.
    """

    compress: int = 32
    stride: int = 16
    select_block: int = 64
    selected: int = 16
    window: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("compress", "stride", "select_block", "selected", "window"):
            require_counts(self, **{name: getattr(self, name)})

    def state_bytes(self, context: int) -> int:
        """Keys and values of every token, and the compressed ones."""
        compressed = compressed_keys(context - 1, self.compress, self.stride) if context else 0
        return (context + compressed) * self.cache_bytes_per_token

    def branch_pairs(self, step: Step) -> dict[str, int]:
        """By branch, of one sequence and head; a query sees at most what is before it."""
        new, prefix = step.new_tokens, step.prefix_tokens
        return {
            "compressed": compressed_pairs(new, self.compress, self.stride, prefix),
            "selected": top_k_pairs(new, self.selected * self.select_block, prefix),
            "window": window_pairs(new, self.window, prefix),
        }

    def pairs(self, step: Step) -> int:
        return sum(self.branch_pairs(step).values())

    def keys(self, step: Step) -> int:
        """Rows read if each is read once: a prefill reads all, a decode step what it attends."""
        compressed = compressed_keys(step.context - 1, self.compress, self.stride)
        chosen = self.selected * self.select_block * step.new_tokens
        recent = window_keys(step.new_tokens, self.window, step.prefix_tokens)
        return compressed + min(step.context, chosen + recent)

    def attend(self, step: Step, shared_loads: bool = True) -> Cost:
        """The three branches, and their gated sum: a multiply-add an output element and branch."""
        cost = super().attend(step, shared_loads)
        return replace(cost, vector_flops=3 * 2 * step.tokens * self.heads * self.v_dim)


@dataclass(frozen=True)
class SparseTime:
    """Seconds of sparse attention by stage: finding, choosing, attending."""

    index_s: float
    select_s: float
    attend_s: float

    @property
    def seconds(self) -> float:
        return self.index_s + self.select_s + self.attend_s

    def beats(self, dense_s: float) -> bool:
        """Whether all stages together take less than dense attention."""
        return self.seconds < dense_s


@dataclass(frozen=True)
class Dsa:
    """DeepSeek sparse attention: a light indexer scores every visible key, MLA attends the best k.

    index(t, s) = sum over index heads of w_h relu(q_h k_s), with one key a token for all heads.

    Attributes:
        mla: the main attention, absorbed.
        top_k: keys that a query attends.
        index_heads, index_dim: of the indexer; it is copied on every device.
        index_bytes_per_token: of its cache: 128 fp8 elements and one fp32 scale.
    """

    mla: Mla = field(default_factory=Mla)
    top_k: int = 2048
    index_heads: int = 64
    index_dim: int = 128
    index_bytes_per_token: int = 132

    def __post_init__(self) -> None:
        for name in ("top_k", "index_heads", "index_dim", "index_bytes_per_token"):
            require_counts(self, **{name: getattr(self, name)})

    @property
    def cache_bytes_per_token(self) -> int:
        """Of one layer: the latent row and the indexer's key."""
        return self.mla.cache_bytes_per_token + self.index_bytes_per_token

    def state_bytes(self, context: int) -> int:
        """What one request keeps in one layer."""
        return context * self.cache_bytes_per_token

    def shard(self, devices: int) -> "Dsa":
        """The main heads are split; the indexer is copied, so that all devices choose alike."""
        return replace(self, mla=replace(self.mla, heads=shard(self.mla.heads, devices, "heads")))

    def index_pairs(self, step: Step) -> int:
        """The indexer scores every visible key."""
        return causal_pairs(step.new_tokens, step.prefix_tokens)

    def main_pairs(self, step: Step) -> int:
        """The main attention scores the chosen ones."""
        return top_k_pairs(step.new_tokens, self.top_k, step.prefix_tokens)

    def index(self, step: Step) -> Cost:
        """Scores of the indexer: dot products, relu and weighted sum over its heads."""
        pairs = self.index_pairs(step)
        rows = step.batch * step.context
        width = itemsize(self.mla.dtype)
        return Cost(
            gemms=(
                Gemm(
                    "index_scores",
                    step.new_tokens * self.index_heads,
                    step.context,
                    self.index_dim,
                    step.batch,
                    step.batch * pairs * self.index_heads * self.index_dim,
                ),
            ),
            vector_flops=2 * step.batch * pairs * self.index_heads,
            read={
                "index_cache": rows * self.index_bytes_per_token,
                "index_q": step.tokens * self.index_heads * self.index_dim * width,
            },
            written={"index_cache": step.tokens * self.index_bytes_per_token},
        )

    def select(self, step: Step) -> Cost:
        """Top-k: every score is compared at least once (fp32, read once), k indices come out."""
        pairs = step.batch * self.index_pairs(step)
        return Cost(
            vector_flops=pairs,
            read={"index_scores": 4 * pairs},
            written={"indices": 4 * step.batch * self.main_pairs(step)},
        )

    def attend_chosen(self, step: Step) -> Cost:
        """Absorbed MLA over the chosen keys, each distinct row read once."""
        mla, pairs = self.mla, self.main_pairs(step)
        keys = min(step.context, step.new_tokens * self.top_k)
        qk_dim, v_dim = mla.widths("absorbed")
        width = itemsize(mla.dtype)
        return Cost(
            gemms=(
                Gemm("absorb_q", step.tokens, mla.latent, mla.nope, mla.heads),
                Gemm("expand_o", step.tokens, mla.v_dim, mla.latent, mla.heads),
                *attention_gemms(mla.heads, qk_dim, v_dim, step, keys, pairs),
            ),
            scores=step.batch * mla.heads * pairs,
            read={
                "cache": step.batch * keys * mla.cache_bytes_per_token,
                "weights": mla.heads * mla.latent * (mla.nope + mla.v_dim) * width,
                "q": step.tokens * mla.heads * (mla.nope + mla.rope) * width,
            },
            written={
                "cache": step.tokens * mla.cache_bytes_per_token,
                "o": step.tokens * mla.heads * mla.v_dim * width,
            },
        )

    def attend(self, step: Step) -> Cost:
        """All three stages; at a context of no more than k, still all three."""
        return self.index(step) + self.select(step) + self.attend_chosen(step)

    def project(self, step: Step, hidden: int) -> Cost:
        """MLA's projections and the indexer's: queries from MLA's query latent, key, weights."""
        return (
            self.mla.project(step, hidden)
            + linear(
                "index_q",
                step.tokens,
                self.index_heads * self.index_dim,
                self.mla.q_latent or hidden,
            )
            + linear("index_k", step.tokens, self.index_dim, hidden)
            + linear("index_weights", step.tokens, self.index_heads, hidden)
        )
