"""Puts ``dyadic`` together: its two kernels, and the ladder where it does not apply."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from kda_tpu.dyadic.exponents import LANES, STRIP
from kda_tpu.dyadic.kernel import tiles_call
from kda_tpu.dyadic.plan import SEQUENCE, TILE, TOKEN_START, VALID, Plan, Tiles, plan
from kda_tpu.dyadic.vmem import MOST_VMEM_BYTES, Shape, vmem_bytes
from kda_tpu.fused import NOTHING, Fused, beforehand, prepared_for
from kda_tpu.gate import Gate
from kda_tpu.inputs import KdaInputs
from kda_tpu.interface import Bound, PrefillFn, resolve_scale
from kda_tpu.ladder.bind import bind_ladder
from kda_tpu.ladder.unified_layout import zero_tail
from kda_tpu.layout import check_lengths
from kda_tpu.switches import HEAD_GROUP, RUNGS


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DyadicPlan:
    """tiles: of this kernel; ladder: the plan of the rung that fp32 inputs run."""

    tiles: Plan
    ladder: Any


@dataclass(frozen=True)
class _Static:
    gate: Gate
    scale: float
    fused: Fused
    full: bool
    packed: int
    interpret: Any
    ladder: PrefillFn


def why_not(gate: Gate, heads: int, head_dim_k: int, head_dim_v: int) -> str | None:
    """Why a call runs the ladder's ``optimized`` instead; None where it does not."""
    if not gate.is_bounded:
        return f"the {gate.kind} gate has no lower bound: a strip's factors could overflow"
    if heads % HEAD_GROUP:
        return f"{heads} heads are no multiple of {HEAD_GROUP}"
    for name, width in (("head_dim_k", head_dim_k), ("head_dim_v", head_dim_v)):
        if width % LANES:
            return f"{name} {width} is no multiple of {LANES}"
    needed = vmem_bytes(Shape(heads, head_dim_k, head_dim_v, TILE), 4)
    if needed > MOST_VMEM_BYTES:
        return f"{heads} heads want {needed / 2**20:.0f} MiB of VMEM"
    return None


def _put_together(
    before: tuple[jax.Array, jax.Array], after: tuple[jax.Array, jax.Array], part: Tiles, rows: int
) -> tuple[jax.Array, jax.Array]:
    """What aliased outputs hold after a second kernel; the interpreter cannot alias windows."""
    (o, final_state), (o_after, final_after) = before, after
    row = jnp.arange(rows)
    token = part.field(TOKEN_START)[:, None] + row
    token = jnp.where(row < part.field(VALID)[:, None], token, o.shape[0])
    mine = jnp.zeros(o.shape[0], bool).at[token].set(True, mode="drop")
    whose = jnp.zeros(final_state.shape[0], bool).at[part.field(SEQUENCE)].set(True)
    return (
        jnp.where(mine[:, None, None], o_after, o),
        jnp.where(whose[:, None, None, None], final_after, final_state),
    )


@functools.cache
def _prefill(static: _Static) -> PrefillFn:
    def kernels(inputs: KdaInputs, tiles: Plan) -> tuple[jax.Array, jax.Array]:
        _, _, heads, K = inputs.q.shape
        dims = (heads, K, inputs.v.shape[-1])
        in_a_row = static.full and not tiles.short.count
        long, short = Shape(*dims, TILE, static.full, in_a_row), Shape(*dims, STRIP)
        found = None
        for part, shape in ((tiles.long, long), (tiles.short, short)):
            if part.count:
                before = None if static.interpret else found
                after = tiles_call(
                    inputs, part, shape, before,
                    gate=static.gate, scale=static.scale, fused=static.fused,
                    interpret=static.interpret,
                )  # fmt: skip
                if static.interpret and found is not None:
                    after = _put_together(found, after, part, shape.rows)
                found = after
        o, final_state = found
        return zero_tail(o, static.packed)[None], final_state

    def dyadic(inputs: KdaInputs, plan: DyadicPlan) -> tuple[jax.Array, jax.Array]:
        if inputs.q.dtype != jnp.bfloat16:  # its operands are bf16 halves, 2^-16 of fp32 at best
            return static.ladder(beforehand(inputs, static.fused), plan.ladder)
        if static.packed == 0:
            return jnp.zeros_like(inputs.v, inputs.q.dtype), inputs.initial_state
        return kernels(inputs, plan.tiles)

    return dyadic


def bind(
    lengths: Sequence[int],
    gate: Gate,
    *,
    heads: int,
    head_dim_k: int,
    head_dim_v: int,
    scale: float | None = None,
    interpret: Any = False,
    fused: Fused = NOTHING,
) -> Bound:
    """See interface.Bind; ``why_not`` names what runs the ladder instead."""
    ladder = bind_ladder(
        RUNGS["optimized"], lengths, gate, heads=heads, head_dim_k=head_dim_k,
        head_dim_v=head_dim_v, scale=scale, interpret=interpret,
    )  # fmt: skip
    if why_not(gate, heads, head_dim_k, head_dim_v) is not None:
        return prepared_for(ladder, fused)
    tiles = plan(lengths)
    static = _Static(
        gate=gate,
        scale=resolve_scale(scale, head_dim_k),
        fused=fused,
        full=bool((tiles.long.field(VALID) == TILE).all()),
        packed=int(check_lengths(lengths).sum()),
        interpret=interpret,
        ladder=ladder.fn,
    )
    rows = TILE * tiles.long.count + STRIP * tiles.short.count
    return Bound(_prefill(static), DyadicPlan(tiles, ladder.plan), rows)
