"""One KDA decode step: the case in numbers, and its seeded tensors."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from mla_rocm.cases import DTYPES, DtypeName
from mla_rocm.errors import MlaArgumentError

GateKind = Literal["bounded", "unbounded"]
GATE_KINDS: tuple[str, ...] = get_args(GateKind)

# K3's bounded gate: the least log decay of a step, natural log.
LOWER_BOUND = -5.0

# Added to the squared norm of q and k, as the model's normalisation does.
NORM_EPS = 1e-6

# State slots that no sequence owns: there is always somewhere wrong to read from.
SPARE_SLOTS = 4

# A state that a typical prefill leaves behind has entries of about this standard deviation; the
# mean of the raw gate makes median log decays of about -0.7 (bounded) and -0.1 (unbounded).
_STATE_STD = 0.1
_GATE_MEAN = -2.0


@dataclass(frozen=True)
class KdaDecodeCase:
    """One token for each of ``batch`` sequences, each with its own recurrent state.

    Attributes:
        batch: sequences, padding included.
        heads: local heads.
        head_dim_k: rows of a state.
        head_dim_v: columns of a state.
        gate: ``bounded`` (K3: -5 sigmoid(exp(A_log) x)) or ``unbounded`` (-exp(A_log) softplus(x)).
        padded: how many of the last rows are padding, as a captured graph of a larger batch has.
        dtype: of the packed activations and the output; the state is float32.
        seed: of every random number.

    Raises:
        MlaArgumentError: on any value outside these.
    """

    batch: int
    heads: int = 12
    head_dim_k: int = 128
    head_dim_v: int = 128
    gate: GateKind = "bounded"
    padded: int = 0
    dtype: DtypeName = "bfloat16"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "heads", "head_dim_k", "head_dim_v"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MlaArgumentError(f"{name} is {value!r}: give an integer of 1 or more")
        if not 0 <= self.padded <= self.batch:
            raise MlaArgumentError(f"padded is {self.padded}: give 0 to batch, {self.batch}")
        for name, allowed in (("gate", GATE_KINDS), ("dtype", DTYPES)):
            if getattr(self, name) not in allowed:
                raise MlaArgumentError(
                    f"{name} is {getattr(self, name)!r}: give one of {', '.join(allowed)}"
                )

    @property
    def tokens(self) -> int:
        """Tokens computed: one a sequence, padding apart."""
        return self.batch - self.padded

    @property
    def id(self) -> str:
        """A readable name, e.g. ``kda-decode-B4-H12-K128-V128-bounded-bfloat16``."""
        padded = f"-padded{self.padded}" if self.padded else ""
        return (
            f"kda-decode-B{self.batch}{padded}-H{self.heads}-K{self.head_dim_k}"
            f"-V{self.head_dim_v}-{self.gate}-{self.dtype}"
        )


@dataclass(frozen=True)
class KdaDecodeInputs:
    """Tensors of one KDA decode step.

    Attributes:
        packed: [B, H (3 K + V + 1)], one row a token as the projections leave it: q [H, K],
            k [H, K], v [H, V], raw gate [H, K], raw beta [H]. q and k are not yet normalised, beta
            is before its sigmoid.
        A_log: float32 [H].
        dt_bias: float32 [H, K].
        state: float32 [slots, H, K, V], the pool of recurrent states.
        state_indices: int32 [B], each sequence's slot, all different; -1 for padding.
        gate: kind of the gate, as in ``KdaDecodeCase``.
    """

    packed: Tensor
    A_log: Tensor
    dt_bias: Tensor
    state: Tensor
    state_indices: Tensor
    gate: GateKind = "bounded"

    @property
    def batch(self) -> int:
        """Rows, padding included."""
        return int(self.packed.shape[0])

    @property
    def heads(self) -> int:
        """Local heads."""
        return int(self.state.shape[1])

    @property
    def head_dim_k(self) -> int:
        """Rows of a state."""
        return int(self.state.shape[2])

    @property
    def head_dim_v(self) -> int:
        """Columns of a state."""
        return int(self.state.shape[3])

    @property
    def scale(self) -> float:
        """What outputs are multiplied by: K^-0.5."""
        return float(self.head_dim_k**-0.5)

    def unpack(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Views q [B, H, K], k [B, H, K], v [B, H, V], gate [B, H, K] and beta [B, H]."""
        heads, k, v = self.heads, self.head_dim_k, self.head_dim_v
        parts = self.packed.split([heads * k, heads * k, heads * v, heads * k, heads], -1)
        q, key, value, gate = (part.unflatten(-1, (heads, -1)) for part in parts[:4])
        return q, key, value, gate, parts[4]


def packed_width(heads: int, head_dim_k: int, head_dim_v: int) -> int:
    """Elements of one packed row: H (3 K + V + 1)."""
    return heads * (3 * head_dim_k + head_dim_v + 1)


def make_kda_decode_inputs(case: KdaDecodeCase, device: str = "cpu") -> KdaDecodeInputs:
    """Tensors of a case; the slots of the pool in random order. Deterministic by the seed."""
    dtype = getattr(torch, case.dtype)
    generator = torch.Generator(device).manual_seed(case.seed)
    heads, k, v = case.heads, case.head_dim_k, case.head_dim_v

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    packed = normal(case.batch, packed_width(heads, k, v))
    gate_begin = heads * (2 * k + v)
    packed[:, gate_begin : gate_begin + heads * k] += _GATE_MEAN
    slots = case.tokens + SPARE_SLOTS
    order = torch.randperm(slots, generator=torch.Generator().manual_seed(case.seed))
    state_indices = torch.full((case.batch,), -1, dtype=torch.int32)
    state_indices[: case.tokens] = order[: case.tokens]
    return KdaDecodeInputs(
        packed=packed.to(dtype),
        A_log=0.3 * normal(heads).clamp(-1.5, 1.5),
        dt_bias=0.3 * normal(heads, k),
        state=_STATE_STD * normal(slots, heads, k, v),
        state_indices=state_indices.to(device),
        gate=case.gate,
    )
