"""Puts a point of the ladder together: checks it, plans the packing, chains its kernels."""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from kda_tpu.errors import KdaArgumentError
from kda_tpu.gate import Gate
from kda_tpu.inputs import KdaInputs
from kda_tpu.interface import Bound, PrefillFn, resolve_scale
from kda_tpu.ladder import mxu_port
from kda_tpu.ladder.dots import Dots
from kda_tpu.ladder.flat_grid import FlatGrid, flat_grid, flat_recurrence, keep_empty
from kda_tpu.ladder.fuse import fused_intra, fused_recurrence
from kda_tpu.ladder.head_block import HEAD_LOOPS, head_block
from kda_tpu.ladder.safe_gate import exponent_shift
from kda_tpu.ladder.unified_layout import to_heads, to_tokens, zero_tail
from kda_tpu.ladder.vmem import SCOPED_VMEM_BYTES, HeadBlockShape, head_block_vmem
from kda_tpu.layout import CHUNK, PaddedLayout, check_lengths, gate_pad, padded_layout
from kda_tpu.original.gate_cumsum import gate_cumsum
from kda_tpu.original.intra import intra as pairwise_intra
from kda_tpu.original.output import output
from kda_tpu.original.packing import gather, scatter
from kda_tpu.original.recurrence import recurrence
from kda_tpu.switches import Switches

# Multiples of the strip whose solve and exponents were checked.
CHUNKS = (32, 64, 128)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PaddedPlan:
    """The plan of every rung below head_block."""

    layout: PaddedLayout
    flat: FlatGrid


@dataclass(frozen=True)
class Static:
    """What a rung is compiled for besides shapes.

    aligned: every length is a multiple of the chunk; has_empty: a length is 0, under flat_grid.
    max_chunks: of the longest sequence, 0 under flat_grid, which does not depend on it.
    """

    switches: Switches
    gate: Gate
    scale: float
    chunk: int
    aligned: bool
    has_empty: bool
    max_chunks: int
    interpret: Any
    head_loop: str
    interleaved_heads: int


def _dots(inputs: KdaInputs) -> Dots:
    return Dots(exact=inputs.q.dtype == jnp.float32)


def _rows_in_chunks(beta: jax.Array, layout: PaddedLayout, aligned: bool) -> jax.Array:
    """beta [1, T, H] as fp32 [P, H], zero at padding.

    The one input small enough to gather at any rung; its rows are tiled, so a window of it cannot
    begin at any token.
    """
    rows = beta[0].astype(jnp.float32)
    if aligned:
        return rows[: layout.token_of_slot.shape[0]]
    return rows.at[layout.token_of_slot].get(mode="fill", fill_value=0.0)


def _beta(beta: jax.Array, chunk: int) -> jax.Array:
    """[H, P] to a row a chunk, [H, C, 1, BT]."""
    return beta.reshape(beta.shape[0], -1, 1, chunk)


def _with_empty(
    static: Static, final_state: jax.Array, inputs: KdaInputs, layout: PaddedLayout
) -> jax.Array:
    if not static.has_empty:  # a pass over every state, 0.2 ms for 64 sequences of 24 heads
        return final_state
    return keep_empty(final_state, inputs.initial_state, layout.chunk_count)


def _four_kernels(static: Static, inputs: KdaInputs, plan: PaddedPlan) -> tuple[jax.Array, ...]:
    """``original``, or ``mxu_port`` where safe_gate is on."""
    layout, how = plan.layout, {"chunk": static.chunk, "interpret": static.interpret}
    q, k, v = (gather(x, layout, 0.0) for x in (inputs.q, inputs.k, inputs.v))
    g = gather(inputs.g, layout, gate_pad(static.gate))
    beta = _beta(gather(inputs.beta.astype(jnp.float32), layout, 0.0), static.chunk)
    G = gate_cumsum(g, inputs.A_log, inputs.dt_bias, layout.chunks.valid, gate=static.gate, **how)
    if static.switches.safe_gate:
        found = mxu_port.intra(q, k, v, G, beta, gate=static.gate, dots=_dots(inputs), **how)
    else:
        found = pairwise_intra(q, k, v, G, beta, **how)
    A, u, w, kg, decay = found
    h, v_new, final_state = recurrence(
        w, u, kg, decay, inputs.initial_state, layout.first_chunk, layout.chunk_count,
        max_chunks=static.max_chunks, **how,
    )  # fmt: skip
    o = output(q, G, A, h, v_new, scale=static.scale, **how)
    return scatter(o, layout, inputs.q.shape[1]), final_state


def _two_kernels(static: Static, inputs: KdaInputs, plan: PaddedPlan) -> tuple[jax.Array, ...]:
    """``fused``, ``unified`` and ``flat``."""
    layout, switches, tokens = plan.layout, static.switches, inputs.q.shape[1]
    how = {"dots": _dots(inputs), "chunk": static.chunk, "interpret": static.interpret}
    pads = (0.0, 0.0, 0.0, gate_pad(static.gate))
    arrays = (inputs.q, inputs.k, inputs.v, inputs.g)
    move = {"chunk": static.chunk, "aligned": static.aligned, "interpret": static.interpret}
    if switches.unified_layout:
        q, k, v, g = to_heads(arrays, pads, layout, **move)
        back = functools.partial(to_tokens, **move)
    else:
        q, k, v, g = (gather(x, layout, pad) for x, pad in zip(arrays, pads, strict=True))
        back = scatter
    beta = _beta(_rows_in_chunks(inputs.beta, layout, static.aligned).T, static.chunk)
    prepared = fused_intra(
        q, k, g, beta, inputs.A_log, inputs.dt_bias, layout.chunks.valid,
        gate=static.gate, safe_gate=switches.safe_gate, aligned=static.aligned, **how,
    )  # fmt: skip
    how |= {"scale": static.scale, "out_dtype": inputs.q.dtype}
    if not switches.flat_grid:
        o, final_state = fused_recurrence(
            prepared, v, beta, inputs.initial_state, layout.first_chunk, layout.chunk_count,
            max_chunks=static.max_chunks, **how,
        )  # fmt: skip
        return back(o, layout, tokens), final_state
    o, final_state = flat_recurrence(prepared, v, beta, inputs.initial_state, plan.flat, **how)
    return back(o, layout, tokens), _with_empty(static, final_state, inputs, layout)


def _one_kernel(static: Static, inputs: KdaInputs, plan: PaddedPlan) -> tuple[jax.Array, ...]:
    """``optimized``."""
    layout = plan.layout
    beta = _rows_in_chunks(inputs.beta, layout, static.aligned)
    o, final_state = head_block(
        inputs,
        beta.reshape(-1, static.chunk, beta.shape[-1]),
        layout.chunks,
        plan.flat,
        gate=static.gate,
        safe_gate=static.switches.safe_gate,
        scale=static.scale,
        dots=_dots(inputs),
        chunk=static.chunk,
        aligned=static.aligned,
        head_loop=static.head_loop,
        interleaved_heads=static.interleaved_heads,
        interpret=static.interpret,
    )
    o = zero_tail(o, layout.slot_of_token.shape[0])
    return o[None], _with_empty(static, final_state, inputs, layout)


def _fits(static: Static, inputs: KdaInputs) -> bool:
    """Binding did not know the dtype, and fp32 windows are twice as large."""
    _, _, heads, K = inputs.q.shape
    V = inputs.v.shape[-1]
    shape = HeadBlockShape(heads, K, V, static.chunk, static.switches.safe_gate)
    itemsize = max(inputs.q.dtype.itemsize, inputs.g.dtype.itemsize)
    return head_block_vmem(shape, itemsize).fits


@functools.cache
def prefill(static: Static) -> PrefillFn:
    """The function of one static configuration; the same object every time."""

    def kernels(inputs: KdaInputs, plan: PaddedPlan) -> tuple[jax.Array, ...]:
        if not static.switches.fuse:
            return _four_kernels(static, inputs, plan)
        if static.switches.head_block and _fits(static, inputs):
            return _one_kernel(static, inputs, plan)
        return _two_kernels(static, inputs, plan)

    def ladder(inputs: KdaInputs, plan: PaddedPlan) -> tuple[jax.Array, jax.Array]:
        if plan.layout.token_of_slot.shape[0] == 0:
            return jnp.zeros_like(inputs.v, inputs.q.dtype), inputs.initial_state
        return kernels(inputs, plan)

    return ladder


def bind_ladder(
    switches: Switches,
    lengths: Sequence[int],
    gate: Gate,
    *,
    heads: int,
    head_dim_k: int,
    head_dim_v: int,
    scale: float | None = None,
    interpret: Any = False,
    chunk: int = CHUNK,
    head_loop: str = "interleaved",
) -> Bound:
    """See interface.Bind. switches: the point of the ladder, see Switches.for_case.

    chunk: tokens, 32, 64 or 128; head_loop: of head_block, see there. head_block with safe_gate
    falls back to flat_grid where its heads do not fit VMEM; without safe_gate it was asked for by
    name, and is refused with a KdaArgumentError that gives the figures.
    """
    if chunk not in CHUNKS:
        raise KdaArgumentError(f"chunk is {chunk}: use one of {', '.join(map(str, CHUNKS))}")
    if head_loop not in HEAD_LOOPS:
        raise KdaArgumentError(f"head_loop is {head_loop!r}: use one of {', '.join(HEAD_LOOPS)}")
    switches = switches.for_case(gate, heads)
    if switches.safe_gate:
        exponent_shift(gate)  # refuses before anything is traced
    shape = HeadBlockShape(heads, head_dim_k, head_dim_v, chunk, switches.safe_gate)
    if switches.head_block and not (wanted := head_block_vmem(shape, 2)).fits:
        if not switches.safe_gate:
            raise KdaArgumentError(
                f"head_block without safe_gate at {heads} heads wants {wanted.total / 1e6:.1f} MB "
                f"of VMEM ({wanted.decays / 1e6:.1f} MB of it pairwise decays), over the "
                f"{SCOPED_VMEM_BYTES / 2**20:.0f} MiB a kernel has: switch safe_gate on, or "
                "head_block off"
            )
        switches = dataclasses.replace(switches, head_block=False)
    scale = resolve_scale(scale, head_dim_k)
    aligned = switches.fuse and not (check_lengths(lengths) % chunk).any()
    layout = padded_layout(lengths, chunk)
    static = Static(
        switches=switches,
        gate=gate,
        scale=scale,
        chunk=chunk,
        aligned=bool(aligned),
        has_empty=switches.flat_grid and not layout.chunk_count.all(),
        max_chunks=0 if switches.flat_grid else int(layout.chunk_count.max()),
        interpret=interpret,
        head_loop=head_loop,
        interleaved_heads=shape.interleaved_heads,
    )
    plan = PaddedPlan(layout, flat_grid(layout.chunks))
    return Bound(prefill(static), plan, len(layout.token_of_slot))
