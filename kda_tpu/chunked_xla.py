"""``chunked_xla``: the chunked GEMM form of KDA in plain jnp, one scan step a chunk of all heads.

With G the inclusive chunk-local cumsum of the log decay over ln 2 (log2 domain), a chunk is

    A[i,j] = scale sum_c q_ic k_jc 2^(G_ic - G_jc), i >= j
    L[i,j] = beta_i sum_c k_ic k_jc 2^(G_ic - G_jc), i > j
    [u | w] = (I + L)^-1 [beta v | beta k 2^G];   v' = u - w S
    o = scale (q 2^G) S + A v';   S <- 2^G_last S + (k 2^(G_last - G))^T v'

Everything is fp32 at the highest matmul precision, on every backend.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from kda_tpu.errors import KdaArgumentError
from kda_tpu.gate import LOG2_E, Gate, log_decay
from kda_tpu.inputs import KdaInputs
from kda_tpu.interface import Bound, Implementation, PrefillFn, resolve_scale, runs_anywhere
from kda_tpu.layout import CHUNK, ChunkTable, chunk_table
from kda_tpu.words import as_words, from_words

STRIP = 16
# fp32 exponents end at 127 and flush below -126; with a unit key a factor 2^x is safe for |x| <
# 126. A strip's factors span STRIP * |lower_bound| / ln 2, halved by the anchor: 57.7 at -5.
_EXPONENT_BUDGET = 126.0


def _dot(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(spec, a, b, precision=jax.lax.Precision.HIGHEST)


def scores_bounded(
    rows: tuple[jax.Array, ...], k: jax.Array, G: jax.Array, lower_bound: float
) -> list[jax.Array]:
    """[H, BT, BT] of sum_c rows_ic k_jc 2^(G_ic - G_jc) for i >= j (above: garbage), all GEMMs.

    rows, k, G: [H, BT, K] fp32. Legal only where no step's log decay is below lower_bound >= -5.
    In strips of STRIP columns the decay factors into 2^(G_i - r) 2^(r - G_j). The anchor r is the
    middle of what a strip can span, counted from the G before the strip: |exponent| <= 57.7 for
    rows inside the strip, and rows below only underflow. The usual anchor, the strip's middle row,
    has the same bound but makes earlier rows round differently when later tokens change.
    """
    half = 0.5 * STRIP * abs(lower_bound) * LOG2_E
    if half >= _EXPONENT_BUDGET:
        raise KdaArgumentError(
            f"lower_bound is {lower_bound}: exponents of {half:.0f} in strips of {STRIP} leave fp32"
        )
    columns: list[list[jax.Array]] = [[] for _ in rows]
    for start in range(0, k.shape[1], STRIP):
        strip = slice(start, start + STRIP)
        before = G[:, start - 1 : start] if start else jnp.zeros_like(G[:, :1])
        anchor = before - half
        column = k[:, strip] * jnp.exp2(anchor - G[:, strip])
        row_factor = jnp.exp2(G[:, start:] - anchor)  # rows above the strip would overflow
        for done, row in zip(columns, rows, strict=True):
            block = _dot("hik,hjk->hij", row[:, start:] * row_factor, column)
            done.append(jnp.pad(block, ((0, 0), (start, 0), (0, 0))))
    return [jnp.concatenate(done, axis=2) for done in columns]


def scores_any_gate(rows: tuple[jax.Array, ...], k: jax.Array, G: jax.Array) -> list[jax.Array]:
    """The same sums for any gate <= 0: no exponent is ever positive, so none can overflow.

    Inside a STRIP x STRIP diagonal block every pair's decay is computed as it stands. Left of it
    the anchor is the G before the row strip: both factors of 2^(G_i - r) 2^(r - G_j) are <= 1.
    """
    H, BT, K = k.shape
    strips = BT // STRIP
    per_strip = (H, strips, STRIP, K)
    g_strip = G.reshape(per_strip)
    causal = jnp.tril(jnp.ones((STRIP, STRIP), bool))[:, :, None]
    gap = g_strip[:, :, :, None, :] - g_strip[:, :, None, :, :]
    pair = k.reshape(per_strip)[:, :, None] * jnp.exp2(jnp.where(causal, gap, -jnp.inf))
    diagonal = [jnp.sum(row.reshape(per_strip)[:, :, :, None] * pair, -1) for row in rows]
    strip_rows: list[list[jax.Array]] = [[] for _ in rows]
    for s in range(strips):
        start = s * STRIP
        right = ((0, 0), (0, 0), (0, BT - start - STRIP))
        if start:
            anchor = G[:, start - 1 : start]
            column = k[:, :start] * jnp.exp2(anchor - G[:, :start])
            row_factor = jnp.exp2(G[:, start : start + STRIP] - anchor)
        for done, row, on_diagonal in zip(strip_rows, rows, diagonal, strict=True):
            block = on_diagonal[:, s]
            if start:
                left = _dot("hik,hjk->hij", row[:, start : start + STRIP] * row_factor, column)
                block = jnp.concatenate([left, block], axis=2)
            done.append(jnp.pad(block, right))
    return [jnp.concatenate(done, axis=1) for done in strip_rows]


def unit_lower_inverse(L: jax.Array) -> jax.Array:
    """(I + L)^-1 for strictly lower triangular L [H, n, n], n = 4 * 2^m, by block doubling.

    Blocks of 4 by the finite Neumann product (I - L)(I + L^2); then twice the size a round:
    [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]. As accurate as forward substitution.
    The Neumann product over all 64 rows is not: where keys repeat and gates are weak (one token
    repeated in a prompt) its powers hold binomials up to 10^17 that have to cancel, and the error
    on a unit right-hand side is 10^11 in fp32; with blocks of 16 still 4e-3, here 5e-7.
    """
    n, size = L.shape[1], 4
    diagonal = jnp.stack([L[:, s : s + size, s : s + size] for s in range(0, n, size)], 1)
    square = _dot("hbij,hbjk->hbik", diagonal, diagonal)
    first = jnp.eye(size, dtype=L.dtype) - diagonal
    inverse = first + _dot("hbij,hbjk->hbik", square, first)
    while size < n:
        below = jnp.stack(
            [L[:, s + size : s + 2 * size, s : s + size] for s in range(0, n, 2 * size)], 1
        )
        top, bottom = inverse[:, 0::2], inverse[:, 1::2]
        corner = -_dot("hbij,hbjk->hbik", _dot("hbij,hbjk->hbik", bottom, below), top)
        inverse = jnp.concatenate(
            [
                jnp.concatenate([top, jnp.zeros_like(top)], 3),
                jnp.concatenate([corner, bottom], 3),
            ],
            2,
        )
        size *= 2
    return inverse[:, 0]


def chunk_step(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    decay_log: jax.Array,
    beta: jax.Array,
    state: jax.Array,
    *,
    gate: Gate,
    scale: float,
) -> tuple[jax.Array, jax.Array]:
    """One chunk of all heads: o [H, BT, V] and the state after it, all fp32.

    q, k, decay_log (natural log): [H, BT, K]; v: [H, BT, V]; beta: [H, BT]; state: [H, K, V].
    """
    BT, V = v.shape[1:]
    lower = jnp.tril(jnp.ones((BT, BT), jnp.float32))
    G = _dot("ij,hjk->hik", lower, decay_log * LOG2_E)
    k_beta = beta[..., None] * k
    if gate.is_bounded:
        attention, L = scores_bounded((q, k_beta), k, G, gate.lower_bound)
    else:
        attention, L = scores_any_gate((q, k_beta), k, G)
    # Masked by selection: above the diagonal stands garbage that may be infinite.
    attention = jnp.where(lower > 0, attention, 0.0)
    L = jnp.where(jnp.tril(lower, -1) > 0, L, 0.0)
    decayed = jnp.exp2(G)
    rhs = jnp.concatenate([beta[..., None] * v, k_beta * decayed], axis=2)
    solved = _dot("hij,hjd->hid", unit_lower_inverse(L), rhs)
    u, w = solved[..., :V], solved[..., V:]
    v_new = u - _dot("hik,hkv->hiv", w, state)
    o = _dot("hik,hkv->hiv", q * decayed, state) + _dot("hij,hjv->hiv", attention, v_new)
    last = G[:, -1:]
    carried = jnp.swapaxes(jnp.exp2(last), 1, 2) * state
    state = carried + _dot("hik,hiv->hkv", k * jnp.exp2(last - G), v_new)
    return scale * o, state


@functools.cache
def _prefill(gate: Gate, scale: float) -> PrefillFn:
    def chunked_xla(inputs: KdaInputs, chunks: ChunkTable) -> tuple[jax.Array, jax.Array]:
        dtype, tokens = inputs.q.dtype, inputs.q.shape[1]
        row = jnp.arange(CHUNK)

        def with_overrun(x: jax.Array) -> jax.Array:
            # A sequence's last chunk may read and write past it, at most CHUNK - 1 tokens: into
            # its successor, or into this margin.
            return jnp.pad(as_words(x[0]), ((0, CHUNK),) + ((0, 0),) * (x.ndim - 2))

        packed = tuple(
            (with_overrun(x), x.dtype)
            for x in (inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta)
        )
        o = jnp.zeros((tokens + CHUNK, *inputs.v.shape[2:]), as_words(inputs.q[:0]).dtype)

        def step(
            carry: tuple[jax.Array, jax.Array], chunk: ChunkTable
        ) -> tuple[tuple[jax.Array, jax.Array], None]:
            o, states = carry
            present = row < chunk.valid

            def load(words: jax.Array, dtype: jnp.dtype) -> jax.Array:  # [BT, H, ...], fp32
                x = jax.lax.dynamic_slice_in_dim(words, chunk.token_start, CHUNK, 0)
                x = from_words(x, dtype).astype(jnp.float32)
                return jnp.where(present.reshape((-1,) + (1,) * (x.ndim - 1)), x, 0.0)

            q, k, v, g, beta = (load(*x) for x in packed)
            decay_log = log_decay(gate, g, inputs.A_log, inputs.dt_bias)
            decay_log = jnp.where(present[:, None, None], decay_log, 0.0)
            by_head = (jnp.swapaxes(x, 0, 1) for x in (q, k, v, decay_log, beta))
            # The carry holds the state of every sequence and a chunk updates its own in place, so
            # boundaries need no flags and an empty sequence keeps its initial state.
            state = jax.lax.dynamic_index_in_dim(states, chunk.sequence, 0, False)
            out, state = chunk_step(*by_head, state, gate=gate, scale=scale)
            # Rows past the chunk's tokens are zero, and the next chunk, which starts right there,
            # overwrites them.
            out = jnp.where(present[:, None, None], jnp.swapaxes(out, 0, 1), 0.0)
            o = jax.lax.dynamic_update_slice_in_dim(
                o, as_words(out.astype(dtype)), chunk.token_start, 0
            )
            states = jax.lax.dynamic_update_index_in_dim(states, state, chunk.sequence, 0)
            return (o, states), None

        states = inputs.initial_state.astype(jnp.float32)
        (o, states), _ = jax.lax.scan(step, (o, states), chunks)
        return from_words(o[:tokens], dtype)[None], states

    return chunked_xla


def bind(
    lengths: Sequence[int],
    gate: Gate,
    *,
    heads: int,
    head_dim_k: int,
    head_dim_v: int,
    scale: float | None = None,
    interpret: Any = False,
) -> Bound:
    """See interface.Bind. The plan is the chunk table; the packed tokens stay where they are."""
    chunks = chunk_table(lengths)
    fn = _prefill(gate, resolve_scale(scale, head_dim_k))
    return Bound(fn, chunks, CHUNK * len(chunks.valid))


IMPLEMENTATION = Implementation(
    name="chunked_xla",
    summary="the chunked GEMM form in plain jnp: strips, block-doubling solve, one step a chunk",
    can_run=runs_anywhere,
    bind=bind,
)
