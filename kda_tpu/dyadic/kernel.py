"""The kernel: three tiles in flight, each at another third of the work.

In step c of the grid tile c is prepared, the L of tile c - 1 is inverted and tile c - 2 meets the
state. The three do not depend on one another, so their dependent chains fill each other's waits,
and each leans on another unit. Between steps everything lies in VMEM scratch. What tile c leaves
there takes the place of what tile c - 2 or c - 1 left: within a step the older tile's stage that
reads is written before the younger one's that writes.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kda_tpu.dyadic.exponents import KEY, LANES
from kda_tpu.dyadic.order import after
from kda_tpu.dyadic.plan import ENDS, SEQUENCE, STARTS, TOKEN_START, VALID, Tiles
from kda_tpu.dyadic.solve import inverse
from kda_tpu.dyadic.state import Read, read, side_by_side, three_parts
from kda_tpu.dyadic.strips import GateRows, iota, pack, prepare, unpack
from kda_tpu.dyadic.vmem import Shape, vmem_limit
from kda_tpu.dyadic.writer import TileWriter
from kda_tpu.fused import Fused, normalised
from kda_tpu.gate import LOG2_E, Gate
from kda_tpu.inputs import KdaInputs
from kda_tpu.ladder.head_block import column
from kda_tpu.ladder.native_layout import load_pair, store_pair
from kda_tpu.ladder.stages import Stages, start_in_rounds, together

# The last tile is prepared in step C - 1 and written in step C + 1.
STEPS_BEHIND = 2


@dataclass(frozen=True)
class Scratch:
    """What lies between steps, by head; indexed by parity first where two tiles hold it.

    attention, rest, rows: of strips.Prepared, as words; values: beta v times 2^KEY, [R, V] fp32;
    decay, carry: [H, K] fp32; lower, inverse: before and after the solve.
    """

    attention: Any
    rest: Any
    rows: Any
    values: Any
    decay: Any
    carry: Any
    lower: Any
    inverse: Any

    @staticmethod
    def shapes(shape: Shape) -> "Scratch":
        H, K, V, R = shape.heads, shape.head_dim_k, shape.head_dim_v, shape.rows

        def words(*dims: int) -> Any:
            return pltpu.VMEM(dims, jnp.uint32)

        def fp32(*dims: int) -> Any:
            return pltpu.VMEM(dims, jnp.float32)

        return Scratch(
            attention=words(2, H, R // 2, LANES),
            rest=words(2, H, K // 2, shape.rest_width),
            rows=words(2, H, 2 * R, K),
            values=fp32(2, H, R, V),
            decay=fp32(2, H, K),
            carry=fp32(2, H, K),
            lower=fp32(H, R, LANES),
            inverse=words(H, R // 2, LANES),
        )

    def in_order(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())


def tiles_call(
    inputs: KdaInputs,
    tiles: Tiles,
    shape: Shape,
    before: tuple[jax.Array, jax.Array] | None,
    *,
    gate: Gate,
    scale: float,
    fused: Fused,
    interpret: Any,
) -> tuple[jax.Array, jax.Array]:
    """o [T, H, V] and final_state [N, H, K, V] fp32 of the sequences that ``tiles`` are made of.

    The rest is as in ``before``, whose memory is taken over, or undefined.
    """
    T = inputs.q.shape[1]
    H, K, V, R = shape.heads, shape.head_dim_k, shape.head_dim_v, shape.rows
    N, C = inputs.initial_state.shape[0], tiles.count
    dtype = inputs.q.dtype

    def kernel(
        table_ref, q_ref, k_ref, v_ref, g_ref, beta_ref, rate_ref, shift_ref, initial_ref, *refs,
    ) -> None:  # fmt: skip
        o_ref, final_ref, window_ref, semaphores, state_ref, *kept = refs[2 * bool(before) :]
        scratch = Scratch(*kept)
        step = pl.program_id(0)
        parity = jax.lax.rem(step, 2)
        now, last = jnp.minimum(step, C - 1), jnp.maximum(step - STEPS_BEHIND, 0)
        valid = None if shape.full else table_ref[VALID * C + now]
        fresh = table_ref[STARTS * C + now] == 1
        carry_in = scratch.carry[1 - parity]
        carry_last = scratch.carry[parity]
        beta = beta_ref[...]
        if fused.beta_logits:
            beta = jax.nn.sigmoid(beta)
        beta = beta * 2.0**KEY
        if valid is not None:  # a tile without tokens holds another sequence's, maybe NaN
            beta = jnp.where(valid > 0, beta, 0.0)
        writer = TileWriter(
            o_ref,
            window_ref,
            semaphores,
            _Field(table_ref, TOKEN_START * C),
            _Field(table_ref, VALID * C),
            STEPS_BEHIND,
        )
        out = writer.slot()

        found_of_middle: list[jax.Array | None] = [None]

        def prepare_pair(pair: int) -> Stages[None]:
            q, k, v, g = (
                load_pair(ref, pair, interpret=interpret) for ref in (q_ref, k_ref, v_ref, g_ref)
            )
            # What the middle head has of its state by now: see order.py.
            known = found_of_middle[min(pair // shape.pairs_at_once, 2)]
            heads = (
                prepare_head(2 * pair + n, known, *(x[n] for x in (q, k, v, g))) for n in (0, 1)
            )
            yield from together(heads)

        def prepare_head(
            h: int,
            known: jax.Array | None,
            q: jax.Array,
            k: jax.Array,
            v: jax.Array,
            g: jax.Array,
        ) -> Stages[None]:
            row = slice(h, h + 1)
            if valid is not None:
                present = iota((R, 1), 0) < valid
                k, v = jnp.where(present, k, 0.0), jnp.where(present, v, 0.0)
            if fused.normalise_qk:
                q, k = normalised(q), normalised(k)
            own_beta = column(beta, h)
            found = yield from prepare(
                gate,
                GateRows(after(rate_ref[row, :], known, step), shift_ref[row, :]),
                scale,
                q,
                k,
                g,
                own_beta,
                jnp.where(fresh, 0.0, carry_in[row]),
                valid,
            )
            scratch.values[parity, h] = own_beta * v
            scratch.rows[parity, h] = pack(found.rows)
            scratch.rest[parity, h] = pack(found.rest)
            scratch.attention[parity, h] = pack(found.attention)
            scratch.decay[parity, row, :] = found.decay
            scratch.carry[parity, row, :] = found.carry
            scratch.lower[h] = found.lower

        def solve_group(group: int) -> Stages[None]:
            heads = range(group * shape.group, (group + 1) * shape.group)
            place = iota((R, LANES), 1) // R
            lower = scratch.lower[heads[-1]]
            for h in reversed(heads[:-1]):
                lower = jnp.where(place == h % shape.group, scratch.lower[h], lower)
            solved = yield from inverse(lower)
            for h in heads:
                scratch.inverse[h] = pack(side_by_side(solved, h % shape.group))

        if shape.carries_state:

            @pl.when(table_ref[STARTS * C + last] == 1)
            def _() -> None:
                state_ref[...] = initial_ref[...]

        # What follows is one block to the compiler, which then fills this transpose's waits too.
        decay_columns = scratch.decay[parity].T  # [K, H]
        end_columns = None if shape.carries_state else jnp.exp2(carry_last).T

        def advance_pair(pair: int) -> Stages[None]:
            heads = (2 * pair, 2 * pair + 1)
            old = state_ref if shape.carries_state else initial_ref
            reads: dict[int, Read] = {}
            values: dict[int, jax.Array] = {}
            outs: list[jax.Array] = []
            for h in heads:
                reads[h] = read(unpack(scratch.rows[parity, h]), old[h])
            if H // 2 in heads:
                found_of_middle.append(reads[H // 2].keys[:1, :LANES])
            yield
            for h in heads:
                right = scratch.values[parity, h] - reads[h].keys
                values[h] = three_parts(unpack(scratch.inverse[h]), right)
            if H // 2 in heads:
                found_of_middle.append(values[H // 2][:1, :LANES])
            yield
            for h in heads:
                attention = unpack(scratch.attention[parity, h])[:, : shape.rest_width]
                left = jnp.concatenate([attention, unpack(scratch.rest[parity, h])])
                found = three_parts(left, values[h])
                outs.append(reads[h].output + found[:R])
                new = decay_columns[:, h : h + 1] * old[h] + found[R:]
                if end_columns is None:
                    state_ref[h] = new
                else:
                    final_ref[h] = end_columns[:, h : h + 1] * new
            yield
            store_pair(out, heads[0], *outs, interpret=interpret)

        pairs = range(H // 2)
        start_in_rounds(
            [(0, advance_pair(pair)) for pair in pairs]
            + [(0, solve_group(group)) for group in range(H // shape.group)]
            + [(pair // shape.pairs_at_once, prepare_pair(pair)) for pair in pairs]
        )
        writer.send()

        if shape.carries_state:

            @pl.when((table_ref[ENDS * C + last] == 1) & (step >= STEPS_BEHIND))
            def _() -> None:
                columns = jnp.exp2(carry_last).T
                for h in range(H):
                    final_ref[h] = columns[:, h : h + 1] * state_ref[h]

    def window(width: int) -> pl.BlockSpec:
        return pl.BlockSpec(
            (pl.Element(R, (0, R - 1)), pl.Element(H), pl.Element(width)),
            lambda c, table: (table[TOKEN_START * C + jnp.minimum(c, C - 1)], 0, 0),
        )

    everything = pl.BlockSpec((H, K), lambda c, table: (0, 0))
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    per_state = pl.BlockSpec(
        (None, H, K, V),
        lambda c, table: (table[SEQUENCE * C + jnp.maximum(c - STEPS_BEHIND, 0)], 0, 0, 0),
    )
    rate, shift = _gate_rows(gate, inputs)
    beta = _beta_of_rows(inputs.beta, tiles, shape).reshape(C, R, H)
    # Or XLA copies what is small enough into VMEM first, for nothing.
    in_hbm = [
        pltpu.with_memory_space_constraint(x[0], pltpu.HBM) if not interpret else x[0]
        for x in (inputs.q, inputs.k, inputs.v, inputs.g)
    ]
    first_alias = 9  # of the operands below
    return pl.pallas_call(
        kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(C + STEPS_BEHIND,),
            in_specs=[
                window(K),
                window(K),
                window(V),
                window(K),
                pl.BlockSpec((None, R, H), lambda c, table: (jnp.minimum(c, C - 1), 0, 0)),
                everything,
                everything,
                per_state,
                *([anywhere, anywhere] if before else []),
            ],
            out_specs=[anywhere, per_state],
            scratch_shapes=[
                pltpu.VMEM((2, R, H, V), dtype),
                pltpu.SemaphoreType.DMA((2,)),
                pltpu.VMEM((H if shape.carries_state else 1, K, V), jnp.float32),
                *Scratch.shapes(shape).in_order(),
            ],
        ),
        out_shape=[
            jax.ShapeDtypeStruct((T, H, V), dtype),
            jax.ShapeDtypeStruct((N, H, K, V), jnp.float32),
        ],
        input_output_aliases={first_alias: 0, first_alias + 1: 1} if before else {},
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",),
            vmem_limit_bytes=vmem_limit(shape, inputs.g.dtype.itemsize),
            # Windows and copies are cut to the arrays by their specs and by the writer.
            disable_bounds_checks=True,
        ),
        interpret=interpret,
        name="kda_dyadic" if shape.carries_state else "kda_dyadic_short",
    )(
        tiles.table, *in_hbm, beta, rate, shift, inputs.initial_state, *(before or ()),
    )  # fmt: skip


class _Field:
    """One field of a table of scalars, as the table it would be alone."""

    def __init__(self, table: Any, first: int) -> None:
        self._table, self._first = table, first

    def __getitem__(self, tile: Any) -> Any:
        return self._table[self._first + tile]


def _gate_rows(gate: Gate, inputs: KdaInputs) -> tuple[jax.Array, jax.Array]:
    """The constants of strips.GateRows of all heads, [H, K] fp32 each."""
    shape = inputs.dt_bias.shape
    if not gate.is_raw:
        return jnp.full(shape, LOG2_E, jnp.float32), jnp.zeros(shape, jnp.float32)
    rate = -jnp.exp(inputs.A_log.astype(jnp.float32))[:, None] * LOG2_E
    rate = jnp.broadcast_to(rate, shape)
    bound = np.log2(-gate.lower_bound * LOG2_E)
    return rate, rate * inputs.dt_bias.astype(jnp.float32) - bound


def _beta_of_rows(beta: jax.Array, tiles: Tiles, shape: Shape) -> jax.Array:
    """beta [1, T, H] by row of the tiles, fp32; padding repeats its tile's last.

    The one input small enough to gather: its rows are tiled in HBM, so a window of it cannot begin
    at any token.
    """
    rows = beta[0].astype(jnp.float32)
    if shape.in_a_row:
        return rows[: shape.rows * tiles.count]
    return rows.at[tiles.token_of_row].get(mode="promise_in_bounds")
