"""What every rung from ``fuse`` on computes for one chunk of one head, on values, not references.

``prepare`` is the part that needs no state, ``advance`` the part that does. Rungs differ in where
these run, in which order and what lies in HBM between them; never in the arithmetic, so that they
agree bit by bit. The state is carried transposed, [V, K]: the decay then scales it as a row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kda_tpu.gate import LOG2_E, Gate, activate
from kda_tpu.ladder.any_gate import pairwise_scores
from kda_tpu.ladder.dots import Dots
from kda_tpu.ladder.safe_gate import STRIP, Scores, exponent_shift, strip_scores
from kda_tpu.ladder.solve import inverse_less_identity


class Prepared(NamedTuple):
    """A chunk of one head, ready to meet its state. BT rows.

    attention: [BT, BT]; inverse: [BT, BT], (I + L)^-1 - I; q_decayed, k_decayed: [BT, K]: in
    Dots.operand_dtype. k_rest: [BT, K], decay: [1, K]: fp32. See safe_gate.Scores.
    """

    attention: jax.Array
    inverse: jax.Array
    q_decayed: jax.Array
    k_decayed: jax.Array
    k_rest: jax.Array
    decay: jax.Array


def scan_rows(x: jax.Array, span: int) -> jax.Array:
    """Inclusive running sum over each ``span`` rows of [BT, K]: log2(span) shifted adds.

    Hillis-Steele, because Pallas TPU has no lowering for cumsum.
    """
    rows, width = x.shape
    x = x.reshape(rows // span, span, width)
    shift = 1
    while shift < span:
        x = x + jnp.concatenate([jnp.zeros_like(x[:, :shift]), x[:, :-shift]], axis=1)
        shift *= 2
    return x.reshape(rows, width)


def log2_decay(
    gate: Gate, g: jax.Array, A_log: jax.Array, dt_bias: jax.Array, valid: jax.Array | None
) -> jax.Array:
    """The log2 decay of every row, [BT, K] fp32, 0 from row ``valid`` on (None: all are valid).

    g: [BT, K]; A_log: [1, 1]; dt_bias: [1, K].
    """
    decay = activate(gate, g, A_log, dt_bias) * LOG2_E
    if valid is None:
        return decay
    row = jax.lax.broadcasted_iota(jnp.int32, decay.shape, 0)
    # The raw gate's pad value alone is not enough: see layout.gate_pad.
    return jnp.where(row < valid, decay, 0.0)


def scores(
    dots: Dots,
    gate: Gate,
    safe_gate: bool,
    q: jax.Array,
    k: jax.Array,
    beta: jax.Array,
    decay: jax.Array,
) -> Scores:
    """q, k, decay (log2): [BT, K] fp32; beta: [BT, 1] fp32."""
    if safe_gate:
        return strip_scores(dots, exponent_shift(gate), q, k, beta, scan_rows(decay, STRIP))
    return pairwise_scores(q, k, beta, scan_rows(decay, decay.shape[0]))


def prepare(dots: Dots, found: Scores) -> Prepared:
    """Solves for the inverse and rounds to what ``advance`` reads."""
    dtype = dots.operand_dtype
    return Prepared(
        attention=found.attention.astype(dtype),
        inverse=inverse_less_identity(dots, found.lower).astype(dtype),
        q_decayed=found.q_decayed.astype(dtype),
        k_decayed=found.k_decayed.astype(dtype),
        k_rest=found.k_rest,
        decay=found.decay,
    )


def advance(
    dots: Dots, scale: float, chunk: Prepared, v_beta: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """o [BT, V] and the state after the chunk [V, K], fp32.

    v_beta: [BT, V] fp32, beta v; state: [V, K] fp32, transposed.
    v' = (I + L)^-1 (beta v - (beta k 2^G) S) is solved once, on the right-hand side.
    """
    rows = chunk.k_decayed.shape[0]
    read = dots.once(jnp.concatenate([chunk.k_decayed, chunk.q_decayed]), state, "nt")
    right = v_beta - read[:rows]
    v_new = right + dots.once(chunk.inverse, right)
    o = scale * (read[rows:] + dots.once(chunk.attention, v_new))
    return o, chunk.decay * state + dots.sum_of_rows(v_new, chunk.k_rest)
