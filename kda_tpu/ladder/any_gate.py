"""Without ``safe_gate``: the decay of every pair spelt out, which no gate can overflow.

The path of gates without a bound at every rung. It costs a [BT, BT, K] intermediate.
"""

import jax
import jax.numpy as jnp

from kda_tpu.ladder.safe_gate import Scores, triangle
from kda_tpu.ladder.stages import Stages


def pairwise_scores(q: jax.Array, k: jax.Array, beta: jax.Array, G: jax.Array) -> Stages[Scores]:
    """Scores for any log decay <= 0. The decays are one stage, the sums over them another.

    q, k: [BT, K] fp32; beta: [BT, 1] fp32; G: [BT, K] fp32, the inclusive cumulative log2 decay
    of the chunk.
    """
    chunk = k.shape[0]
    i = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk, 1), 0)
    j = jax.lax.broadcasted_iota(jnp.int32, (chunk, chunk, 1), 1)
    # Masked before the exponential: above the diagonal the exponents are positive.
    gap = jnp.where(i >= j, G[:, None, :] - G[None, :, :], -jnp.inf)
    decayed_k = jnp.exp2(gap) * k[None, :, :]
    yield
    lower = beta * jnp.sum(k[:, None, :] * decayed_k, axis=-1)
    decay = jnp.exp2(G)
    last = G[chunk - 1 :]
    return Scores(
        attention=jnp.sum(q[:, None, :] * decayed_k, axis=-1),
        lower=jnp.where(triangle(chunk, strict=True), lower, 0.0),
        q_decayed=q * decay,
        k_decayed=beta * k * decay,
        k_rest=k * jnp.exp2(last - G),
        decay=jnp.exp2(last),
    )
