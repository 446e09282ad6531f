"""What a tile of one head needs before its state is known: gate, factors, scores, operands.

A tile is one or two strips of 32 tokens. Each strip has a reference of its own, and the distance
between two references is a whole power of two: the fraction that is left over is carried into the
next strip's exponents, and from the last strip into the next tile's. Every step from one reference
to another is then exact in bf16, so an operand is split into its high and low half once, and the
rows for the state, the rows for the strip before and the columns for the next state are made of
the same halves by multiplications that round nothing.

Every product is of all four halves. Those of the rows lie side by side along the contraction, K =
256, those of the columns beside one another in the result: the MXU takes 256 by 256 in the time of
128 by 256, so four products cost what two do.
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

    attention: [R, 128] bf16, high, low (and at R = 32 high and high again) parts of the masked
    scores side by side; lower: [R, 128] fp32, the unmasked L times 2^KEY, the same in each R lanes;
    rows: [4 R, K] bf16, high halves of q and of beta k, then the low ones, each times 2^G;
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
    """The gate of one head as 1 / (y - 2^(rate x + shift)), its log2 decay; each [1, K] fp32.

    y = 1 / bound. An activated gate is rate x.
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
        decay = g * gates.rate
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
) -> Stages[Prepared]:
    """q, k, g: [R, K] fp32; beta: [R, 1] fp32, times 2^KEY; carry: [1, K], the last tile's.

    valid: rows that are tokens, None: all; k is zero behind them.
    """
    rows = k.shape[0]
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
    q_halves, k_halves = split(q * (scale * 2.0**QUERY) * up), split((beta * k) * up)
    columns = split(k * (1.0 / up))
    yield
    q_high, q_low = (_rows(x, whole, QUERY) for x in q_halves)
    k_high, k_low = (_rows(x, whole, 0) for x in k_halves)
    high = jnp.concatenate([q_high.against_columns, k_high.against_columns])
    low = jnp.concatenate([q_low.against_columns, k_low.against_columns])
    left = jnp.concatenate([high, low], axis=1)
    right = jnp.concatenate(columns * (LANES // 2 // rows))
    found = dot(left, jnp.concatenate([right, right], axis=1), "nt")
    half = found.shape[0] // 2
    scores, lower = (_summed(x, rows) for x in (found[:half], found[half:]))
    yield
    of_state = [x.against_state for x in (q_high, k_high, q_low, k_low)]
    return Prepared(
        attention=_attention(scores),
        lower=lower,
        rows=jnp.concatenate(of_state),
        rest=_rest(columns, whole),
        decay=jnp.exp2(sum(whole)),
        carry=carry,
    )


class _Rows(NamedTuple):
    """Rows, bf16, times 2^G since the tile began, [R, K], and as they meet the tile's columns.

    Against columns: since their strip began. Of two strips the second stands twice, first against
    the first strip's columns, then against its own: [96, K].
    """

    against_columns: jax.Array
    against_state: jax.Array


def _rows(x: jax.Array, whole: list[jax.Array], lift: int) -> _Rows:
    """x: rows 2^(G + DOWN + lift) since their strip began, [R, K] bf16."""
    low = x * jnp.asarray(2.0 ** (-DOWN - lift), x.dtype)
    if len(whole) == 1:
        return _Rows(x, low)
    first, second = slice(0, STRIP), slice(STRIP, None)
    # In two steps through 2^-DOWN: 2^-231 itself is no number.
    against_first = low[second] * power(whole[0] + (DOWN + lift))
    return _Rows(
        jnp.concatenate([x[first], against_first, x[second]]),
        jnp.concatenate([low[first], low[second] * power(whole[0])]),
    )


def _summed(found: jax.Array, rows: int) -> jax.Array:
    """Scores [R, 128], the same in each R lanes, of _Rows by the columns' high and low halves."""
    if rows > STRIP:
        is_first = iota((STRIP, LANES), 1) % rows < STRIP
        second = jnp.where(is_first, found[STRIP : 2 * STRIP], found[2 * STRIP :])
        found = jnp.concatenate([found[:STRIP], second])
    return found + turn(found, rows)


def _attention(scores: jax.Array) -> jax.Array:
    """[R, 128] fp32, the same in each R lanes, to bf16 parts: high, low, and high in the rest.

    QUERY is undone. Above the diagonal zero: selected, never multiplied, there may be infinities.
    """
    rows = scores.shape[0]
    high, low = split(scores)
    i, lane = iota(scores.shape, 0), iota(scores.shape, 1)
    parts = jnp.where(lane // rows == 1, low, high) * jnp.asarray(2.0**-QUERY, high.dtype)
    return jnp.where(i >= lane % rows, parts, jnp.zeros((), parts.dtype))


def _rest(columns: tuple[jax.Array, jax.Array], whole: list[jax.Array]) -> jax.Array:
    """k 2^(G_last - G), by column; in two steps where two strips decay.

    The least factor is 2^(DOWN - 231), two powers of two inside what bf16 holds.
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
