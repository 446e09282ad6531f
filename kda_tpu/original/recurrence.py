"""Kernel (c) of ``original``: carry the state from chunk to chunk of each sequence and head."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.original.intra import HIGHEST, row_to_column


def _kernel(
    first_ref, count_ref, w_ref, u_ref, kg_ref, decay_ref, initial_ref, h_ref, v_new_ref,
    final_ref, state_ref,
) -> None:  # fmt: skip
    n, c = pl.program_id(0), pl.program_id(2)

    @pl.when(c == 0)
    def _() -> None:
        state_ref[...] = initial_ref[...]

    @pl.when(c < count_ref[n])
    def _() -> None:
        state = state_ref[...]
        h_ref[...] = state
        v_new = u_ref[...] - jnp.dot(
            w_ref[...], state, precision=HIGHEST, preferred_element_type=jnp.float32
        )
        v_new_ref[...] = v_new
        update = jax.lax.dot_general(
            kg_ref[...],
            v_new,
            (((0,), (0,)), ((), ())),
            precision=HIGHEST,
            preferred_element_type=jnp.float32,
        )
        state_ref[...] = row_to_column(decay_ref[...]) * state + update

    @pl.when(c == pl.num_programs(2) - 1)
    def _() -> None:
        final_ref[...] = state_ref[...]


def recurrence(
    w: jax.Array,
    u: jax.Array,
    kg: jax.Array,
    decay: jax.Array,
    initial_state: jax.Array,
    first_chunk: jax.Array,
    chunk_count: jax.Array,
    *,
    max_chunks: int,
    chunk: int,
    interpret: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """h [C + 1, H, K, V], the state before each chunk; v' [H, P + BT, V]; final [N, H, K, V].

    w, kg: [H, P, K]; u: [H, P, V]; decay: [H, C, 1, K]; initial_state: [N, H, K, V];
    first_chunk, chunk_count: [N] int32. All fp32. Grid (N, H, max_chunks): steps past a
    sequence's last chunk stay on it and do nothing. A sequence without chunks has no block of its
    own to stay on; it is sent to one spare block at the end of h and v', which nobody reads.
    """
    N, H, K, V = initial_state.shape
    C = decay.shape[1]

    def stay(c, n, first, count):
        return first[n] + jnp.minimum(c, jnp.maximum(count[n] - 1, 0))

    def source(n, c, first, count):  # an empty last sequence would point past the end
        return jnp.minimum(stay(c, n, first, count), C - 1)

    def target(n, c, first, count):
        return jnp.where(count[n] == 0, C, stay(c, n, first, count))

    def rows_in(width: int) -> pl.BlockSpec:
        return pl.BlockSpec(
            (None, chunk, width), lambda n, h, c, *table: (h, source(n, c, *table), 0)
        )

    per_state = pl.BlockSpec((None, None, K, V), lambda n, h, c, *_: (n, h, 0, 0))
    return pl.pallas_call(
        _kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(N, H, max_chunks),
            in_specs=[
                rows_in(K),
                rows_in(V),
                rows_in(K),
                pl.BlockSpec(
                    (None, None, 1, K), lambda n, h, c, *table: (h, source(n, c, *table), 0, 0)
                ),
                per_state,
            ],
            out_specs=[
                pl.BlockSpec(
                    (None, None, K, V), lambda n, h, c, *table: (target(n, c, *table), h, 0, 0)
                ),
                pl.BlockSpec(
                    (None, chunk, V), lambda n, h, c, *table: (h, target(n, c, *table), 0)
                ),
                per_state,
            ],
            scratch_shapes=[pltpu.VMEM((K, V), jnp.float32)],
        ),
        out_shape=[
            jax.ShapeDtypeStruct((C + 1, H, K, V), jnp.float32),
            jax.ShapeDtypeStruct((H, (C + 1) * chunk, V), jnp.float32),
            jax.ShapeDtypeStruct((N, H, K, V), jnp.float32),
        ],
        # Sequentially over n as well: the spare block is shared.
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary", "arbitrary")
        ),
        interpret=interpret,
        name="kda_original_recurrence",
    )(first_chunk, chunk_count, w, u, kg, decay, initial_state)
