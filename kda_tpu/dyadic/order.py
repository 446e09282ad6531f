"""What the compiler's scheduler must let wait.

It fills a step as it likes, and left alone it begins every head's tile at once, in the vector
units, while the MXU waits; then those are through, and the MXU is the one that is full. What has no
dependency of its own is therefore given one, on a value that is known at the right time.
"""

import jax
import jax.numpy as jnp

from kda_tpu.dyadic.exponents import LANES


def after(x: jax.Array, known: jax.Array | None, step: jax.Array) -> jax.Array:
    """x [1, K] fp32, bit by bit, but not before ``known``, [1, 128] fp32; None: at once.

    step: of the grid, below 2^30. Only the compiler does not know that nothing is left of
    ``known``, whatever it holds.
    """
    if known is None:
        return x
    nothing = (step >> 30).astype(jnp.uint32)
    bits = jax.lax.bitcast_convert_type(known, jnp.uint32) & nothing
    bits = jnp.concatenate([bits] * (x.shape[1] // LANES), axis=1)
    return jax.lax.bitcast_convert_type(
        jax.lax.bitcast_convert_type(x, jnp.uint32) | bits, jnp.float32
    )
