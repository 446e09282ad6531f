"""MLA: the absorbed form is the decompressed one, for any split into prefix and new tokens."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from roofline.examples import normal, quick

from k3bench.roofline.reference import masks
from k3bench.roofline.reference.mla import Latents, absorbed, decompressed, prefix_absorbed

EXACT = {"rtol": 1e-11, "atol": 1e-11}
SINGLE = {"rtol": 1e-4, "atol": 1e-5}


def problem(seed, heads, new, prefix, dtype=torch.float64):
    latent, rope, nope, value = 8, 2, 5, 3  # no two widths equal
    cache = Latents(
        normal(seed, prefix + new, latent, dtype=dtype),
        normal(seed + 1, prefix + new, rope, dtype=dtype),
        normal(seed + 2, heads, latent, nope, dtype=dtype),
        normal(seed + 3, heads, latent, value, dtype=dtype),
    )
    q_nope = normal(seed + 4, heads, new, nope, dtype=dtype)
    return q_nope, normal(seed + 5, heads, new, rope, dtype=dtype), cache


@quick
@given(
    st.integers(0, 2**16),
    st.sampled_from([1, 3, 9]),
    st.integers(1, 6),
    st.integers(0, 6),
    st.sampled_from([torch.float64, torch.float32]),
)
def test_absorbed_equals_decompressed(seed, heads, new, prefix, dtype):
    q_nope, q_rope, cache = problem(seed, heads, new, prefix, dtype)
    visible = masks.causal(new, prefix)
    one = decompressed(q_nope, q_rope, cache, visible)
    tolerance = EXACT if dtype == torch.float64 else SINGLE
    for other in (
        absorbed(q_nope, q_rope, cache, visible),
        prefix_absorbed(q_nope, q_rope, cache, visible, prefix),
    ):
        torch.testing.assert_close(other.o, one.o, **tolerance)
        torch.testing.assert_close(other.lse, one.lse, **tolerance)


def test_the_scale_is_of_the_decompressed_width_in_both_forms():
    _, _, cache = problem(0, 2, 1, 0)
    assert cache.scale == (5 + 2) ** -0.5
