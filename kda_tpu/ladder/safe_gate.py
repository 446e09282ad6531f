"""Rung ``safe_gate``: the pairwise decays as GEMMs of 16-row strips, for gates with a known bound.

A[i,j] = sum_c q_ic k_jc 2^(G_ic - G_jc) is a matrix product if 2^(G_i - G_j) is factored into a row
and a column factor about some reference r: 2^(G_i - r) 2^(r - G_j). One of the two is large, so r
must be near. Rows are taken in strips of STRIP and r is the G before the strip:

    2^(G_i - r + s)   for the strip's rows, exponents in [-s, s]
    2^(r - G_j - s)   for its columns; in the strip, exponents in [-s, s]; before it, only smaller

with s = half of what a strip can decay. That is the exponent range of a reference at the strip's
midpoint, but r lies in the past and s is a whole number, so 2^s is exact: how a row rounds does
not depend on tokens behind it. Columns behind the row's own are garbage, possibly infinite; they
are masked by selection, never by multiplication.

Everything a chunk needs of the decay falls out of 2^(G - r + s) and its inverse: at the strip's
end the columns are carried on to the next reference, and after the last strip they are
k 2^(G_last - G). The cumulative G of a chunk, hundreds for strong gates, is never exponentiated.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kda_tpu.errors import KdaArgumentError
from kda_tpu.gate import LOG2_E, Gate
from kda_tpu.ladder.dots import Dots
from kda_tpu.ladder.stages import Stages

STRIP = 16
# The largest exponent that fp32 and bf16 hold with room for the mantissa.
EXPONENT_BUDGET = 126.0


class Scores(NamedTuple):
    """What a chunk of one head needs before its state is known; fp32.

    attention: [BT, BT], sum_c q_i k_j 2^(G_i - G_j) for i >= j, else 0, not scaled;
    lower: [BT, BT], L, beta_i times the same of k for i > j, else 0;
    q_decayed: [BT, K], q 2^G; k_decayed: [BT, K], beta k 2^G; k_rest: [BT, K],
    k 2^(G_last - G); decay: [1, K], 2^G_last.
    """

    attention: jax.Array
    lower: jax.Array
    q_decayed: jax.Array
    k_decayed: jax.Array
    k_rest: jax.Array
    decay: jax.Array


def exponent_shift(gate: Gate) -> int:
    """s, after checking that the factors stay within fp32.

    Raises KdaArgumentError for a gate without a bound, or with one that the budget cannot hold.
    """
    if gate.lower_bound is None:
        raise KdaArgumentError(
            f"gate is {gate.kind} without a lower bound: the strip factors of safe_gate would "
            "overflow; use a path that spells the decays out"
        )
    half_reach = STRIP / 2 * abs(gate.lower_bound) * LOG2_E
    if half_reach > EXPONENT_BUDGET:
        raise KdaArgumentError(
            f"gate.lower_bound is {gate.lower_bound}: strips of {STRIP} rows reach exponents of "
            f"{half_reach:.0f}, the budget is {EXPONENT_BUDGET:.0f}"
        )
    return math.ceil(half_reach)


def triangle(size: int, *, strict: bool) -> jax.Array:
    """[size, size] True at i >= j, or i > j."""
    i = jax.lax.broadcasted_iota(jnp.int32, (size, size), 0)
    j = jax.lax.broadcasted_iota(jnp.int32, (size, size), 1)
    return i > j if strict else i >= j


def strip_scores(
    dots: Dots,
    shift: int,
    q: jax.Array,
    k: jax.Array,
    beta: jax.Array,
    since_strip: jax.Array,
) -> Stages[Scores]:
    """Scores by one GEMM a strip, each a stage.

    q, k: [BT, K] fp32; beta: [BT, 1] fp32; since_strip: [BT, K] fp32, G_i - r: the cumulative
    log2 decay since the row's strip began, >= -2 shift. The solve is more sensitive to L than the
    output to A, so L's rows go in unrounded.
    """
    chunk, _ = k.shape
    # Shifted by a factor, which is exact; a shifted argument is not: exp2(58) is off by 2e-6 where
    # exp2 goes through exp.
    decayed = jnp.exp2(since_strip)
    up = decayed * 2.0**shift
    q_up, k_beta_up = q * up, beta * (k * up)
    k_down = k * (jnp.exp2(-since_strip) * 2.0**-shift)
    columns: list[jax.Array] = []  # k_j 2^(r - G_j - s) of every strip so far
    attention, lower, q_decayed, k_decayed = [], [], [], []
    reach = jnp.full_like(decayed[:1], 2.0**-shift)  # 2^(r - s)
    for start in range(0, chunk, STRIP):
        rows = slice(start, start + STRIP)
        columns.append(k_down[rows])
        behind = chunk - start - STRIP
        right = columns + ([jnp.zeros_like(k[:behind])] if behind else [])
        a_rows, l_rows = dots.once_and_finer(q_up[rows], k_beta_up[rows], jnp.concatenate(right))
        attention.append(a_rows)
        lower.append(l_rows)
        q_decayed.append(q_up[rows] * reach)
        k_decayed.append(k_beta_up[rows] * reach)
        through = decayed[start + STRIP - 1 : start + STRIP]
        reach = reach * through
        carry = through if behind else through * 2.0**shift
        columns = [column * carry for column in columns]
        yield
    return Scores(
        attention=jnp.where(triangle(chunk, strict=False), jnp.concatenate(attention), 0.0),
        lower=jnp.where(triangle(chunk, strict=True), jnp.concatenate(lower), 0.0),
        q_decayed=jnp.concatenate(q_decayed),
        k_decayed=jnp.concatenate(k_decayed),
        k_rest=jnp.concatenate(columns),
        decay=reach * 2.0**shift,
    )
