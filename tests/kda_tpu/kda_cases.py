"""What the KDA tests share: running any implementation, the oracle's answers, a float64 loop."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np

from kda_tpu import IMPLEMENTATIONS, Gate, KdaCase, KdaInputs, kda_reference, make_inputs

# Small heads, K != V always, so that a state stored V x K cannot pass.
SMALL = {"heads": 2, "head_dim_k": 32, "head_dim_v": 16}
MIXED = (30, 0, 130, 64, 210)
BOUNDED = Gate()
UNBOUNDED = Gate("unbounded")
ACTIVATED = Gate("activated")
PROMISED = Gate("activated", -5.0)
GATES = {
    "bounded": BOUNDED,
    "unbounded": UNBOUNDED,
    "activated": ACTIVATED,
    "activated-promised": PROMISED,
}
# For programs that run once: leave LLVM's passes out.
_FAST_COMPILE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def small_case(lengths: Sequence[int], gate: Gate = BOUNDED, **changes) -> KdaCase:
    """A case with small heads in fp32, where errors have nowhere to hide."""
    return KdaCase(tuple(lengths), **{**SMALL, "dtype": "float32", "gate": gate, **changes})


@functools.cache
def inputs_of(case: KdaCase) -> KdaInputs:
    return make_inputs(case)


@functools.cache
def oracle_of(case: KdaCase) -> tuple[jax.Array, jax.Array]:
    return kda_reference(inputs_of(case), case.lengths, case.gate)


def needs_interpreter(name: str) -> bool:
    """True for Pallas TPU kernels on this machine's CPU."""
    case = KdaCase((64,))
    return not IMPLEMENTATIONS[name].can_run(jax.default_backend(), case).ok


@functools.cache
def _jitted(fn, fast_compile: bool):
    return jax.jit(fn, compiler_options=_FAST_COMPILE if fast_compile else None)


def run(
    name: str,
    inputs: KdaInputs,
    lengths: Sequence[int],
    gate: Gate,
    scale: float | None = None,
) -> tuple[jax.Array, jax.Array]:
    """o and final_state of one implementation, jitted; in interpret mode where it must be.

    What most tests share, MIXED under K3's gate, is compiled as a user's would be; the rest
    quickly.
    """
    interpreted = needs_interpreter(name)
    _, _, heads, head_dim_k = inputs.q.shape
    bound = IMPLEMENTATIONS[name].bind(
        lengths,
        gate,
        heads=heads,
        head_dim_k=head_dim_k,
        head_dim_v=inputs.v.shape[3],
        scale=scale,
        interpret=interpreted,
    )
    fast_compile = interpreted or (tuple(lengths), gate) != (MIXED, BOUNDED)
    return _jitted(bound.fn, fast_compile)(inputs, bound.plan)


def with_tail(inputs: KdaInputs, tokens: int, value: float) -> KdaInputs:
    """The same inputs with that many more tokens of ``value`` behind the packing."""

    def extend(x: jax.Array) -> jax.Array:
        widths = ((0, 0), (0, tokens)) + ((0, 0),) * (x.ndim - 2)
        return jax.numpy.pad(x, widths, constant_values=value)

    names = ("q", "k", "v", "g", "beta")
    return dataclasses.replace(inputs, **{name: extend(getattr(inputs, name)) for name in names})


def replace_tokens(inputs: KdaInputs, tokens: slice, other: KdaInputs | float) -> KdaInputs:
    """q, k, v, g and beta of some tokens taken from other inputs, or set to one value."""
    changed = {}
    for name in ("q", "k", "v", "g", "beta"):
        new = getattr(other, name)[:, tokens] if isinstance(other, KdaInputs) else other
        changed[name] = getattr(inputs, name).at[:, tokens].set(new)
    return dataclasses.replace(inputs, **changed)


def recurrence_float64(
    inputs: KdaInputs, lengths: Sequence[int], gate: Gate, scale: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The definition again, as a numpy loop in float64 that shares no line with the package."""
    q, k, v, g, beta, A_log, dt_bias, initial = (
        np.asarray(x, np.float64)
        for x in (
            inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta, inputs.A_log, inputs.dt_bias,
            inputs.initial_state,
        )
    )  # fmt: skip
    if gate.kind == "activated":
        decay = np.exp(g[0])
    else:
        x = g[0] + dt_bias
        rate = np.exp(A_log)[None, :, None]
        if gate.kind == "bounded":
            decay = np.exp(gate.lower_bound / (1 + np.exp(-rate * x)))
        else:
            decay = np.exp(-rate * (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    o, states = np.zeros(v.shape), initial.copy()
    t = 0
    for n, length in enumerate(lengths):
        for _ in range(length):
            S = decay[t][:, :, None] * states[n]
            error = v[0, t] - np.matvec(np.swapaxes(S, 1, 2), k[0, t])
            S = S + (beta[0, t][:, None] * k[0, t])[:, :, None] * error[:, None, :]
            o[0, t] = scale * np.matvec(np.swapaxes(S, 1, 2), q[0, t])
            states[n] = S
            t += 1
    return o, states
