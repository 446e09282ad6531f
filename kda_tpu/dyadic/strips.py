"""What a tile of one head needs before its state is known: gate, factors, scores, operands.

A tile is one or two strips of 32 tokens. Each strip has a reference of its own, and the distance
between two references is a whole power of two: the fraction that is left over is carried into the
next strip's exponents, and from the last strip into the next tile's. Every step from one reference
to another is then exact in bf16, so an operand is split into its high and low half once, and the
rows for the state, the rows for the strip before and the columns for the next state are made of
the same halves by multiplications that round nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.dyadic.exponents import DOWN, LANES, QUERY, STRIP
from kda_tpu.gate import LOG2_E, Gate
from kda_tpu.ladder.chunk import scan_rows
from kda_tpu.ladder.dots import split
from kda_tpu.ladder.stages import Stages

_SUBLANES = 8


class Prepared(NamedTuple):
    """A tile of one head, R = 32 or 64 rows.

    attention: [R, 128] bf16, high, low (and at R = 32 again high) parts of the masked scores side
    by side; lower: [R, 128] fp32, the unmasked L in the lanes of its solve group, times 2^KEY;
    rows: [3 R, K] bf16, q over the low over the high half of beta k, each times 2^G;
    rest: [K, 2 R or 3 R] bf16, k 2^(G_last - G) by column, high, low (high); decay: [1, K] fp32,
    the power of two between the tile's two references; carry: [1, K], 0 to 1, what G is beyond it.
    """

    attention: jax.Array
    lower: jax.Array
    rows: jax.Array
    rest: jax.Array
    decay: jax.Array
    carry: jax.Array


class GateRows(NamedTuple):
    """The gate of one head as -1 / (y + 2^(rate x + shift)), its log2 decay; each [1, K] fp32.

    y = 1 / |bound|. For an activated gate neither is read.
    """

    rate: jax.Array
    shift: jax.Array


def iota(shape: tuple[int, int], dimension: int) -> jax.Array:
    return jax.lax.broadcasted_iota(jnp.int32, shape, dimension)


def dot(a: jax.Array, b: jax.Array, form: str = "nn") -> jax.Array:
    """One MXU pass, bf16 in, fp32 out: a @ b, or a @ b^T for ``nt``."""
    right = 0 if form == "nn" else 1
    return jax.lax.dot_general(
        a, b, (((1,), (right,)), ((), ())), preferred_element_type=jnp.float32
    )


def pack(x: jax.Array) -> jax.Array:
    """[n, m] bf16 as [n / 2, m] words, as it is stored and turned without being taken apart."""
    return pltpu.bitcast(x, jnp.uint32)


def unpack(x: jax.Array) -> jax.Array:
    return pltpu.bitcast(x, jnp.bfloat16)


def turn(x: jax.Array, lanes: int) -> jax.Array:
    """x with its lanes moved up by ``lanes``, cyclically; fp32 or bf16."""
    if lanes % LANES == 0:
        return x
    if x.dtype == jnp.bfloat16:
        return unpack(pltpu.roll(pack(x), lanes % LANES, 1))
    return pltpu.roll(x, lanes % LANES, 1)


def power(exponent: jax.Array) -> jax.Array:
    """2^exponent for whole exponents, exact in bf16."""
    return jnp.exp2(exponent).astype(jnp.bfloat16)


def log2_decay(gate: Gate, gates: GateRows, g: jax.Array, valid: jax.Array | None) -> jax.Array:
    """The log2 decay of every row, [R, K], 0 from row ``valid`` on."""
    if gate.is_raw:
        y = 1.0 / (gate.lower_bound * LOG2_E)
        decay = 1.0 / (y - jnp.exp2(g * gates.rate + gates.shift))
    else:
        decay = g * LOG2_E
    if valid is None:
        return decay
    return jnp.where(iota(decay.shape, 0) < valid, decay, 0.0)


def _running(scanned: jax.Array, start: jax.Array) -> tuple[list[jax.Array], jax.Array]:
    """Running sums of 8 rows each joined to those of a strip, from ``start`` on; and the last."""
    joined, before = [], start
    for first in range(0, STRIP, _SUBLANES):
        part = scanned[first : first + _SUBLANES] + before
        before = part[_SUBLANES - 1 :]
        joined.append(part)
    return joined, before


def prepare(
    gate: Gate,
    gates: GateRows,
    scale: float,
    q: jax.Array,
    k: jax.Array,
    g: jax.Array,
    beta: jax.Array,
    carry: jax.Array,
    valid: jax.Array | None,
    place: int,
) -> Stages[Prepared]:
    """q, k, g: [R, K] fp32; beta: [R, 1] fp32, times 2^KEY; carry: [1, K], the last tile's.

    valid: rows that are tokens, None: all; k is zero behind them. place: of the head in its solve
    group, which decides the lanes of ``lower``.
    """
    rows = k.shape[0]
    bf16 = jnp.bfloat16
    scanned = scan_rows(log2_decay(gate, gates, g, valid), _SUBLANES)
    decayed: list[jax.Array] = []
    whole: list[jax.Array] = []  # the power of two that each strip decays by
    for first in range(0, rows, STRIP):
        parts, end = _running(scanned[first : first + STRIP], carry + DOWN)
        decayed += parts
        end = end - DOWN
        whole.append(jnp.floor(end))
        carry = end - whole[-1]
    up = jnp.exp2(jnp.concatenate(decayed))
    q_up = (q * (scale * 2.0**QUERY) * up).astype(bf16)
    k_high, k_low = split((beta * k) * up)
    columns = split(k * (1.0 / up))
    yield
    here = [_rows(x, whole, lift) for x, lift in ((q_up, QUERY), (k_high, 0), (k_low, 0))]
    left = jnp.concatenate([scores for scores, _ in here])
    if rows == STRIP:
        wide = jnp.concatenate([columns[0]] * 3 + [columns[1]])
        found = dot(left, wide, "nt")
        attention = _attention(found[:rows], iota((rows, LANES), 1) // STRIP == 1, STRIP)
        high = found[rows : 2 * rows]
        lower = turn(high + turn(high, STRIP) + found[2 * rows :], STRIP * place)
    else:
        odd = place % 2 == 1  # its high columns lie in the upper lanes, where its solve wants them
        right = [_beside(x) for x in (reversed(columns) if odd else columns)]
        found = dot(left, jnp.concatenate(right), "nt")
        attention = _attention_of_two(found[:rows], odd)
        high = found[rows : 2 * rows]
        lower = high + turn(high, 2 * STRIP) + found[2 * rows :]
    yield
    return Prepared(
        attention=attention,
        lower=lower,
        rows=jnp.concatenate([here[i][1] for i in (0, 2, 1)]),
        rest=_rest(columns, whole),
        decay=jnp.exp2(sum(whole)),
        carry=carry,
    )


def _rows(x: jax.Array, whole: list[jax.Array], lift: int) -> tuple[jax.Array, jax.Array]:
    """Rows 2^(G + DOWN + lift) as the scores and as the state want them.

    Scores: [R, K] or, for two strips, [R, 2 K]: against the columns of the first strip, beside
    those against the second. State: [R, K], 2^G since the tile began.
    """
    low = x * jnp.asarray(2.0 ** (-DOWN - lift), x.dtype)
    if len(whole) == 1:
        return x, low
    first, second = slice(0, STRIP), slice(STRIP, None)
    # In two steps through 2^-DOWN: 2^-231 itself is no number.
    against_first = low[second] * power(whole[0] + (DOWN + lift))
    scores = jnp.concatenate(
        [
            jnp.concatenate([x[first], against_first]),
            jnp.concatenate([jnp.zeros_like(x[first]), x[second]]),
        ],
        axis=1,
    )
    return scores, jnp.concatenate([low[first], low[second] * power(whole[0])])


def _beside(columns: jax.Array) -> jax.Array:
    """[64, K] to [64, 2 K]: the second strip's columns meet only the rows' second half."""
    first, second = columns[:STRIP], columns[STRIP:]
    none = jnp.zeros_like(first)
    return jnp.concatenate(
        [
            jnp.concatenate([first, none], axis=1),
            jnp.concatenate([none, second], axis=1),
        ]
    )


def _masked(high: jax.Array, low: jax.Array, is_low: jax.Array, width: int) -> jax.Array:
    """The parts of the scores side by side, above the diagonal zero, their lift undone.

    Selected, never multiplied: above the diagonal may be infinities.
    """
    i, j = iota(high.shape, 0), iota(high.shape, 1) % width
    parts = jnp.where(is_low, low, high) * jnp.asarray(2.0**-QUERY, high.dtype)
    return jnp.where(i >= j, parts, jnp.zeros((), parts.dtype))


def _attention(scores: jax.Array, is_low: jax.Array, width: int) -> jax.Array:
    """[32, 128] fp32, the scores in three groups of lanes, to their three parts."""
    return _masked(*split(scores), is_low, width)


def _attention_of_two(scores: jax.Array, odd: bool) -> jax.Array:
    """[64, 128] fp32, the scores in the lower or (odd) upper lanes, to high and low parts."""
    high, low = split(scores)
    half = 2 * STRIP
    if odd:
        high = turn(high, half)
    else:
        low = turn(low, half)
    return _masked(high, low, iota(scores.shape, 1) >= half, half)


def _rest(columns: tuple[jax.Array, jax.Array], whole: list[jax.Array]) -> jax.Array:
    """k 2^(G_last - G), by column; in two steps where two strips decay.

    The least factor is 2^(DOWN - 231), four powers of two inside what bf16 holds.
    """
    rest = []
    for x in columns:
        parts = []
        for index, exponent in enumerate(whole):
            part = x[STRIP * index : STRIP * (index + 1)] * power(exponent + DOWN)
            for later in whole[index + 1 :]:
                part = part * power(later)
            parts.append(part)
        rest.append(jnp.concatenate(parts))
    return jnp.concatenate(rest if len(whole) == 2 else [*rest, rest[0]]).T
