"""The log-sum-exp merge and the fp32 product: worked numbers, empty parts, any order."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_rocm.numerics import bmm_fp32, merge_partials, to_operand

INF = math.inf


def _merge(outputs, lses):
    o, lse = merge_partials(
        torch.tensor(outputs, dtype=torch.float32)[:, None],
        torch.tensor(lses, dtype=torch.float32),
        dim=0,
    )
    return o.item(), lse.item()


def test_scores_2_and_4_over_values_10_and_20_merge_to_18_81_and_not_to_their_mean():
    o, lse = _merge([10.0, 20.0], [2.0, 4.0])
    assert o == pytest.approx(18.81, abs=5e-3)
    assert lse == pytest.approx(math.log(math.exp(2) + math.exp(4)))


@pytest.mark.parametrize(
    ("outputs", "lses", "expected"),
    [
        ([10.0, math.nan], [2.0, -INF], (10.0, 2.0)),
        ([INF, 10.0], [-INF, 2.0], (10.0, 2.0)),
        ([math.nan, math.nan], [-INF, -INF], (0.0, -INF)),
        ([0.0], [-INF], (0.0, -INF)),
        ([10.0], [-1000.0], (10.0, -1000.0)),
        ([10.0, 20.0], [1000.0, -1000.0], (10.0, 1000.0)),
    ],
    ids=["one-empty", "unwritten-inf", "all-empty", "only-empty", "tiny", "far-apart"],
)
def test_parts_without_keys_contribute_nothing_whatever_they_hold(outputs, lses, expected):
    assert _merge(outputs, lses) == pytest.approx(expected)


def test_a_nan_in_a_part_that_saw_keys_is_not_hidden():
    assert math.isnan(_merge([math.nan, 1.0], [2.0, 2.0])[0])
    assert math.isnan(_merge([1.0, 1.0], [math.nan, 2.0])[0])


parts = st.lists(
    st.tuples(st.floats(-50, 50, width=32), st.floats(-80, 80, width=32) | st.just(-INF)),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=200)
@given(parts=parts, data=st.data())
def test_the_merge_is_independent_of_order_and_of_grouping(parts, data):
    whole = _merge(*zip(*parts, strict=True))
    shuffled = data.draw(st.permutations(parts))
    assert _merge(*zip(*shuffled, strict=True)) == pytest.approx(whole, rel=1e-4, abs=1e-4)
    cut = data.draw(st.integers(1, len(parts)))
    nested = [_merge(*zip(*group, strict=True)) for group in (parts[:cut], parts[cut:]) if group]
    assert _merge(*zip(*nested, strict=True)) == pytest.approx(whole, rel=1e-4, abs=1e-4)


@settings(deadline=None, max_examples=50)
@given(
    cuts=st.lists(st.integers(0, 40), max_size=5),
    seed=st.integers(0, 1000),
)
def test_any_partition_of_the_keys_merges_to_the_softmax_over_all_of_them(cuts, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 40, generator=generator) * 5
    values = torch.randn(40, 7, generator=generator)
    bounds = [0, *sorted(cuts), 40]
    parts = []
    for begin, end in itertools.pairwise(bounds):
        piece = scores[:, begin:end]
        lse = piece.logsumexp(-1) if end > begin else torch.full((3,), -INF)
        o = piece.softmax(-1) @ values[begin:end] if end > begin else torch.full((3, 7), math.nan)
        parts.append((o, lse))
    o, lse = merge_partials(
        torch.stack([o for o, _ in parts], 1), torch.stack([lse for _, lse in parts], 1), dim=1
    )
    torch.testing.assert_close(o, scores.softmax(-1) @ values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_products_of_16_bit_operands_are_not_rounded_to_16_bits(dtype):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(2, 12, 576, generator=generator).to(dtype)
    b = torch.randn(2, 576, 33, generator=generator).to(dtype)
    exact = a.double() @ b.double()
    product = bmm_fp32(to_operand(a), to_operand(b))
    assert product.dtype == torch.float32
    assert (product - exact).abs().max() < 1e-4
