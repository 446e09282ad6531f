"""How far an implementation may stand from the fp32 oracle, and how that distance is taken."""

import jax
import jax.numpy as jnp
import numpy as np

from kda_tpu.errors import KdaArgumentError

_MAX_ABS_ERROR = {
    # The threshold of the published kernels, on L2-normalised q and k. It is met with room where
    # |o| < 0.25, as it is for make_inputs: rounding a correct o to bf16 alone costs up to
    # 2^-9 |o|, and the final state stays fp32.
    "bfloat16": 5e-4,
    # fp32 in and out leaves the reordering of sums and exp2 of rounded cumulative decays, whose
    # relative error is 2^-24 |G| with |G| up to 64 * 5 / ln 2 = 462 a chunk: about 3e-5 of the
    # part of a state that decays. Measured over the shared tests: see tests/kda_tpu.
    "float32": 2e-5,
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
    worst = 0.0
    for name, ours, theirs in zip(("o", "final_state"), outputs, reference, strict=True):
        if ours.shape != theirs.shape:
            raise KdaArgumentError(
                f"{name} has shape {ours.shape} but the reference has {theirs.shape}"
            )
        if ours.size == 0:
            continue
        error = float(
            jnp.max(jnp.abs(jnp.asarray(ours, jnp.float32) - jnp.asarray(theirs, jnp.float32)))
        )
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst
