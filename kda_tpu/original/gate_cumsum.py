"""Kernel (a) of ``original``: activate the gate and sum it up within each chunk."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.gate import LOG2_E, Gate, activate


def inclusive_cumsum(x: jax.Array) -> jax.Array:
    """Running sum over the rows of [BT, K] in log2(BT) shifted adds (Hillis-Steele).

    Pallas TPU has no lowering for cumsum.
    """
    shift = 1
    while shift < x.shape[0]:
        x = x + jnp.concatenate([jnp.zeros_like(x[:shift]), x[:-shift]], axis=0)
        shift *= 2
    return x


def gate_cumsum(
    g: jax.Array,
    A_log: jax.Array,
    dt_bias: jax.Array,
    valid: jax.Array,
    *,
    gate: Gate,
    chunk: int,
    interpret: Any,
) -> jax.Array:
    """G [H, P, K] fp32: the inclusive chunk-local cumsum of the log decay over ln 2.

    g: [H, P, K] padded to whole chunks; A_log: [H]; dt_bias: [H, K]; valid: [P / chunk] int32.
    Grid (H, chunks).
    """
    H, P, K = g.shape
    tile = pl.BlockSpec((None, chunk, K), lambda h, c, *_: (h, c, 0))

    def per_head(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, 1, width), lambda h, c, *_: (h, 0, 0))

    def kernel(valid_ref, g_ref, a_log_ref, dt_bias_ref, out_ref) -> None:
        decay = activate(gate, g_ref[...], a_log_ref[...], dt_bias_ref[...])
        G = inclusive_cumsum(decay * LOG2_E)
        # Padding repeats the G of the last token, because the chunk's decay is read off its last
        # row: a raw gate's pad value need not saturate (layout.gate_pad), and even where padding
        # adds 0 the tree adds it in another order, which moved final states by 1.2e-5.
        row = jax.lax.broadcasted_iota(jnp.int32, G.shape, 0)
        valid = valid_ref[pl.program_id(1)]
        last = jnp.sum(jnp.where(row == valid - 1, G, 0.0), axis=0, keepdims=True)
        out_ref[...] = jnp.where(row < valid, G, last)

    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(H, P // chunk),
            in_specs=[tile, per_head(1), per_head(K)],
            out_specs=tile,
        ),
        out_shape=jax.ShapeDtypeStruct((H, P, K), jnp.float32),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
        name="kda_original_gate_cumsum",
    )(valid, g, A_log.astype(jnp.float32)[:, None, None], dt_bias[:, None, :])
