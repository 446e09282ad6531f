"""What meets the state: reading it, solving for the new values, the output, the next state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kda_tpu.dyadic.exponents import KEY, LANES
from kda_tpu.dyadic.strips import dot, iota, turn
from kda_tpu.ladder.dots import split


class Read(NamedTuple):
    """q 2^G S, [R, V], and beta k 2^G S times 2^KEY, [R, V]; fp32."""

    output: jax.Array
    keys: jax.Array


def side_by_side(inverse: jax.Array, place: int) -> jax.Array:
    """One head's inverse as ``three_parts`` wants its left operand; [R, 128] bf16.

    inverse: [R, 128] fp32 of a solve group; place: of the head in it. High, low (and at R = 32
    again high) parts, in its first 2 R (3 R) lanes, times 2^-KEY: what is solved comes with KEY's
    lift and leaves without.
    """
    rows = inverse.shape[0]
    high, low = split(inverse)
    group = iota(inverse.shape, 1) // rows
    found = turn(high, rows * -place)
    parts = [turn(low, rows * (1 - place)), turn(high, rows * (2 - place))]
    for index, part in enumerate(parts[: LANES // rows - 1], start=1):
        found = jnp.where(group == index, part, found)
    return found * jnp.asarray(2.0**-KEY, found.dtype)


def three_parts(left: jax.Array, right: jax.Array) -> jax.Array:
    """left @ right, [M, R] @ [R, V], to 2^-16: high high + low high + high low, one contraction.

    left: [M, 128] bf16, its parts side by side; right: [R, V] fp32.
    """
    rows = right.shape[0]
    high, low = split(right)
    if 3 * rows <= LANES:
        left = left[:, : 3 * rows]
    else:
        left = jnp.concatenate([left, left[:, :rows]], axis=1)
    return dot(left, jnp.concatenate([high, high, low]))


def read(rows: jax.Array, state: jax.Array) -> Read:
    """rows: [4 R, K] bf16, see strips.Prepared; state: [K, V] fp32. To 2^-16, as in strips."""
    width = state.shape[1]
    high, low = jnp.split(rows, 2)
    halves = jnp.concatenate(split(state), axis=1)
    found = dot(jnp.concatenate([high, low], axis=1), jnp.concatenate([halves, halves]))
    return Read(*jnp.split(found[:, :width] + found[:, width:], 2))
