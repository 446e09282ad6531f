"""Rung ``flat_grid``: the recurrence walks the real chunks, whichever sequence they belong to.

Grid (H, C) instead of (N, H, chunks of the longest sequence): a mix of lengths costs what its
tokens cost. Tables say where a sequence starts and ends.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.ladder.dots import Dots
from kda_tpu.ladder.fuse import PreparedArrays, chunk_specs, step
from kda_tpu.layout import ChunkTable, Int32


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FlatGrid:
    """sequence: [C] int32, the sequence of each chunk; starts, ends: [C] int32, 1 at a sequence's
    first and last chunk."""

    sequence: Int32
    starts: Int32
    ends: Int32


def flat_grid(chunks: ChunkTable) -> FlatGrid:
    """The tables of a packing."""
    changes = np.flatnonzero(np.diff(chunks.sequence)) + 1
    starts, ends = np.zeros_like(chunks.sequence), np.zeros_like(chunks.sequence)
    starts[changes] = 1
    ends[changes - 1] = 1
    starts[:1] = 1
    ends[-1:] = 1
    return FlatGrid(chunks.sequence, starts, ends)


def keep_empty(
    final_state: jax.Array, initial_state: jax.Array, chunk_count: jax.Array
) -> jax.Array:
    """The initial state where a sequence has no chunk: its final state was written by nobody."""
    return jnp.where((chunk_count == 0)[:, None, None, None], initial_state, final_state)


def flat_recurrence(
    prepared: PreparedArrays,
    v: jax.Array,
    beta: jax.Array,
    initial_state: jax.Array,
    flat: FlatGrid,
    *,
    out_dtype: jnp.dtype,
    scale: float,
    dots: Dots,
    chunk: int,
    interpret: Any,
) -> tuple[jax.Array, jax.Array]:
    """o [H, P, V] and final_state [N, H, K, V] fp32, undefined for sequences without chunks.

    Arguments as fuse.fused_recurrence.
    """
    N, H, K, V = initial_state.shape
    C = beta.shape[1]

    def kernel(sequence_ref, starts_ref, ends_ref, *refs) -> None:
        *ins, initial_ref, o_ref, final_ref, state_ref = refs
        c = pl.program_id(1)

        @pl.when(starts_ref[c] == 1)
        def _() -> None:
            state_ref[...] = initial_ref[...].T

        step(dots, scale, (*ins, o_ref, state_ref))

        @pl.when(ends_ref[c] == 1)
        def _() -> None:
            final_ref[...] = state_ref[...].T

    per_state = pl.BlockSpec((None, None, K, V), lambda h, c, seq, *_: (seq[c], h, 0, 0))
    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(H, C),
            in_specs=[*chunk_specs(prepared, v, chunk, lambda h, c, *_: (h, c)), per_state],
            out_specs=[pl.BlockSpec((None, chunk, V), lambda h, c, *_: (h, c, 0)), per_state],
            scratch_shapes=[pltpu.VMEM((V, K), jnp.float32)],
        ),
        out_shape=[
            jax.ShapeDtypeStruct((H, C * chunk, V), out_dtype),
            jax.ShapeDtypeStruct((N, H, K, V), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
        name="kda_flat_recurrence",
    )(flat.sequence, flat.starts, flat.ends, *prepared, v, beta, initial_state)
