"""How the ladder multiplies matrices: bf16 passes where inputs are bf16, full fp32 where not.

The MXU multiplies bf16 and adds in fp32. A fp32 operand is therefore rounded (one pass), or split
into the bf16 nearest to it and the bf16 nearest to the rest (three passes, relative error 2^-16).
The rounding is spelt out as casts, so interpret mode rounds where the device rounds.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

# Which dimension of [rows, columns] is summed over, for the left and the right operand.
_CONTRACT = {"nn": (1, 0), "nt": (1, 1), "tn": (0, 0)}


def _dot(a: jax.Array, b: jax.Array, form: str, precision: jax.lax.Precision | None) -> jax.Array:
    left, right = _CONTRACT[form]
    return jax.lax.dot_general(
        a,
        b,
        (((left,), (right,)), ((), ())),
        precision=precision,
        preferred_element_type=jnp.float32,
    )


@dataclass(frozen=True)
class Dots:
    """Matrix products of 2-D arrays for inputs of one dtype.

    exact: True for float32 inputs: fp32 products (six passes). False for bfloat16 inputs.
    Forms: ``nn`` a @ b, ``nt`` a @ b^T (the MXU transposes b while loading it), ``tn`` a^T @ b.
    All return fp32.
    """

    exact: bool

    @property
    def operand_dtype(self) -> jnp.dtype:
        """What an operand may be stored as without changing ``once``."""
        return jnp.dtype(jnp.float32 if self.exact else jnp.bfloat16)

    def once(self, a: jax.Array, b: jax.Array, form: str = "nn") -> jax.Array:
        """One MXU pass: operands rounded to bf16."""
        if self.exact:
            return _dot(a, b, form, jax.lax.Precision.HIGHEST)
        return _dot(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), form, None)

    def sum_of_rows(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """a^T @ b, a: [n, M], b: [n, N], to 2^-16: three products summed in one contraction.

        Stacking the split operands along the contraction costs nothing (n is the row dimension),
        and 3 n <= 256 rows are still one pass of the MXU for n = 64.
        """
        if self.exact:
            return _dot(a, b, "tn", jax.lax.Precision.HIGHEST)
        (a_high, a_low), (b_high, b_low) = split(a), split(b)
        return _dot(
            jnp.concatenate([a_high, a_low, a_high], axis=0),
            jnp.concatenate([b_high, b_high, b_low], axis=0),
            "tn",
            None,
        )


def split(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """fp32 as a sum of two bf16, to a relative 2^-16."""
    high = x.astype(jnp.bfloat16)
    return high, (x - high.astype(jnp.float32)).astype(jnp.bfloat16)
