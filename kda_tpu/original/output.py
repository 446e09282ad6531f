"""Kernel (d) of ``original``: read the output of every chunk from its state and its new values."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.original.intra import HIGHEST


def output(
    q: jax.Array,
    G: jax.Array,
    A: jax.Array,
    h: jax.Array,
    v_new: jax.Array,
    *,
    scale: float,
    chunk: int,
    interpret: Any,
) -> jax.Array:
    """o [H, P, V] in the dtype of q: scale ((q 2^G) h + A v').

    q, G: [H, P, K]; A: [H, P, BT]; h: [C + 1, H, K, V]; v_new: [H, P + BT, V], the last block of
    both unused. Grid (H, C).
    """
    H, P, K = q.shape
    V = v_new.shape[-1]

    def kernel(q_ref, G_ref, a_ref, h_ref, v_ref, o_ref) -> None:
        def dot(a: jax.Array, b: jax.Array) -> jax.Array:
            return jnp.dot(a, b, precision=HIGHEST, preferred_element_type=jnp.float32)

        carried = dot(q_ref[...].astype(jnp.float32) * jnp.exp2(G_ref[...]), h_ref[...])
        o_ref[...] = (scale * (carried + dot(a_ref[...], v_ref[...]))).astype(o_ref.dtype)

    def rows(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, chunk, width), lambda h, c: (h, c, 0))

    return pl.pallas_call(
        kernel,
        grid=(H, P // chunk),
        in_specs=[
            rows(K),
            rows(K),
            rows(chunk),
            pl.BlockSpec((None, None, K, V), lambda h, c: (c, h, 0, 0)),
            rows(V),
        ],
        out_specs=rows(V),
        out_shape=jax.ShapeDtypeStruct((H, P, V), q.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
        name="kda_original_output",
    )(q, G, A, h, v_new)
