"""How far an implementation may stand from the fp32 oracle, and how that distance is taken."""

import jax
import jax.numpy as jnp

from kda_tpu.errors import KdaArgumentError

_MAX_ABS_ERROR = {
    # The threshold of the published kernels, on L2-normalised q and k. It is met with room where
    # |o| < 0.25, as it is for make_inputs: rounding a correct o to bf16 alone costs up to
    # 2^-9 |o|, and the final state stays fp32.
    "bfloat16": 5e-4,
    # fp32 in and out leaves reordered sums (1e-6 measured) and the rounding of the chunk-local
    # cumulative decay G: a pair's decay is off by up to 2^-24 |G| ln 2 of itself, |G| <= 64 * 5 /
    # ln 2 = 462 where the gate is bounded. Measured over the shared tests: at most 2.1e-6.
    "float32": 1e-5,
}


def tolerance(dtype: str) -> float:
    """The largest absolute error allowed in o and in the final state; ``bfloat16``/``float32``."""
    if dtype not in _MAX_ABS_ERROR:
        raise KdaArgumentError(
            f"dtype {dtype!r} has no tolerance: use one of {', '.join(_MAX_ABS_ERROR)}"
        )
    return _MAX_ABS_ERROR[dtype]


def max_abs_error(
    outputs: tuple[jax.Array, jax.Array], reference: tuple[jax.Array, jax.Array]
) -> float:
    """The largest |difference| over o and final_state together, taken in fp32.

    NaN or an infinity on either side is an infinite error, so that nothing non-finite passes.
    Raises KdaArgumentError where a shape differs: broadcasting would hide a wrong layout.
    """
    errors = [0.0]
    for name, ours, theirs in zip(("o", "final_state"), outputs, reference, strict=True):
        if ours.shape != theirs.shape:
            raise KdaArgumentError(
                f"{name} has shape {ours.shape} but the reference has {theirs.shape}"
            )
        if ours.size:
            errors.append(float(_largest_difference(ours, theirs)))
    return max(errors)


@jax.jit
def _largest_difference(ours: jax.Array, theirs: jax.Array) -> jax.Array:
    difference = jnp.abs(ours.astype(jnp.float32) - theirs.astype(jnp.float32))
    # Asked for by name: on the CPU, jaxlib 0.10.2's maximum over some 10,000 elements or more
    # skips NaN.
    return jnp.where(jnp.all(jnp.isfinite(difference)), jnp.max(difference), jnp.inf)
