"""``chunked_xla``: the chunked GEMM form of KDA in plain jnp, one scan step a chunk of all heads.

With G the inclusive chunk-local cumsum of the log decay over ln 2 (log2 domain), a chunk is

    A[i,j] = scale sum_c q_ic k_jc 2^(G_ic - G_jc), i >= j
    L[i,j] = beta_i sum_c k_ic k_jc 2^(G_ic - G_jc), i > j
    [u | w] = (I + L)^-1 [beta v | beta k 2^G];   v' = u - w S
    o = scale (q 2^G) S + A v';   S <- 2^G_last S + (k 2^(G_last - G))^T v'

Everything is fp32 at the highest matmul precision, on every backend.
"""

import functools
import math
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
# fp32 exponents end at 127 and flush below -126. Inside a diagonal block the bounded form scales
# rows and columns by 2^G and 2^-G, at most STRIP * 5 / ln 2 = 115.4 either way; moving half of
# that from one factor to the other leaves |exponent| <= 58 for |lower_bound| <= 5.
_EXPONENT_BUDGET = 126.0


def _dot(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(spec, a, b, precision=jax.lax.Precision.HIGHEST)


def _diagonal_bounded(
    rows: tuple[jax.Array, ...], k: jax.Array, G: jax.Array, lower_bound: float
) -> list[jax.Array]:
    """The diagonal blocks as GEMMs: 2^(G_i - G_j) = (2^(G_i - r) 2^s) (2^(r - G_j) 2^-s).

    rows, k, G: [H, strips, STRIP, K], G counted from r, the G before the strip. Legal only where
    no log decay is below lower_bound: then neither factor can leave fp32. The usual anchor is the
    strip's middle row, which has the same range but lets later tokens change how earlier rows
    round. An anchor in the past and a shift s that is a whole number are causal, and exact.
    """
    reach = STRIP * abs(lower_bound) * LOG2_E
    if reach >= _EXPONENT_BUDGET:
        raise KdaArgumentError(
            f"lower_bound is {lower_bound}: 2^{reach:.0f} in a strip of {STRIP} rows leaves fp32"
        )
    shift = 2.0 ** math.ceil(reach / 2)
    up, down = jnp.exp2(G) * shift, jnp.exp2(-G) / shift
    return [_dot("hsik,hsjk->hsij", row * up, k * down) for row in rows]


def _diagonal_any_gate(rows: tuple[jax.Array, ...], k: jax.Array, G: jax.Array) -> list[jax.Array]:
    """The diagonal blocks with the decay of every pair as it stands, which no gate can overflow."""
    causal = jnp.tril(jnp.ones((STRIP, STRIP), bool))[:, :, None]
    gap = G[:, :, :, None, :] - G[:, :, None, :, :]
    pair = k[:, :, None] * jnp.exp2(jnp.where(causal, gap, -jnp.inf))
    return [jnp.sum(row[:, :, :, None] * pair, -1) for row in rows]


def pair_scores(
    rows: tuple[jax.Array, ...], k: jax.Array, G: jax.Array, gate: Gate
) -> list[jax.Array]:
    """[H, BT, BT] of sum_c rows_ic k_jc 2^(G_ic - G_jc) for i >= j; garbage above the diagonal.

    rows, k, G: [H, BT, K] fp32, G <= 0 and falling. Left of a diagonal block of STRIP rows the
    decay factors about the G before the block into two powers <= 1, safe for every gate. Only the
    diagonal blocks differ: GEMMs where the gate is bounded, pair by pair where it is not.
    """
    H, BT, K = k.shape
    split = (H, BT // STRIP, STRIP, K)
    before = jnp.pad(G[:, STRIP - 1 : -1 : STRIP], ((0, 0), (1, 0), (0, 0)))
    local = G.reshape(split) - before[:, :, None]
    blocks = tuple(row.reshape(split) for row in rows)
    k_blocks = k.reshape(split)
    if gate.is_bounded:
        diagonal = _diagonal_bounded(blocks, k_blocks, local, gate.lower_bound)
    else:
        diagonal = _diagonal_any_gate(blocks, k_blocks, local)
    row_factor = jnp.exp2(local)
    scores: list[list[jax.Array]] = [[] for _ in rows]
    for s in range(BT // STRIP):
        start = s * STRIP
        column = k[:, :start] * jnp.exp2(before[:, s, None] - G[:, :start])
        for done, block, on_diagonal in zip(scores, blocks, diagonal, strict=True):
            left = _dot("hik,hjk->hij", block[:, s] * row_factor[:, s], column)
            right = jnp.zeros((H, STRIP, BT - start - STRIP), jnp.float32)
            done.append(jnp.concatenate([left, on_diagonal[:, s], right], axis=2))
    return [jnp.concatenate(done, axis=1) for done in scores]


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
    attention, L = pair_scores((q, k_beta), k, G, gate)
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
