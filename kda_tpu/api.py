"""``kda_prefill``: check everything up front, choose an implementation, run it."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kda_tpu.errors import KdaArgumentError
from kda_tpu.fused import Fused, prepared_for
from kda_tpu.gate import Gate
from kda_tpu.implementations import IMPLEMENTATIONS
from kda_tpu.inputs import DTYPES, KdaCase, KdaInputs
from kda_tpu.interface import Implementation, PrefillFn

AUTO = "auto"


def _check_array(
    name: str, x: Any, shape: tuple[int | None, ...], dtypes: tuple[str, ...], why: str
) -> None:
    if not isinstance(x, jax.Array | np.ndarray):
        raise KdaArgumentError(f"{name} is a {type(x).__name__}: pass an array {why}")
    fits = len(x.shape) == len(shape) and all(
        want is None or have == want for have, want in zip(x.shape, shape, strict=False)
    )
    if not fits:
        want = ", ".join("any" if n is None else str(n) for n in shape)
        raise KdaArgumentError(f"{name} has shape {tuple(x.shape)}: must be ({want}), {why}")
    if x.dtype.name not in dtypes:
        raise KdaArgumentError(f"{name} has dtype {x.dtype.name}: must be {' or '.join(dtypes)}")


def _lengths(cu_seqlens: Any, tokens: int) -> tuple[int, ...]:
    """The sequence lengths; cu_seqlens must be concrete, because the packing is planned on it."""
    if isinstance(cu_seqlens, jax.core.Tracer):
        raise KdaArgumentError(
            "cu_seqlens is traced: the packing is planned on the host, so close over a concrete "
            "array, or bind an implementation outside jit"
        )
    _check_array("cu_seqlens", cu_seqlens, (None,), ("int32",), "the N + 1 token offsets")
    offsets = np.asarray(cu_seqlens)
    if offsets.size < 2:
        raise KdaArgumentError(
            f"cu_seqlens has {offsets.size} entries: N sequences need N + 1, at least 2"
        )
    if offsets[0] != 0:
        raise KdaArgumentError(f"cu_seqlens[0] is {offsets[0]}: must be 0")
    steps = np.diff(offsets.astype(np.int64))
    if steps.min() < 0:
        at = int(np.argmin(steps))
        raise KdaArgumentError(
            f"cu_seqlens falls from {offsets[at]} to {offsets[at + 1]} at entry {at + 1}: "
            "must be non-decreasing"
        )
    if offsets[-1] != tokens:
        raise KdaArgumentError(
            f"cu_seqlens ends at {offsets[-1]} but q has {tokens} tokens: must be equal"
        )
    return tuple(int(n) for n in steps)


def _check_activated(g: Any, gate: Gate) -> None:
    """A promised bound that does not hold would overflow silently, so it is looked at here."""
    if isinstance(g, jax.core.Tracer) or g.size == 0:
        return
    if gate.lower_bound is not None and not bool(jnp.all(g >= gate.lower_bound)):
        raise KdaArgumentError(
            f"g has log decays that are not >= {gate.lower_bound}, as gate.lower_bound promises: "
            "use Gate('activated') without a bound"
        )
    if not bool(jnp.all(g <= 0)):
        raise KdaArgumentError("g has values that are not <= 0: an activated gate is a log decay")


@functools.cache
def _jitted(fn: PrefillFn) -> PrefillFn:
    return jax.jit(fn)


class Choice(NamedTuple):
    """Which implementation runs a case, and why that one."""

    implementation: Implementation
    reason: str


def choose(platform: str, case: KdaCase, implementation: str = AUTO) -> Choice:
    """What kda_prefill runs for a case on a platform (cpu, tpu, gpu).

    ``auto``: the fastest, which is the last of IMPLEMENTATIONS, that can run the case with kernels
    of its own. Raises KdaArgumentError for a name that does not exist, NotImplementedError, with
    every reason, where nothing can run.
    """
    if implementation != AUTO:
        if implementation not in IMPLEMENTATIONS:
            raise KdaArgumentError(
                f"implementation is {implementation!r}: use {AUTO} or one of "
                f"{', '.join(IMPLEMENTATIONS)}"
            )
        named = IMPLEMENTATIONS[implementation]
        support = named.can_run(platform, case)
        if not support.ok:
            raise NotImplementedError(f"{implementation}: {support.reason}")
        instead = named.instead(case)
        return Choice(named, "asked for by name" + (f"; falls back: {instead}" if instead else ""))
    passed_over = []
    for candidate in reversed(IMPLEMENTATIONS.values()):
        support = candidate.can_run(platform, case)
        reason = candidate.instead(case) if support.ok else support.reason
        if reason is None:
            why = "; ".join(["the fastest that can run this", *passed_over])
            return Choice(candidate, why)
        passed_over.append(f"{candidate.name}: {reason}")
    raise NotImplementedError("no implementation can run this: " + "; ".join(passed_over))


def kda_prefill(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array,
    beta: jax.Array,
    *,
    A_log: jax.Array | None,
    dt_bias: jax.Array | None,
    cu_seqlens: jax.Array | np.ndarray,
    gate: Gate = Gate(),  # noqa: B008 - frozen
    initial_state: jax.Array | None = None,
    scale: float | None = None,
    normalise_qk: bool = False,
    beta_logits: bool = False,
    implementation: str = AUTO,
) -> tuple[jax.Array, jax.Array]:
    """KDA prefill of N sequences packed on one token axis.

    q, k: [1, T, H, K], bfloat16 or float32; v: [1, T, H, V], same dtype; g: [1, T, H, K], that
    dtype or float32; beta: [1, T, H], same, already after the sigmoid unless beta_logits;
    normalise_qk: q and k are still to be divided by their L2 norms (both are done in the kernel
    where the implementation fuses them, else before it); A_log: [H] and dt_bias:
    [H, K], float32 (None allowed for an activated gate); cu_seqlens: [N + 1] int32 on the host or
    a device, concrete, from 0 to T; initial_state: [N, H, K, V] float32, zeros if None; scale:
    on q, K ** -0.5 if None. implementation: a name in IMPLEMENTATIONS, or ``auto``, which tries
    them from the last, the fastest, to the first: ``choose`` says which and why.

    Returns o [1, T, H, V] in the dtype of q, and final_state [N, H, K, V] float32, the initial
    state where a sequence is empty.

    Raises KdaArgumentError (a ValueError) for any argument that does not fit, before anything
    runs; NotImplementedError with the reasons where the named implementation, or every one, cannot
    run this here. An activated gate's g is checked for its bounds unless it is being traced.
    """
    _check_array("q", q, (1, None, None, None), DTYPES, "[1, T, H, K]")
    _, tokens, heads, head_dim_k = q.shape
    dtype = q.dtype.name
    accepted = tuple(dict.fromkeys((dtype, "float32")))
    _check_array("k", k, q.shape, (dtype,), "the shape of q")
    _check_array("v", v, (1, tokens, heads, None), (dtype,), "[1, T, H, V]")
    _check_array("g", g, q.shape, accepted, "the shape of q")
    _check_array("beta", beta, q.shape[:3], accepted, "[1, T, H]")
    head_dim_v = v.shape[3]
    if not isinstance(gate, Gate):
        raise KdaArgumentError(f"gate is a {type(gate).__name__}: pass a kda_tpu.Gate")
    if not gate.is_raw and A_log is None:
        A_log = jnp.zeros((heads,), jnp.float32)
    if not gate.is_raw and dt_bias is None:
        dt_bias = jnp.zeros((heads, head_dim_k), jnp.float32)
    _check_array("A_log", A_log, (heads,), ("float32",), "[H]")
    _check_array("dt_bias", dt_bias, (heads, head_dim_k), ("float32",), "[H, K]")
    lengths = _lengths(cu_seqlens, tokens)
    state_shape = (len(lengths), heads, head_dim_k, head_dim_v)
    if initial_state is None:
        initial_state = jnp.zeros(state_shape, jnp.float32)
    _check_array("initial_state", initial_state, state_shape, ("float32",), "[N, H, K, V]")
    if scale is not None and not (isinstance(scale, int | float) and math.isfinite(scale)):
        raise KdaArgumentError(f"scale is {scale!r}: must be a finite float, or None for K ** -0.5")
    if gate.kind == "activated":
        _check_activated(g, gate)
    case = KdaCase(lengths, heads, head_dim_k, head_dim_v, dtype, gate)
    chosen = choose(jax.default_backend(), case, implementation).implementation
    fused = Fused(normalise_qk, beta_logits)
    dims = {"heads": heads, "head_dim_k": head_dim_k, "head_dim_v": head_dim_v, "scale": scale}
    if chosen.fuses:
        bound = chosen.bind(lengths, gate, **dims, fused=fused)
    else:
        bound = prepared_for(chosen.bind(lengths, gate, **dims), fused)
    inputs = KdaInputs(q, k, v, g, beta, A_log, dt_bias, initial_state)
    return _jitted(bound.fn)(inputs, bound.plan)
