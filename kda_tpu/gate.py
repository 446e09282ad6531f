"""The forget gate of KDA: its kinds, their bounds, and its activation in fp32 natural log."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from kda_tpu.errors import KdaArgumentError

GATE_KINDS = ("bounded", "unbounded", "activated")
LEAST_LOWER_BOUND = -5.0
LN2 = math.log(2.0)
LOG2_E = 1.0 / LN2


@dataclass(frozen=True)
class Gate:
    """How the log decay of a step comes from the gate tensor ``g``.

    kind
        ``bounded`` (Kimi K3): ``g`` is raw, and with x = g + dt_bias the log decay is
        lower_bound * sigmoid(exp(A_log) x), which is not a clamp of the next one;
        ``unbounded`` (Kimi-Linear): ``g`` is raw, the log decay is -exp(A_log) softplus(x);
        ``activated``: ``g`` is the log decay itself, computed outside.
    lower_bound
        The least log decay of one step, natural log, -5 <= lower_bound < 0. ``bounded``: a
        parameter of the formula, -5 unless given. ``unbounded``: has none, must be None.
        ``activated``: None where nothing is known; a number is the caller's promise that every
        g >= lower_bound, and only that promise opens the bounded-gate fast path.

    Raises KdaArgumentError for any other kind or bound. -5 is where the fp32 exponent budget of
    the fast path ends (see ``chunked_xla``), so a deeper bound is refused, not clamped.
    """

    kind: str = "bounded"
    lower_bound: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in GATE_KINDS:
            raise KdaArgumentError(
                f"gate.kind is {self.kind!r}: use one of {', '.join(GATE_KINDS)}"
            )
        if self.kind == "bounded" and self.lower_bound is None:
            object.__setattr__(self, "lower_bound", LEAST_LOWER_BOUND)
        if self.lower_bound is None:
            return
        if self.kind == "unbounded":
            raise KdaArgumentError(
                f"gate.lower_bound is {self.lower_bound} on an unbounded gate: leave it None, "
                "or use kind='bounded'"
            )
        if not LEAST_LOWER_BOUND <= self.lower_bound < 0:
            raise KdaArgumentError(
                f"gate.lower_bound is {self.lower_bound}: must be in [{LEAST_LOWER_BOUND}, 0)"
            )

    @property
    def is_bounded(self) -> bool:
        """True where every log decay is known to be >= lower_bound >= -5."""
        return self.lower_bound is not None

    @property
    def is_raw(self) -> bool:
        """True where ``g`` still has to go through the activation (A_log and dt_bias are used)."""
        return self.kind != "activated"


def log_decay(gate: Gate, g: jax.Array, A_log: jax.Array, dt_bias: jax.Array) -> jax.Array:
    """The log decay of every step and channel: fp32, natural log, <= 0, shape of ``g``.

    g: [..., H, K], any float dtype; A_log: [H]; dt_bias: [H, K]. For an activated gate A_log and
    dt_bias are not read.
    """
    return activate(gate, g, A_log[:, None], dt_bias)


def activate(gate: Gate, g: jax.Array, A_log: jax.Array, dt_bias: jax.Array) -> jax.Array:
    """``log_decay`` on arrays that broadcast to the shape of ``g``: for use inside kernels."""
    g = g.astype(jnp.float32)
    if gate.kind == "activated":
        return g
    x = g + dt_bias.astype(jnp.float32)
    rate = jnp.exp(A_log.astype(jnp.float32))
    if gate.kind == "bounded":
        return gate.lower_bound * jax.nn.sigmoid(rate * x)
    return -rate * jax.nn.softplus(x)
