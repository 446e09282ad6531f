"""What an implementation of KDA prefill is: its name, where it runs, and how it is bound."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax

from kda_tpu.gate import Gate
from kda_tpu.inputs import KdaCase, KdaInputs

Plan = Any  # a pytree of host arrays; its shapes are part of what jax.jit keys on
PrefillFn = Callable[[KdaInputs, Plan], tuple[jax.Array, jax.Array]]


class Support(NamedTuple):
    """Whether an implementation can run a case on a platform, and the reason where it cannot."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True)
class Bound:
    """An implementation tied to one packing.

    fn(inputs, plan) -> (o [1, T, H, V] in the dtype of q, final_state [N, H, K, V] fp32) is for
    jax.jit and is the same object for the same static configuration (gate, scale, interpret), so
    packings whose inputs and plan have equal shapes share one compilation. inputs may hold more
    tokens than the packing; o is zero there. padded_tokens: tokens executed, padding included.
    """

    fn: PrefillFn
    plan: Plan
    padded_tokens: int


class Bind(Protocol):
    """Ties an implementation to a packing; raises KdaArgumentError for lengths it cannot pack."""

    def __call__(
        self,
        lengths: Sequence[int],
        gate: Gate,
        *,
        heads: int,
        head_dim_k: int,
        head_dim_v: int,
        scale: float | None = None,
        interpret: Any = False,
    ) -> Bound:
        """scale: K^-0.5 unless given. interpret: what pallas_call takes under that name, so only
        Pallas kernels heed it; XLA implementations run compiled either way."""


@dataclass(frozen=True)
class Implementation:
    """One row of IMPLEMENTATIONS.

    can_run(platform, case): platform as jax.default_backend() names it (cpu, tpu, gpu). It answers
    for real, timed execution; interpret mode, for tests, is open to every implementation.
    fuses: whether bind takes ``fused``, the activations that callers leave to the kernel.
    instead(case): why another implementation's kernels would run a case, None where its own do.
    """

    name: str
    summary: str
    can_run: Callable[[str, KdaCase], Support]
    bind: Bind
    instead: Callable[[KdaCase], str | None] = lambda case: None
    fuses: bool = False


def resolve_scale(scale: float | None, head_dim_k: int) -> float:
    """The factor on q: as given, else head_dim_k ** -0.5."""
    return head_dim_k**-0.5 if scale is None else float(scale)


def runs_anywhere(platform: str, case: KdaCase) -> Support:
    """For implementations in plain XLA ops: every platform, every valid case."""
    return Support(True)
