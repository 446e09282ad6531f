"""Rung ``mxu_port``: the intra-chunk kernel of ``original`` with ``safe_gate``, all else as it was.

Same inputs, same outputs, same grid; the scores and the solve move from the vector unit to the MXU.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.gate import Gate
from kda_tpu.ladder.dots import Dots
from kda_tpu.ladder.safe_gate import STRIP, exponent_shift, strip_scores
from kda_tpu.ladder.solve import inverse_less_identity
from kda_tpu.ladder.stages import run
from kda_tpu.original.intra import row_to_column


def intra(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    G: jax.Array,
    beta: jax.Array,
    *,
    gate: Gate,
    dots: Dots,
    chunk: int,
    interpret: Any,
) -> tuple[jax.Array, ...]:
    """As kda_tpu.original.intra.intra, for gates with a bound: A, u, w, kg, decay, all fp32."""
    H, P, K = q.shape
    V = v.shape[-1]
    C = P // chunk
    shift = exponent_shift(gate)

    def kernel(q_ref, k_ref, v_ref, G_ref, beta_ref, a_ref, u_ref, w_ref, kg_ref, decay_ref):
        q, k, v = (ref[...].astype(jnp.float32) for ref in (q_ref, k_ref, v_ref))
        beta = row_to_column(beta_ref[...])
        # G counted from each strip's beginning: minus the G of the row before the strip.
        strips = G_ref[...].reshape(chunk // STRIP, STRIP, K)
        before = jnp.concatenate([jnp.zeros_like(strips[:1, -1:]), strips[:-1, -1:]])
        since_strip = (strips - before).reshape(chunk, K)
        found = run(strip_scores(dots, shift, q, k, beta, since_strip))
        inverse = dots.stack_parts(run(inverse_less_identity(dots, found.lower)))
        a_ref[...] = found.attention
        v_beta = beta * v
        u_ref[...] = v_beta + dots.fine(inverse, v_beta)
        w_ref[...] = found.k_decayed + dots.fine(inverse, found.k_decayed)
        kg_ref[...] = found.k_rest
        decay_ref[...] = found.decay

    def rows(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, chunk, width), lambda h, c: (h, c, 0))

    def one_row(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, 1, width), lambda h, c: (h, c, 0, 0))

    def f32(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    return pl.pallas_call(
        kernel,
        grid=(H, C),
        in_specs=[rows(K), rows(K), rows(V), rows(K), one_row(chunk)],
        out_specs=[rows(chunk), rows(V), rows(K), rows(K), one_row(K)],
        out_shape=[f32(H, P, chunk), f32(H, P, V), f32(H, P, K), f32(H, P, K), f32(H, C, 1, K)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
        name="kda_mxu_port_intra",
    )(q, k, v, G, beta)
