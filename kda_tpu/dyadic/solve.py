"""(I + L)^-1 of several heads side by side in the lanes: 16-blocks by elimination, then merged.

A product of [16, 128] with a block-diagonal [128, 128] multiplies eight pairs of 16-blocks at
once; as eight products of their own they would cost eight times as many results. The blocks
themselves are inverted on the vector units, a row at a time, all eight together: no power of L is
formed, so repeated tokens do not blow up, and the merges multiply both halves of both operands.
Two neighbours A, C with B below the diagonal merge by

    [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]

with the unit diagonals kept apart, so that B itself enters unrounded. Inverse blocks of one size
are kept packed: all in the same rows, each in its own lanes.
"""

import jax
import jax.numpy as jnp

from kda_tpu.dyadic.exponents import BLOCK, KEY, LANES
from kda_tpu.dyadic.strips import dot, iota
from kda_tpu.ladder.dots import split
from kda_tpu.ladder.stages import Stages

_SUBLANES = 8


def inverse(lower: jax.Array) -> Stages[jax.Array]:
    """(I + L)^-1, [R, 128] fp32. lower: [R, 128] fp32, 2^KEY L of 128 / R heads side by side.

    R = 32 or 64. Whatever stands on and above the diagonals is not used.
    """
    packed = yield from _eliminate(_on_diagonal(lower))
    size = BLOCK
    while size < lower.shape[0]:
        packed = yield from _merge(lower, packed, size)
        size *= 2
    return packed


def _pick(rows: list[jax.Array], index: jax.Array) -> jax.Array:
    """In every lane the entry of ``rows`` that ``index`` names there."""
    found = rows[-1]
    for n in reversed(range(len(rows) - 1)):
        found = jnp.where(index == n, rows[n], found)
    return found


def _on_diagonal(lower: jax.Array) -> jax.Array:
    """The strictly lower 16-blocks on the diagonals, packed: [16, 128]."""
    unit = lower.shape[0]
    lane = iota((BLOCK, LANES), 1)
    rows = [lower[first : first + BLOCK] for first in range(0, unit, BLOCK)]
    blocks = _pick(rows, lane % unit // BLOCK)
    return jnp.where(lane % BLOCK < iota((BLOCK, LANES), 0), blocks, 0.0) * 2.0**-KEY


def _eliminate(lower: jax.Array) -> Stages[jax.Array]:
    """The inverses of eight strictly lower blocks of 16, packed, [16, 128] fp32."""
    halves = range(BLOCK // _SUBLANES)
    lane, row = iota((_SUBLANES, LANES), 1), iota((_SUBLANES, LANES), 0)
    column, first_lane = lane % BLOCK, lane - lane % BLOCK
    below = [lower[_SUBLANES * m : _SUBLANES * (m + 1)] for m in halves]
    found = [jnp.where(column == row + _SUBLANES * m, 1.0, 0.0) for m in halves]
    for j in range(BLOCK - 1):
        half, at = divmod(j, _SUBLANES)
        pivot = jnp.broadcast_to(found[half][at : at + 1], lane.shape)
        for m in range((j + 1) // _SUBLANES, len(halves)):
            factor = jnp.take_along_axis(below[m], first_lane + j, axis=1)
            found[m] = found[m] - factor * pivot
    yield
    return jnp.concatenate(found)


def _merge(lower: jax.Array, packed: jax.Array, size: int) -> Stages[jax.Array]:
    """Inverse blocks of twice ``size``, [2 size, 128], from those of ``size``, [size, 128]."""
    unit, width = lower.shape[0], 2 * size
    lane = iota((size, LANES), 1)
    is_first = lane % width < size
    rows = [lower[first : first + size] for first in range(size, unit, width)]
    below = jnp.where(is_first, _pick(rows, lane % unit // width), 0.0) * 2.0**-KEY
    apart = iota((size, LANES), 0) == lane % size
    less = jnp.where(apart, 0.0, packed)
    right = below + _product(below, less, 0)
    yield
    corner = right + _product(less, right, size)
    yield
    return jnp.concatenate([jnp.where(is_first, packed, 0.0), jnp.where(is_first, -corner, packed)])


def _product(x: jax.Array, y: jax.Array, down: int) -> jax.Array:
    """x @ the block-diagonal of y, see ``_block_diagonal``; [size, 128] fp32 each, to 2^-16.

    Few rows meet many columns: the halves of x are rows, so that those of y are loaded once.
    """
    size = x.shape[0]
    left = jnp.concatenate(split(x))
    right = jnp.concatenate([_block_diagonal(half, down) for half in split(y)])
    found = dot(jnp.concatenate([left, left], axis=1), right)
    return found[:size] + found[size:]


def _block_diagonal(x: jax.Array, down: int) -> jax.Array:
    """The first blocks of all pairs in x [size, 128], each as [size] rows of [128, 128].

    A pair's block stands ``down`` rows below where its own lanes begin; all else is zero.
    """
    size = x.shape[0]
    width = 2 * size
    pair = iota(x.shape, 1) // size
    none = jnp.zeros_like(x)
    pieces = []
    for first in range(0, LANES, width):
        piece = [jnp.where(pair == first // size, x, none), none]
        pieces += piece if down == 0 else piece[::-1]
    return jnp.concatenate(pieces)
