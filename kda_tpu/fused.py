"""What callers may leave to the kernel: q and k not yet normalised, beta before its sigmoid."""

import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from kda_tpu.inputs import KdaInputs
from kda_tpu.interface import Bound, Plan, PrefillFn

EPSILON = 1e-6


@dataclass(frozen=True)
class Fused:
    """Which activations are still to be done.

    normalise_qk: q and k are divided by their L2 norm over K, x / sqrt(sum x^2 + 1e-6), in fp32;
    beta_logits: beta is what its sigmoid is taken of.
    """

    normalise_qk: bool = False
    beta_logits: bool = False

    @property
    def any(self) -> bool:
        return self.normalise_qk or self.beta_logits


NOTHING = Fused()


def normalised(x: jax.Array) -> jax.Array:
    """x [..., K] fp32 over its L2 norm."""
    squares = jnp.sum(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(squares + EPSILON)


def beforehand(inputs: KdaInputs, fused: Fused) -> KdaInputs:
    """The same as XLA ops, for implementations that take inputs as they are; q, k keep dtype."""
    f32 = jnp.float32
    if fused.normalise_qk:
        q, k = (normalised(x.astype(f32)).astype(x.dtype) for x in (inputs.q, inputs.k))
        inputs = replace(inputs, q=q, k=k)
    if fused.beta_logits:
        inputs = replace(inputs, beta=jax.nn.sigmoid(inputs.beta.astype(f32)))
    return inputs


@functools.cache
def _after(fn: PrefillFn, fused: Fused) -> PrefillFn:
    def activated(inputs: KdaInputs, plan: Plan) -> tuple[jax.Array, jax.Array]:
        return fn(beforehand(inputs, fused), plan)

    return activated


def prepared_for(bound: Bound, fused: Fused) -> Bound:
    """An implementation that takes inputs as they are, behind the activations it lacks."""
    return replace(bound, fn=_after(bound.fn, fused)) if fused.any else bound
