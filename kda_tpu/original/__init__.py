"""``original``: the seed baseline as four Pallas TPU kernels, with gather and scatter between.

Tokens are gathered into whole chunks and turned to [H, P, D]; then (a) gate and chunk-local
cumsum, (b) intra-chunk, (c) recurrence, (d) output; then the output is turned and scattered back.
Every later rung of the ladder removes some of this. It takes both gates the same way: its decays
are spelt out pair by pair, so there is no bounded-gate fast path to take.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from kda_tpu.gate import Gate
from kda_tpu.inputs import KdaCase, KdaInputs
from kda_tpu.interface import Bound, Implementation, PrefillFn, Support, resolve_scale
from kda_tpu.layout import CHUNK, PaddedLayout, gate_pad, padded_layout
from kda_tpu.original.gate_cumsum import gate_cumsum
from kda_tpu.original.intra import intra
from kda_tpu.original.output import output
from kda_tpu.original.packing import gather, scatter
from kda_tpu.original.recurrence import recurrence

# The largest head dims for which the ahead-of-time compile for TPU v6e was checked (bf16, fp32).
MAX_HEAD_DIM = 512


@functools.cache
def _prefill(gate: Gate, scale: float, max_chunks: int, interpret: Any) -> PrefillFn:
    def original(inputs: KdaInputs, layout: PaddedLayout) -> tuple[jax.Array, jax.Array]:
        initial_state = inputs.initial_state.astype(jnp.float32)
        if max_chunks == 0:
            return jnp.zeros_like(inputs.v, inputs.q.dtype), initial_state
        how = {"chunk": CHUNK, "interpret": interpret}
        q, k, v = (gather(x, layout, 0.0) for x in (inputs.q, inputs.k, inputs.v))
        g = gather(inputs.g, layout, gate_pad(gate))
        beta = gather(inputs.beta.astype(jnp.float32), layout, 0.0)
        beta = beta.reshape(beta.shape[0], -1, 1, CHUNK)
        G = gate_cumsum(g, inputs.A_log, inputs.dt_bias, layout.chunks.valid, gate=gate, **how)
        A, u, w, kg, decay = intra(q, k, v, G, beta, **how)
        h, v_new, final_state = recurrence(
            w, u, kg, decay, initial_state, layout.first_chunk, layout.chunk_count,
            max_chunks=max_chunks, **how,
        )  # fmt: skip
        o = output(q, G, A, h, v_new, scale=scale, **how)
        return scatter(o, layout, inputs.q.shape[1]), final_state

    return original


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
    """See interface.Bind. The plan is a PaddedLayout; the longest sequence's chunks are static."""
    layout = padded_layout(lengths)
    fn = _prefill(gate, resolve_scale(scale, head_dim_k), int(layout.chunk_count.max()), interpret)
    return Bound(fn, layout, len(layout.token_of_slot))


def can_run(platform: str, case: KdaCase) -> Support:
    """A TPU, and head dims that are known to fit it."""
    if platform == "cpu":
        return Support(
            False,
            "Pallas TPU kernel: runs on a CPU only in interpret mode, which is never timed",
        )
    if platform != "tpu":
        return Support(False, f"Pallas TPU kernel: does not run on {platform}")
    for name in ("head_dim_k", "head_dim_v"):
        if getattr(case, name) > MAX_HEAD_DIM:
            return Support(
                False, f"{name} is {getattr(case, name)}: compiled for v6e up to {MAX_HEAD_DIM}"
            )
    return Support(True)


IMPLEMENTATION = Implementation(
    name="original",
    summary="four Pallas TPU kernels (gate+cumsum, intra, recurrence, output), gather and scatter",
    can_run=can_run,
    bind=bind,
)
