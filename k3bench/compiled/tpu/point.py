"""What is compiled: one KDA implementation at one packing, described without importing jax."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from k3bench.compiled.errors import CompiledError

DTYPES = ("bfloat16", "float32")
GATES = ("bounded", "unbounded")
_MAX_TOKENS = 1 << 24


@dataclass(frozen=True)
class KdaPoint:
    """One KDA prefill call: N sequences packed on one token axis.

    Attributes:
        implementation: a name of kda_tpu.IMPLEMENTATIONS or kda_tpu.VARIANTS.
        lengths: tokens of each sequence, zeros allowed.
        heads: H on this chip.
        head_dim_k, head_dim_v: K and V.
        dtype: of q, k, v and the raw gate.
        gate: ``bounded`` (Kimi K3, lower bound -5) or ``unbounded``.

    Raises CompiledError naming the field that is wrong.
    """

    implementation: str
    lengths: tuple[int, ...]
    heads: int = 24
    head_dim_k: int = 128
    head_dim_v: int = 128
    dtype: str = "bfloat16"
    gate: str = "bounded"

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(int(n) for n in self.lengths))
        if not self.lengths:
            raise CompiledError("lengths is empty: give one token count per sequence")
        if min(self.lengths) < 0:
            raise CompiledError(f"lengths holds {min(self.lengths)}: counts are zero or more")
        if sum(self.lengths) > _MAX_TOKENS:
            raise CompiledError(f"lengths sum to {sum(self.lengths)}: at most {_MAX_TOKENS} tokens")
        for name in ("heads", "head_dim_k", "head_dim_v"):
            if getattr(self, name) < 1:
                raise CompiledError(f"{name} is {getattr(self, name)}: must be at least 1")
        for name, allowed in (("dtype", DTYPES), ("gate", GATES)):
            if getattr(self, name) not in allowed:
                raise CompiledError(
                    f"{name} is {getattr(self, name)!r}: use one of {', '.join(allowed)}"
                )

    @property
    def tokens(self) -> int:
        """Tokens over all sequences."""
        return sum(self.lengths)

    @property
    def required_hbm_bytes(self) -> int:
        """Every input read once, every output written once: no schedule moves less.

        q, k, v, g, o in the dtype; beta and both states in fp32; A_log and dt_bias.
        """
        itemsize = 2 if self.dtype == "bfloat16" else 4
        H, K, V = self.heads, self.head_dim_k, self.head_dim_v
        per_token = H * ((3 * K + 2 * V) * itemsize + 4)
        states = 2 * len(self.lengths) * H * K * V * 4
        return self.tokens * per_token + states + H * (K + 1) * 4

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; ``from_json`` is the inverse."""
        return {**asdict(self), "lengths": list(self.lengths)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "KdaPoint":
        """The point that ``to_json`` described."""
        return cls(**{**document, "lengths": tuple(document["lengths"])})
