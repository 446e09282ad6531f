"""The gather before and the scatter behind the kernels of ``original``."""

import jax
import jax.numpy as jnp

from kda_tpu.layout import PaddedLayout


def gather(x: jax.Array, layout: PaddedLayout, pad: float) -> jax.Array:
    """[1, T, H, ...] to [H, P, ...], padding filled with ``pad``."""
    rows = x[0].at[layout.token_of_slot].get(mode="fill", fill_value=pad)
    return jnp.swapaxes(rows, 0, 1)


def scatter(o: jax.Array, layout: PaddedLayout, tokens: int) -> jax.Array:
    """[H, P, V] back to [1, T, H, V]; zero past the packing's tokens."""
    packed = jnp.swapaxes(o, 0, 1)[layout.slot_of_token]
    return jnp.pad(packed, ((0, tokens - packed.shape[0]), (0, 0), (0, 0)))[None]
