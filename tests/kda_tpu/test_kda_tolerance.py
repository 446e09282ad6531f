"""Error and tolerance: what counts, and that nothing non-finite or mis-shaped can pass."""

import jax.numpy as jnp
import numpy as np
import pytest

from kda_tpu import KdaArgumentError, max_abs_error, tolerance

OUT = jnp.zeros((1, 3, 2, 4))
STATE = jnp.zeros((1, 2, 5, 4))


def test_tolerances_are_by_dtype_and_fp32_is_tighter():
    assert tolerance("bfloat16") == 5e-4
    assert tolerance("float32") <= tolerance("bfloat16") / 10
    with pytest.raises(KdaArgumentError, match="float16"):
        tolerance("float16")


def test_the_error_is_the_largest_over_output_and_final_state():
    assert max_abs_error((OUT, STATE), (OUT, STATE)) == 0.0
    assert max_abs_error((OUT.at[0, 1, 1, 1].set(-0.5), STATE), (OUT, STATE)) == 0.5
    assert max_abs_error((OUT, STATE.at[0, 1, 4, 3].set(2.0)), (OUT, STATE)) == 2.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_anything_not_finite_is_an_infinite_error_on_either_side(value):
    bad_o, bad_state = OUT.at[0, 0, 0, 0].set(value), STATE.at[0, 0, 0, 0].set(value)
    for bad in ((bad_o, STATE), (OUT, bad_state)):
        assert max_abs_error(bad, (OUT, STATE)) == float("inf")
        assert max_abs_error((OUT, STATE), bad) == float("inf")
        assert max_abs_error(bad, bad) == float("inf")


@pytest.mark.parametrize("size", [10, 1_000, 30_000, 1_000_000])
def test_one_nan_is_seen_in_arrays_of_any_size(size):
    """A plain maximum skips it on the CPU in large arrays."""
    clean = jnp.ones((1, size, 1, 1))
    for at in (0, size // 2, size - 1):
        assert max_abs_error((clean.at[0, at].set(np.nan), STATE), (clean, STATE)) == float("inf")


def test_bf16_outputs_are_compared_in_fp32():
    ours = jnp.full_like(OUT, 0.1, dtype=jnp.bfloat16)
    error = max_abs_error((ours, STATE), (jnp.full_like(OUT, 0.1), STATE))
    assert 0 < error < 0.1 * 2**-8


def test_a_transposed_state_is_refused_and_not_broadcast():
    with pytest.raises(KdaArgumentError, match=r"final_state has shape \(1, 2, 4, 5\)"):
        max_abs_error((OUT, jnp.swapaxes(STATE, 2, 3)), (OUT, STATE))


def test_outputs_without_tokens_have_no_error():
    empty = jnp.zeros((1, 0, 2, 4))
    assert max_abs_error((empty, STATE), (empty, STATE)) == 0.0
