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
from kda_tpu.ladder.safe_gate import STRIP, exponent_shift, strip_scores
from kda_tpu.ladder.solve import inverse_less_identity
from kda_tpu.ladder.stages import Stages


class Prepared(NamedTuple):
    """A chunk of one head, ready to meet its state.

    attention: [BT, BT]; inverse: [BT, BT], (I + L)^-1 - I; decayed: [2 BT, K], k_decayed over
    q_decayed: each as Dots.stack_parts leaves it. k_rest: [BT, K], decay: [1, K]: fp32.
    See safe_gate.Scores.
    """

    attention: jax.Array
    inverse: jax.Array
    decayed: jax.Array
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


def prepare(
    dots: Dots,
    gate: Gate,
    safe_gate: bool,
    q: jax.Array,
    k: jax.Array,
    beta: jax.Array,
    decay: jax.Array,
) -> Stages[Prepared]:
    """q, k, decay (log2): [BT, K] fp32; beta: [BT, 1] fp32. Padding: k, beta and decay zero."""
    if safe_gate:
        since_strip = scan_rows(decay, STRIP)
        found = yield from strip_scores(dots, exponent_shift(gate), q, k, beta, since_strip)
    else:
        whole = scan_rows(decay, decay.shape[0])
        found = yield from pairwise_scores(q, k, beta, whole)
    inverse = yield from inverse_less_identity(dots, found.lower)
    return Prepared(
        attention=dots.stack_parts(found.attention),
        inverse=dots.stack_parts(inverse),
        decayed=dots.stack_parts(jnp.concatenate([found.k_decayed, found.q_decayed])),
        k_rest=found.k_rest,
        decay=found.decay,
    )


def advance(
    dots: Dots, scale: float, chunk: Prepared, v_beta: jax.Array, state: jax.Array
) -> Stages[tuple[jax.Array, jax.Array]]:
    """o [BT, V] and the state after the chunk [V, K], fp32.

    v_beta: [BT, V] fp32, beta v; state: [V, K] fp32, transposed.
    v' = (I + L)^-1 (beta v - (beta k 2^G) S) is solved once, on the right-hand side. All products
    are fine ones: rounding S and v' to bf16 reached 1e-3 in the state under weak gates, where the
    errors of some hundred tokens add up (threshold 5e-4; like this 2e-4).
    """
    rows = chunk.k_rest.shape[0]
    read = dots.fine(chunk.decayed, state, "nt")
    yield
    right = v_beta - read[:rows]
    v_new = right + dots.fine(chunk.inverse, right)
    yield
    o = scale * (read[rows:] + dots.fine(chunk.attention, v_new))
    return o, chunk.decay * state + dots.sum_of_rows(v_new, chunk.k_rest)
