"""Rung ``fuse``: two kernels instead of four.

(1) gate, cumsum and intra-chunk; (2) recurrence and output. The cumulative decay, the state before
each chunk and the new values v' are never written to HBM.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.gate import Gate
from kda_tpu.ladder.chunk import Prepared, advance, log2_decay, prepare
from kda_tpu.ladder.dots import Dots
from kda_tpu.ladder.stages import run
from kda_tpu.original.intra import row_to_column

# A Prepared as arrays over [H, C]: one block a chunk and head.
PreparedArrays = Prepared


def prepared_shapes(dots: Dots, chunk: int, K: int) -> Prepared:
    """The shape and dtype of each part of one chunk's Prepared."""
    operand = jnp.float32 if dots.exact else jnp.bfloat16
    parts = 1 if dots.exact else 2
    return Prepared(
        attention=jax.ShapeDtypeStruct((parts * chunk, chunk), operand),
        inverse=jax.ShapeDtypeStruct((parts * chunk, chunk), operand),
        decayed=jax.ShapeDtypeStruct((parts * 2 * chunk, K), operand),
        k_rest=jax.ShapeDtypeStruct((chunk, K), jnp.float32),
        decay=jax.ShapeDtypeStruct((1, K), jnp.float32),
    )


def fused_intra(
    q: jax.Array,
    k: jax.Array,
    g: jax.Array,
    beta: jax.Array,
    A_log: jax.Array,
    dt_bias: jax.Array,
    valid: jax.Array,
    *,
    gate: Gate,
    safe_gate: bool,
    dots: Dots,
    chunk: int,
    aligned: bool,
    interpret: Any,
) -> PreparedArrays:
    """Kernel (1): every chunk's Prepared, [H, C, ...]. Grid (H, C).

    q, k, g: [H, P, K], padded to whole chunks; beta: [H, C, 1, BT] fp32; A_log: [H];
    dt_bias: [H, K]; valid: [C] int32. aligned: every chunk is full.
    """
    H, P, K = q.shape
    C = P // chunk

    def kernel(valid_ref, q_ref, k_ref, g_ref, beta_ref, a_log_ref, dt_bias_ref, *outs) -> None:
        q, k = (ref[...].astype(jnp.float32) for ref in (q_ref, k_ref))
        tokens = None if aligned else valid_ref[pl.program_id(1)]
        decay = log2_decay(gate, g_ref[...], a_log_ref[...], dt_bias_ref[...], tokens)
        beta = row_to_column(beta_ref[...])
        for out, part in zip(
            outs, run(prepare(dots, gate, safe_gate, q, k, beta, decay)), strict=True
        ):
            out[...] = part

    rows = pl.BlockSpec((None, chunk, K), lambda h, c, *_: (h, c, 0))

    def per_head(width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, 1, width), lambda h, c, *_: (h, 0, 0))

    def per_chunk(rows: int, width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, rows, width), lambda h, c, *_: (h, c, 0, 0))

    shapes = prepared_shapes(dots, chunk, K)
    outs = pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(H, C),
            in_specs=[rows, rows, rows, per_chunk(1, chunk), per_head(1), per_head(K)],
            out_specs=[per_chunk(*part.shape) for part in shapes],
        ),
        out_shape=[jax.ShapeDtypeStruct((H, C, *part.shape), part.dtype) for part in shapes],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
        name="kda_fused_intra",
    )(valid, q, k, g, beta, A_log.astype(jnp.float32)[:, None, None], dt_bias[:, None, :])
    return Prepared(*outs)


def step(dots: Dots, scale: float, refs: tuple[Any, ...]) -> None:
    """One chunk of kernel (2): reads Prepared, v, beta and the state, writes o and the state."""
    *prepared_refs, v_ref, beta_ref, o_ref, state_ref = refs
    prepared = Prepared(*(ref[...] for ref in prepared_refs))
    v_beta = row_to_column(beta_ref[...]) * v_ref[...].astype(jnp.float32)
    o, state = run(advance(dots, scale, prepared, v_beta, state_ref[...]))
    o_ref[...] = o.astype(o_ref.dtype)
    state_ref[...] = state


def fused_recurrence(
    prepared: PreparedArrays,
    v: jax.Array,
    beta: jax.Array,
    initial_state: jax.Array,
    first_chunk: jax.Array,
    chunk_count: jax.Array,
    *,
    max_chunks: int,
    out_dtype: jnp.dtype,
    scale: float,
    dots: Dots,
    chunk: int,
    interpret: Any,
) -> tuple[jax.Array, jax.Array]:
    """Kernel (2): o [H, P + BT, V], the last block unused, and final_state [N, H, K, V] fp32.

    prepared: from fused_intra; v: [H, P, V]; beta: [H, C, 1, BT]; initial_state: [N, H, K, V];
    first_chunk, chunk_count: [N] int32. Grid (N, H, max_chunks), as ``original``'s recurrence:
    steps past a sequence's last chunk stay on it and do nothing, and a sequence without chunks is
    sent to one spare block at the end of o.
    """
    N, H, K, V = initial_state.shape
    C = beta.shape[1]

    def kernel(first_ref, count_ref, *refs) -> None:
        *ins, initial_ref, o_ref, final_ref, state_ref = refs
        n, c = pl.program_id(0), pl.program_id(2)

        @pl.when(c == 0)
        def _() -> None:
            state_ref[...] = initial_ref[...].T

        @pl.when(c < count_ref[n])
        def _() -> None:
            step(dots, scale, (*ins, o_ref, state_ref))

        @pl.when(c == pl.num_programs(2) - 1)
        def _() -> None:
            final_ref[...] = state_ref[...].T

    def stay(c, n, first, count):
        return first[n] + jnp.minimum(c, jnp.maximum(count[n] - 1, 0))

    def source(n, h, c, first, count):  # an empty last sequence would point past the end
        return h, jnp.minimum(stay(c, n, first, count), C - 1)

    def target(n, h, c, first, count):
        return h, jnp.where(count[n] == 0, C, stay(c, n, first, count)), 0

    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(N, H, max_chunks),
            in_specs=[
                *chunk_specs(prepared, v, chunk, source),
                pl.BlockSpec((None, None, K, V), lambda n, h, c, *_: (n, h, 0, 0)),
            ],
            out_specs=[
                pl.BlockSpec((None, chunk, V), target),
                pl.BlockSpec((None, None, K, V), lambda n, h, c, *_: (n, h, 0, 0)),
            ],
            scratch_shapes=[pltpu.VMEM((V, K), jnp.float32)],
        ),
        out_shape=[
            jax.ShapeDtypeStruct((H, (C + 1) * chunk, V), out_dtype),
            jax.ShapeDtypeStruct((N, H, K, V), jnp.float32),
        ],
        # Sequentially over n as well: the spare block is shared.
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary", "arbitrary")
        ),
        interpret=interpret,
        name="kda_fused_recurrence",
    )(first_chunk, chunk_count, *prepared, v, beta, initial_state)


def chunk_specs(
    prepared: PreparedArrays,
    v: jax.Array,
    chunk: int,
    source: Callable[..., tuple[Any, Any]],
) -> list[pl.BlockSpec]:
    """Block specs of Prepared, v and beta, where ``source(*grid)`` names the head and chunk."""

    def per_chunk(rows: int, width: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, rows, width), lambda *at: (*source(*at), 0, 0))

    return [
        *(per_chunk(*part.shape[2:]) for part in prepared),
        pl.BlockSpec((None, chunk, v.shape[-1]), lambda *at: (*source(*at), 0)),
        per_chunk(1, chunk),
    ]
