"""The factory for KDA prefill: binds an implementation at a point (runs in the child process)."""

from typing import Any

from k3bench.compiled.built import Built, UnsupportedError
from k3bench.compiled.tpu.point import KdaPoint


def build(**point: Any) -> Built:
    """The bound implementation of a point (KdaPoint.to_json) with abstract arguments.

    Raises UnsupportedError with the reason where the implementation does not take the point.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    import kda_tpu

    p = KdaPoint.from_json(point)
    known = {**kda_tpu.IMPLEMENTATIONS, **kda_tpu.VARIANTS}
    if p.implementation not in known:
        raise UnsupportedError(
            f"implementation {p.implementation!r}: use one of {', '.join(known)}"
        )
    implementation = known[p.implementation]
    gate = kda_tpu.Gate(p.gate)
    case = kda_tpu.KdaCase(
        lengths=p.lengths,
        heads=p.heads,
        head_dim_k=p.head_dim_k,
        head_dim_v=p.head_dim_v,
        dtype=p.dtype,
        gate=gate,
    )
    support = implementation.can_run("tpu", case)
    if not support.ok:
        raise UnsupportedError(support.reason)
    try:
        bound = implementation.bind(
            p.lengths, gate, heads=p.heads, head_dim_k=p.head_dim_k, head_dim_v=p.head_dim_v
        )
    except kda_tpu.KdaArgumentError as error:
        raise UnsupportedError(str(error)) from error

    def array(dtype: Any, *shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    dtype = jnp.dtype(p.dtype)
    T, N, H, K, V = p.tokens, len(p.lengths), p.heads, p.head_dim_k, p.head_dim_v
    inputs = kda_tpu.KdaInputs(
        q=array(dtype, 1, T, H, K),
        k=array(dtype, 1, T, H, K),
        v=array(dtype, 1, T, H, V),
        g=array(dtype, 1, T, H, K),
        beta=array(jnp.float32, 1, T, H),
        A_log=array(jnp.float32, H),
        dt_bias=array(jnp.float32, H, K),
        initial_state=array(jnp.float32, N, H, K, V),
    )
    first = len(jax.tree.leaves(inputs))
    plan = [np.asarray(leaf) for leaf in jax.tree.leaves(bound.plan)]
    return Built(
        function=bound.fn,
        arguments=(inputs, jax.tree.map(np.asarray, bound.plan)),
        tables={
            first + number: [int(value) for value in leaf.reshape(-1)]
            for number, leaf in enumerate(plan)
            if leaf.dtype.kind in "iub"
        },
        padded_tokens=bound.padded_tokens,
    )
