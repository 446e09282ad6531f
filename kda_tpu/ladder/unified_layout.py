"""Rung ``unified_layout``: one transposed layout for both kernels, and no gather or scatter.

[1, T, H, D] becomes [H, P, D] once, P tokens in whole chunks, and both kernels read that. The
transpose is a kernel of its own that takes q, k, v and g together, one chunk of all heads a step:
a window of the native layout may begin at any token, so it also spreads ragged sequences out to
whole chunks on the way, which a gather did before. The way back is its mirror image.

Heads that do not fill sublane tiles (H % 8 != 0) go through XLA, with identical numbers.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.ladder.native_layout import RaggedWriter, load_head, store_pair, window
from kda_tpu.layout import PaddedLayout
from kda_tpu.original.packing import gather, scatter
from kda_tpu.switches import HEAD_GROUP


def to_heads(
    arrays: tuple[jax.Array, ...],
    pads: tuple[float, ...],
    layout: PaddedLayout,
    *,
    chunk: int,
    aligned: bool,
    interpret: Any,
) -> tuple[jax.Array, ...]:
    """Each [1, T, H, D] as [H, P, D], padding filled with its ``pad``.

    aligned: every chunk is full.
    """
    H = arrays[0].shape[2]
    C = layout.chunks.valid.shape[0]
    if H % HEAD_GROUP:
        if aligned:
            return tuple(jnp.swapaxes(x[0, : C * chunk], 0, 1) for x in arrays)
        return tuple(gather(x, layout, pad) for x, pad in zip(arrays, pads, strict=True))

    def kernel(_, valid_ref, *refs) -> None:
        row = jax.lax.broadcasted_iota(jnp.int32, (chunk, 1), 0)
        present = row < valid_ref[pl.program_id(0)]
        for source, out, pad in zip(refs[: len(pads)], refs[len(pads) :], pads, strict=True):
            for h in range(H):
                x = load_head(source, h, interpret=interpret)
                if not aligned:
                    x = jnp.where(present, x, pad)
                out[h] = x.astype(out.dtype)

    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(C,),
            in_specs=[window(chunk, H, x.shape[3]) for x in arrays],
            out_specs=[
                pl.BlockSpec((H, chunk, x.shape[3]), lambda c, *_: (0, c, 0)) for x in arrays
            ],
        ),
        out_shape=[jax.ShapeDtypeStruct((H, C * chunk, x.shape[3]), x.dtype) for x in arrays],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
        name="kda_to_heads",
    )(layout.chunks.token_start, layout.chunks.valid, *(x[0] for x in arrays))


def to_tokens(
    o: jax.Array, layout: PaddedLayout, tokens: int, *, chunk: int, aligned: bool, interpret: Any
) -> jax.Array:
    """[H, P or more, V] back to [1, tokens, H, V]; zero past the packing's tokens."""
    H, _, V = o.shape
    C, packed = layout.chunks.valid.shape[0], layout.slot_of_token.shape[0]
    if H % HEAD_GROUP:
        if aligned:
            rows = jnp.swapaxes(o[:, :packed], 0, 1)
            return jnp.pad(rows, ((0, tokens - packed), (0, 0), (0, 0)))[None]
        return scatter(o, layout, tokens)

    def kernel(token_start_ref, valid_ref, o_ref, out_ref, window_ref, semaphores) -> None:
        writer = RaggedWriter(out_ref, window_ref, semaphores, token_start_ref, valid_ref)
        out = writer.slot()
        for h in range(0, H, 2):
            even, odd = (o_ref[i].astype(jnp.float32) for i in (h, h + 1))
            store_pair(out, h, even, odd, interpret=interpret)
        writer.send()

    rows = pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(C,),
            in_specs=[pl.BlockSpec((H, chunk, V), lambda c, *_: (0, c, 0))],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[
                pltpu.VMEM((2, chunk, H, V), o.dtype),
                pltpu.SemaphoreType.DMA((2,)),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((tokens, H, V), o.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
        name="kda_to_tokens",
    )(layout.chunks.token_start, layout.chunks.valid, o)
    return zero_tail(rows, packed)[None]


def zero_tail(o: jax.Array, packed: int) -> jax.Array:
    """o [T, H, V] with the rows past the packing's tokens, which nobody wrote, set to zero."""
    return o if packed == o.shape[0] else o.at[packed:].set(0)
