"""Small functions for the compiling process: each shows one thing that the tier must get right."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from k3bench.compiled.built import Built, UnsupportedError

STEPS = 6
ROWS, LANES = 8192, 128
BLOCK_BYTES = ROWS * LANES * 4
F32 = jnp.float32


def _doubled(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


def stream(steps: int = 64) -> Built:
    """Doubles an array too large for VMEM, 4 MiB a grid step."""
    block = pl.BlockSpec((ROWS, LANES), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((steps * ROWS, LANES), F32)

    def function(x):
        return pl.pallas_call(
            _doubled, out_shape=shape, grid=(steps,), in_specs=[block], out_specs=block,
            name="toy_stream",
        )(x)  # fmt: skip

    return Built(function, (shape,), padded_tokens=steps)


def guarded(flags: list[int]) -> Built:
    """Sums exponentials in the grid steps whose flag is set, as a chunk table would steer it."""
    block = pl.BlockSpec((256, LANES), lambda i, flags: (i, 0))
    shape = jax.ShapeDtypeStruct((STEPS * 256, LANES), F32)

    def kernel(flags_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]

        @pl.when(flags_ref[pl.program_id(0)] > 0)
        def _():
            o_ref[...] = jnp.exp(x_ref[...]) * x_ref[...]

    def function(table, x):
        return pl.pallas_call(
            kernel,
            out_shape=shape,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1, grid=(STEPS,), in_specs=[block], out_specs=block
            ),
            name="toy_guarded",
        )(table, x)

    table = np.asarray(flags, np.int32)
    return Built(function, (table, shape), {0: [int(flag) for flag in flags]})


def too_large() -> Built:
    """Asks for 64 MiB of scoped VMEM; it touches little of it, so that compiling is quick."""
    rows = 4096
    shape = jax.ShapeDtypeStruct((8 * rows, 1024), F32)
    block = pl.BlockSpec((rows, 1024), lambda i: (i, 0))

    def kernel(x_ref, o_ref):
        o_ref[:8] = x_ref[:8]

    def function(x):
        return pl.pallas_call(
            kernel, out_shape=shape, grid=(8,), in_specs=[block], out_specs=block,
            name="toy_too_large",
        )(x)  # fmt: skip

    return Built(function, (shape,))


def not_lowered() -> Built:
    """Uses an operation that Pallas TPU has no lowering for."""
    shape = jax.ShapeDtypeStruct((64, 128), F32)

    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.cumsum(x_ref[...], axis=0)

    return Built(lambda x: pl.pallas_call(kernel, out_shape=shape)(x), (shape,))


def refused() -> Built:
    """An implementation that says no."""
    raise UnsupportedError("head_dim_k is 7: must be a multiple of 128")


def broken() -> Built:
    """A factory with a fault of its own."""
    raise RuntimeError("the factory is broken")


def plain_xla(steps: int = 5) -> Built:
    """No Pallas kernel: a scan whose body runs ``steps`` times."""
    matrix = jax.ShapeDtypeStruct((512, 512), F32)

    def function(x):
        def step(carry, _):
            carry = jnp.tanh(carry @ x)
            return carry, carry[0]

        return jax.lax.scan(step, x, None, length=steps)

    return Built(function, (matrix,))
