"""The oracle: the KDA recurrence, one token at a time, in fp32 at the highest matmul precision."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from kda_tpu.gate import Gate, log_decay
from kda_tpu.inputs import KdaInputs

_HIGHEST = jax.lax.Precision.HIGHEST


def _step(
    state: jax.Array, token: tuple[jax.Array, ...], scale: float
) -> tuple[jax.Array, jax.Array]:
    """One token of every sequence: state [N, H, K, V]; q, k, log decay [N, H, K]; v [N, H, V]."""
    q, k, v, decay_log, beta = token
    decayed = jnp.exp(decay_log)[..., None] * state
    predicted = jnp.einsum("nhkv,nhk->nhv", decayed, k, precision=_HIGHEST)
    correction = beta[..., None] * (v - predicted)
    updated = decayed + k[..., :, None] * correction[..., None, :]
    o = scale * jnp.einsum("nhkv,nhk->nhv", updated, q, precision=_HIGHEST)
    return updated, o


@functools.partial(jax.jit, static_argnames=("gate", "scale"))
def _side_by_side(
    inputs: KdaInputs, token: jax.Array, present: jax.Array, gate: Gate, scale: float
) -> tuple[jax.Array, jax.Array]:
    """token, present: [L, N], the packed index of step l of sequence n, and whether it exists."""

    def by_step(x: jax.Array) -> jax.Array:
        """[1, T, ...] to [L, N, ...]. Absent tokens are zero: a step of those is the identity."""
        rows = x[0].astype(jnp.float32)[token]
        return jnp.where(present.reshape(present.shape + (1,) * (rows.ndim - 2)), rows, 0.0)

    decay_log = log_decay(gate, inputs.g, inputs.A_log, inputs.dt_bias)
    steps = tuple(map(by_step, (inputs.q, inputs.k, inputs.v, decay_log, inputs.beta)))
    final_state, o = jax.lax.scan(
        lambda s, t: _step(s, t, scale), inputs.initial_state.astype(jnp.float32), steps
    )
    return o, final_state


def kda_reference(
    inputs: KdaInputs, lengths: Sequence[int], gate: Gate, scale: float | None = None
) -> tuple[jax.Array, jax.Array]:
    """o [1, T, H, V] fp32 and final_state [N, H, K, V] fp32, from the definition.

    inputs: as KdaInputs says; lengths: N token counts, zeros allowed, sum(lengths) <= T.
    Per head: S <- diag(e^g) S; S <- S + beta k (v - k^T S)^T; o = scale q^T S after the update;
    scale is K^-0.5 unless given. Rows of o past sum(lengths) are zero. An empty sequence returns
    its initial state.

    All inputs are raised to fp32 first and o is not rounded back, so what is left between an
    implementation and this is that implementation's own error. Sequences run side by side, one
    token of each at a step, padded to the longest: a layout that no implementation shares.
    """
    counts = np.asarray(lengths, dtype=np.int64)
    starts = np.cumsum(counts) - counts
    total = int(counts.sum())
    o = jnp.zeros((*inputs.v.shape[:3], inputs.v.shape[3]), jnp.float32)
    if total == 0:
        return o, inputs.initial_state.astype(jnp.float32)
    # Whole multiples of 64 steps, the rest masked: lengths that differ little share a compilation.
    steps = np.arange(-(-int(counts.max()) // 64) * 64)[:, None]
    present = steps < counts
    token = np.where(present, starts + steps, 0)
    scale = inputs.q.shape[-1] ** -0.5 if scale is None else float(scale)
    out, final_state = _side_by_side(inputs, token, present, gate, scale)
    sequence = np.repeat(np.arange(len(counts)), counts)
    step = np.arange(total) - starts[sequence]
    return o.at[0, :total].set(out[step, sequence]), final_state
