"""Rung ``head_block``: a chunk of all heads in one grid step, on the layout that callers use.

A chunk of one head is a chain of small dependent matrix products; alone it leaves nine tenths of
the machine idle. With all heads in one step their chains interleave, stage by stage. The native
layout [1, T, H, D] then holds a chunk of all heads as one run of rows, so nothing is transposed,
padded or gathered; and because a step goes from the inputs to the output, nothing that lies
between is written to HBM.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.gate import Gate
from kda_tpu.inputs import KdaInputs
from kda_tpu.ladder.chunk import advance, log2_decay, prepare
from kda_tpu.ladder.dots import Dots
from kda_tpu.ladder.flat_grid import FlatGrid
from kda_tpu.ladder.native_layout import RaggedWriter, load_head, store_pair, window
from kda_tpu.ladder.stages import Stages, interleave, run
from kda_tpu.layout import ChunkTable

HEAD_LOOPS = ("interleaved", "serial")


def head_block(
    inputs: KdaInputs,
    beta: jax.Array,
    chunks: ChunkTable,
    flat: FlatGrid,
    *,
    gate: Gate,
    safe_gate: bool,
    scale: float,
    dots: Dots,
    chunk: int,
    aligned: bool,
    head_loop: str,
    interleaved_heads: int,
    interpret: Any,
) -> tuple[jax.Array, jax.Array]:
    """o [T, H, V] and final_state [N, H, K, V] fp32. Grid (C,).

    Both are undefined where nothing was computed: o past the packing's tokens, final_state of
    sequences without chunks. beta: [C, BT, H] fp32, zero at padding. aligned: every chunk is full.
    head_loop: ``interleaved``, ``interleaved_heads`` at a time, or ``serial``, one after another.
    """
    _, T, H, K = inputs.q.shape
    V = inputs.v.shape[-1]
    N = inputs.initial_state.shape[0]

    def kernel(
        token_start_ref, valid_ref, sequence_ref, starts_ref, ends_ref, q_ref, k_ref, v_ref,
        g_ref, beta_ref, a_log_ref, dt_bias_ref, initial_ref, o_ref, final_ref, state_ref,
        window_ref, semaphores, *by_head,
    ) -> None:  # fmt: skip
        c = pl.program_id(0)
        valid = None if aligned else valid_ref[c]

        @pl.when(starts_ref[c] == 1)
        def _() -> None:
            for h in range(H):
                state_ref[h] = initial_ref[h].T

        windows = (q_ref, k_ref, v_ref, g_ref)

        def head(h: Any, load: Callable[[int, Any], jax.Array]) -> Stages[jax.Array]:
            q, k, v, g = (load(index, h) for index in range(len(windows)))
            if valid is not None:
                present = jax.lax.broadcasted_iota(jnp.int32, (chunk, 1), 0) < valid
                k, v = jnp.where(present, k, 0.0), jnp.where(present, v, 0.0)
            decay = log2_decay(
                gate, g, a_log_ref[pl.ds(h, 1), :], dt_bias_ref[pl.ds(h, 1), :], valid
            )
            beta = column(beta_ref[...], h)
            prepared = yield from prepare(dots, gate, safe_gate, q, k, beta, decay)
            o, state = yield from advance(dots, scale, prepared, beta * v, state_ref[h])
            state_ref[h] = state
            return o

        def from_window(index: int, h: int) -> jax.Array:
            return load_head(windows[index], h, interpret=interpret)

        writer = RaggedWriter(o_ref, window_ref, semaphores, token_start_ref, valid_ref)
        out = writer.slot()
        if head_loop == "serial":
            *by_head_refs, o_by_head_ref = by_head
            # A head chosen at run time cannot be a strided load: the windows are spread out first.
            for index, spread_ref in enumerate(by_head_refs):
                for h in range(H):
                    spread_ref[h] = from_window(index, h)

            def one(h: jax.Array, _: None) -> None:
                o_by_head_ref[h] = run(head(h, lambda index, h: by_head_refs[index][h]))

            jax.lax.fori_loop(0, H, one, None)
            outs = [o_by_head_ref[h] for h in range(H)]
        else:
            outs = []
            for first in range(0, H, interleaved_heads):
                group = range(first, min(first + interleaved_heads, H))
                outs += interleave(head(h, from_window) for h in group)
        for h in range(0, H, 2):
            store_pair(out, h, outs[h], outs[h + 1], interpret=interpret)
        writer.send()

        @pl.when(ends_ref[c] == 1)
        def _() -> None:
            for h in range(H):
                final_ref[h] = state_ref[h].T

    everything = pl.BlockSpec((H, K), lambda c, *_: (0, 0))
    per_state = pl.BlockSpec(
        (None, H, K, V), lambda c, start, valid, sequence, *_: (sequence[c], 0, 0, 0)
    )
    dtype = inputs.q.dtype
    scratch = [
        pltpu.VMEM((H, V, K), jnp.float32),
        pltpu.VMEM((2, chunk, H, V), dtype),
        pltpu.SemaphoreType.DMA((2,)),
    ]
    if head_loop == "serial":
        scratch += [pltpu.VMEM((H, chunk, width), jnp.float32) for width in (K, K, V, K, V)]
    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=5,
            grid=(beta.shape[0],),
            in_specs=[
                window(chunk, H, K),
                window(chunk, H, K),
                window(chunk, H, V),
                window(chunk, H, K),
                pl.BlockSpec((None, chunk, H), lambda c, *_: (c, 0, 0)),
                everything,
                everything,
                per_state,
            ],
            out_specs=[pl.BlockSpec(memory_space=pl.ANY), per_state],
            scratch_shapes=scratch,
        ),
        out_shape=[
            jax.ShapeDtypeStruct((T, H, V), dtype),
            jax.ShapeDtypeStruct((N, H, K, V), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
        name="kda_head_block",
    )(
        chunks.token_start, chunks.valid, flat.sequence, flat.starts, flat.ends,
        inputs.q[0], inputs.k[0], inputs.v[0], inputs.g[0], beta,
        jnp.broadcast_to(inputs.A_log.astype(jnp.float32)[:, None], (H, K)), inputs.dt_bias,
        inputs.initial_state,
    )  # fmt: skip


def column(x: jax.Array, index: Any) -> jax.Array:
    """x[:, index] as [rows, 1]; a lane chosen at run time is picked out by a masked sum."""
    if isinstance(index, int):
        return x[:, index : index + 1]
    lane = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return jnp.sum(jnp.where(lane == index, x, 0.0), axis=1, keepdims=True)
