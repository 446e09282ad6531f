"""MLA: one latent a token for all heads, attended decompressed or absorbed.

Decompressed, every head's key and value is made from the latents (192 and 128 wide) and attention
is multi-head. Absorbed, the up-projections move into queries and outputs and all heads attend the
latents themselves (576 and 512 wide): more FLOPs a pair, and one row a token to read.
"""

from dataclasses import dataclass, replace
from typing import Literal

from k3bench.roofline.cost import Cost, Gemm, itemsize, linear, require_counts
from k3bench.roofline.dense import attention_gemms, shard
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.pairs import causal_pairs
from k3bench.roofline.step import Step

Form = Literal["decompressed", "absorbed"]


@dataclass(frozen=True)
class Mla:
    """One layer on one device; the defaults are Kimi K3's under TP8.

    Attributes:
        heads: query heads on this device.
        latent: of keys and values, shared by all heads; it is what the cache holds ...
        rope: ... with the key part that all heads share beside it (K3 keeps it unrotated).
        nope: of a head's own key.
        v_dim: of a head's value.
        q_latent: of the low-rank query; None where queries are projected in one step.
        gated: outputs are multiplied by a sigmoid gate of their own projection.
        dtype: of cache, queries and outputs.
    """

    heads: int = 12
    latent: int = 512
    rope: int = 64
    nope: int = 128
    v_dim: int = 128
    q_latent: int | None = 1536
    gated: bool = False
    dtype: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("heads", "latent", "rope", "nope", "v_dim"):
            require_counts(self, **{name: getattr(self, name)})

    @property
    def cache_bytes_per_token(self) -> int:
        """Of one layer: 1,152 for 512 + 64 in bf16, on every device (the latent is not split)."""
        return (self.latent + self.rope) * itemsize(self.dtype)

    def state_bytes(self, context: int) -> int:
        """What one request keeps in one layer."""
        return context * self.cache_bytes_per_token

    def shard(self, devices: int) -> "Mla":
        """Heads are split; latents are copied."""
        return replace(self, heads=shard(self.heads, devices, "heads"))

    def widths(self, form: Form) -> tuple[int, int]:
        """Of the score product and of the weighted sum, a head."""
        if form == "decompressed":
            return self.nope + self.rope, self.v_dim
        if form == "absorbed":
            return self.latent + self.rope, self.latent
        raise RooflineError(f"form {form!r}: use decompressed or absorbed")

    def flops_per_pair(self, form: Form) -> int:
        """Over all heads."""
        return 2 * self.heads * sum(self.widths(form))

    def choose_form(self, step: Step) -> Form:
        """The form with fewer FLOPs, up- or down-projections included."""
        forms: tuple[Form, Form] = ("absorbed", "decompressed")
        return min(forms, key=lambda form: self.attend(step, form).flops)

    def attend(self, step: Step, form: Form | None = None, prefix_form: Form | None = None) -> Cost:
        """Attention of one layer in a form, with the projections that the form asks for.

        Args:
            step: the call.
            form: in which new tokens attend each other; the one with fewer FLOPs if not given.
            prefix_form: in which they attend cached tokens; ``form`` if not given. A server without
                a chunked prefix cache for its backend attends both absorbed.
        """
        form = form or self.choose_form(step)
        prefix_form = prefix_form or form
        new_pairs = causal_pairs(step.new_tokens)
        if prefix_form == form or not step.prefix_tokens:
            pairs = causal_pairs(step.new_tokens, step.prefix_tokens)
            cost = self._part(step, form, pairs, step.context)
        else:
            prefix_pairs = step.new_tokens * step.prefix_tokens
            cost = self._part(step, form, new_pairs, step.new_tokens) + self._part(
                step, prefix_form, prefix_pairs, step.prefix_tokens
            )
        width = itemsize(self.dtype)
        q = step.tokens * self.heads * (self.nope + self.rope) * width
        o = step.tokens * self.heads * self.v_dim * width
        rows = step.tokens * self.cache_bytes_per_token
        return cost + Cost(read={"q": q}, written={"cache": rows, "o": o})

    def _part(self, step: Step, form: Form, pairs: int, keys: int) -> Cost:
        """``pairs`` pairs over ``keys`` cached rows of a sequence, with the form's projections."""
        qk_dim, v_dim = self.widths(form)
        up = self.nope + self.v_dim
        weights = self.heads * self.latent * up * itemsize(self.dtype)
        if form == "decompressed":
            rows = step.batch * keys
            projections: tuple[Gemm, ...] = (
                Gemm("decompress", rows, self.heads * up, self.latent),
            )
        else:
            projections = (
                Gemm("absorb_q", step.tokens, self.latent, self.nope, self.heads),
                Gemm("expand_o", step.tokens, self.v_dim, self.latent, self.heads),
            )
        return Cost(
            gemms=(*projections, *attention_gemms(self.heads, qk_dim, v_dim, step, keys, pairs)),
            scores=step.batch * self.heads * pairs,
            read={
                "cache": step.batch * keys * self.cache_bytes_per_token,
                "weights": weights,
            },
        )

    def project(self, step: Step, hidden: int) -> Cost:
        """Queries, latents, gate and output; what the form projects is in ``attend``."""
        query_width = self.heads * (self.nope + self.rope)
        if self.q_latent is None:
            queries = linear("q", step.tokens, query_width, hidden)
        else:
            queries = linear("q_a", step.tokens, self.q_latent, hidden)
            queries += linear("q_b", step.tokens, query_width, self.q_latent)
        cost = queries + linear("kv_a", step.tokens, self.latent + self.rope, hidden)
        if self.gated:
            cost += linear("gate", step.tokens, self.heads * self.v_dim, hidden)
        return cost + linear("o", step.tokens, hidden, self.heads * self.v_dim)
