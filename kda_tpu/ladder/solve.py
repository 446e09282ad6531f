"""Rung ``safe_gate``, second half: (I + L)^-1 on the MXU instead of row by row.

A finite Neumann product over all 64 rows, (I - L)(I + L^2)(I + L^4)..., is the shortest chain of
matrix products, but where keys repeat and gates are weak (one token repeated in a prompt) its
powers hold binomials up to 10^17 that must cancel. So the product is taken over blocks of 4 only
and the blocks are then doubled, each time by

    [[A, 0], [B, C]]^-1 = X - X B X,   X = diag(A^-1, C^-1)

which never forms a number larger than the answer's. Twice the size costs two products.

The unit diagonal is kept apart (the inverse is I + Y): 1 times a right-hand side is then added in
fp32, and only Y, which is small, meets the rounding of the MXU's operands.
"""

import jax
import jax.numpy as jnp

from kda_tpu.ladder.dots import Dots
from kda_tpu.ladder.stages import Stages

_FIRST = 4


def inverse_less_identity(dots: Dots, lower: jax.Array) -> Stages[jax.Array]:
    """Y = (I + L)^-1 - I, fp32. lower: L, [n, n] fp32, strictly lower triangular, n = 4 * 2^m.

    Every matrix product is a stage.
    """
    size = lower.shape[0]
    i = jax.lax.broadcasted_iota(jnp.int32, (size, size), 0)
    j = jax.lax.broadcasted_iota(jnp.int32, (size, size), 1)
    # Indices that differ in bit b and none above lie in neighbouring blocks of 2^b.
    apart = i ^ j
    near = jnp.where(apart < _FIRST, lower, 0.0)
    square = dots.once(near, near)
    yield
    inverse = square - near - dots.once(near, square)  # (I - N)(I + N^2) - I
    yield
    block = _FIRST
    while block < size:
        # B of every pair of blocks at once.
        pair = jnp.where((apart >= block) & (apart < 2 * block), lower, 0.0)
        right = pair + dots.once(pair, inverse)
        yield
        inverse = inverse - right - dots.once(inverse, right)
        yield
        block *= 2
    return inverse
