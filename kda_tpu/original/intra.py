"""Kernel (b) of ``original``: everything inside a chunk, with the decay of every pair spelt out.

The decay 2^(G_i - G_j) is computed for every row, column and channel as it stands, so this holds
for any gate, bounded or not, and I + L is solved one row after the other.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

HIGHEST = jax.lax.Precision.HIGHEST


def row_to_column(row: jax.Array) -> jax.Array:
    """[1, n] to [n, 1] by selecting the diagonal: lanes to sublanes without a transpose unit."""
    n = row.shape[1]
    i = jax.lax.broadcasted_iota(jnp.int32, (n, n), 0)
    j = jax.lax.broadcasted_iota(jnp.int32, (n, n), 1)
    return jnp.sum(jnp.where(i == j, row, 0.0), axis=1, keepdims=True)


def _kernel(
    q_ref, k_ref, v_ref, G_ref, beta_ref, a_ref, u_ref, w_ref, kg_ref, decay_ref, L_ref
) -> None:
    q, k, v = (ref[...].astype(jnp.float32) for ref in (q_ref, k_ref, v_ref))
    G = G_ref[...]
    beta = row_to_column(beta_ref[...])
    chunk = G.shape[0]
    i = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk, 1), 0)
    j = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk, 1), 1)
    # Masked before the exponential: above the diagonal the exponents are positive.
    gap = jnp.where(i >= j, G[:, None, :] - G[None, :, :], -jnp.inf)
    decayed_k = jnp.exp2(gap) * k[None, :, :]  # [BT, BT, K]
    a_ref[...] = jnp.sum(q[:, None, :] * decayed_k, axis=-1)
    L = beta * jnp.sum(k[:, None, :] * decayed_k, axis=-1)
    row = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk), 1)
    L_ref[...] = jnp.where(row > column, L, 0.0)

    last = G[chunk - 1 :, :]
    kg_ref[...] = k * jnp.exp2(last - G)
    decay_ref[...] = jnp.exp2(last)
    u_ref[...] = beta * v
    w_ref[...] = beta * k * jnp.exp2(G)

    def eliminate(i: jax.Array, _: None) -> None:
        # Row i of L is zero from column i on, so rows not yet solved do not enter.
        coefficients = L_ref[pl.ds(i, 1), :]
        for ref in (u_ref, w_ref):
            solved = jnp.dot(
                coefficients, ref[...], precision=HIGHEST, preferred_element_type=jnp.float32
            )
            ref[pl.ds(i, 1), :] = ref[pl.ds(i, 1), :] - solved

    jax.lax.fori_loop(1, chunk, eliminate, None)


def intra(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    G: jax.Array,
    beta: jax.Array,
    *,
    chunk: int,
    interpret: Any,
) -> tuple[jax.Array, ...]:
    """A [H, P, BT], u [H, P, V], w and kg [H, P, K], decay [H, C, 1, K]: all fp32.

    q, k, G: [H, P, K]; v: [H, P, V]; beta: [H, C, 1, BT] fp32, C = P / chunk. A is not yet
    scaled; u = (I+L)^-1 beta v; w = (I+L)^-1 beta k 2^G; kg = k 2^(G_last - G);
    decay = 2^G_last. Grid (H, C).
    """
    H, P, K = q.shape
    V = v.shape[-1]
    C = P // chunk

    def rows(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, chunk, width), lambda h, c: (h, c, 0))

    def one_row(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, 1, width), lambda h, c: (h, c, 0, 0))

    def f32(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    return pl.pallas_call(
        _kernel,
        grid=(H, C),
        in_specs=[rows(K), rows(K), rows(V), rows(K), one_row(chunk)],
        out_specs=[rows(chunk), rows(V), rows(K), rows(K), one_row(K)],
        out_shape=[f32(H, P, chunk), f32(H, P, V), f32(H, P, K), f32(H, P, K), f32(H, C, 1, K)],
        scratch_shapes=[pltpu.VMEM((chunk, chunk), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
        name="kda_original_intra",
    )(q, k, v, G, beta)
