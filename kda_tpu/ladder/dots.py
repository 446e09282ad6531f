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

    def once(self, a: jax.Array, b: jax.Array, form: str = "nn") -> jax.Array:
        """One MXU pass: operands rounded to bf16."""
        if self.exact:
            return _dot(a, b, form, jax.lax.Precision.HIGHEST)
        return _dot(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), form, None)

    def once_and_finer(
        self, a: jax.Array, finer: jax.Array, b: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """(a b^T, finer b^T): b and a rounded to bf16, ``finer`` kept to 2^-16.

        a, finer: [n, K]; b: [N, K]. The parts are stacked as rows against one load of b.
        """
        n = a.shape[0]
        if self.exact:
            both = self.once(jnp.concatenate([a, finer]), b, "nt")
            return both[:n], both[n:]
        high, low = split(finer)
        parts = self.once(jnp.concatenate([a.astype(jnp.bfloat16), high, low]), b, "nt")
        return parts[:n], parts[n : 2 * n] + parts[2 * n :]

    def stack_parts(self, a: jax.Array) -> jax.Array:
        """a [n, m] fp32 as ``fine`` takes it: [2 n, m] bf16, high over low; unchanged if exact."""
        return a if self.exact else jnp.concatenate(split(a))

    def fine(self, a: jax.Array, b: jax.Array, form: str = "nn") -> jax.Array:
        """a @ b, or a @ b^T for ``nt``, to 2^-16 in one contraction.

        a: from stack_parts; b: fp32. The parts of a are rows and those of b columns of the result,
        so four products come of one load of b, and three of them are summed.
        """
        if self.exact:
            return self.once(a, b, form)
        n = a.shape[0] // 2
        width = b.shape[1 if form == "nn" else 0]
        parts = self.once(a, jnp.concatenate(split(b), axis=1 if form == "nn" else 0), form)
        return parts[:n, :width] + (parts[:n, width:] + parts[n:, :width])

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
