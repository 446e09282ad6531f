"""Attention in parts: merging, splits, groups, rings, windows, one shared cache."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from roofline.examples import normal, quick

from k3bench.roofline.reference import masks
from k3bench.roofline.reference.dense import grouped_attention
from k3bench.roofline.reference.ring import ring_attention
from k3bench.roofline.reference.shared_cache import cross_decoder
from k3bench.roofline.reference.softmax import Partial, attend, merge, merge_all, split_kv

# float64 rounding of sums over some tens of keys.
EXACT = {"rtol": 1e-12, "atol": 1e-12}
# The same in float32.
SINGLE = {"rtol": 2e-5, "atol": 2e-6}

seeds = st.integers(0, 2**16)


def assert_same(one: Partial, other: Partial, **tolerance):
    torch.testing.assert_close(one.o, other.o, **(tolerance or EXACT))
    torch.testing.assert_close(one.lse, other.lse, **(tolerance or EXACT))


def plain_softmax(q, k, v, visible, scale):
    """From the definition, row by row, without the log-sum-exp."""
    rows = []
    for row in range(len(q)):
        keys = visible[row].nonzero().flatten().tolist()
        if not keys:
            rows.append(torch.zeros(v.shape[-1], dtype=v.dtype))
            continue
        weights = [math.exp(scale * float(q[row] @ k[key])) for key in keys]
        total = sum(weights)
        rows.append(sum(weight / total * v[key] for weight, key in zip(weights, keys, strict=True)))
    return torch.stack(rows)


def test_scores_2_and_4_over_values_10_and_20_give_18_81_and_not_15():
    one = torch.ones(1, 1, dtype=torch.float64)
    seen = torch.ones(1, 1, dtype=torch.bool)
    parts = [
        attend(one, score * one, value * one, seen, scale=1.0)
        for score, value in ((2.0, 10.0), (4.0, 20.0))
    ]
    merged = merge(*parts)
    assert merged.o.item() == pytest.approx(18.81, abs=5e-3)
    assert sum(part.o.item() for part in parts) / 2 == 15.0


def test_two_heads_of_a_group_never_share_a_softmax():
    q = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    k = torch.tensor([[[2.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
    v = torch.tensor([[[10.0], [20.0]]], dtype=torch.float64)
    seen = torch.ones(1, 2, dtype=torch.bool)
    o = grouped_attention(q, k, v, seen, scale=1.0).o.flatten().tolist()
    assert o == pytest.approx([11.19, 18.81], abs=5e-3)


@quick
@given(seeds, st.integers(1, 4), st.integers(0, 9))
def test_attention_is_its_definition_where_rows_may_see_nothing(seed, queries, keys):
    q, k, v = normal(seed, queries, 3), normal(seed + 1, keys, 3), normal(seed + 2, keys, 2)
    visible = normal(seed + 3, queries, keys) > 0
    found = attend(q, k, v, visible, 0.5)
    torch.testing.assert_close(found.o, plain_softmax(q, k, v, visible, 0.5), **EXACT)
    assert torch.equal(found.lse == -math.inf, ~visible.any(-1))


@quick
@given(st.data(), seeds, st.sampled_from([torch.float64, torch.float32]))
def test_parts_merge_in_any_order_and_grouping_with_masked_ones_among_them(data, seed, dtype):
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=6))
    order = data.draw(st.permutations(range(len(sizes))))
    middle = data.draw(st.integers(1, len(sizes) - 1))
    keys = sum(sizes)
    q = normal(seed, 2, 3, dtype=dtype)
    k, v = normal(seed + 1, keys, 3, dtype=dtype), normal(seed + 2, keys, 2, dtype=dtype)
    visible = normal(seed + 3, 2, keys) > 0.7  # parts without a visible key are common
    ends = torch.tensor(sizes).cumsum(0).tolist()
    parts = [
        attend(q, k[a:b], v[a:b], visible[:, a:b], 1.0)
        for a, b in zip([0, *ends[:-1]], ends, strict=True)
    ]
    shuffled = [parts[place] for place in order]
    whole = attend(q, k, v, visible, 1.0)
    tolerance = EXACT if dtype == torch.float64 else SINGLE
    assert_same(merge_all(shuffled), whole, **tolerance)
    grouped = merge(merge_all(shuffled[:middle]), merge_all(shuffled[middle:]))
    assert_same(grouped, whole, **tolerance)
    assert not grouped.o.isnan().any()


def test_parts_that_saw_nothing_merge_into_one_that_saw_nothing():
    nothing = Partial(torch.zeros(1, 2), torch.full((1,), -math.inf))
    merged = merge(nothing, nothing)
    assert merged.o.tolist() == [[0.0, 0.0]]
    assert merged.lse.tolist() == [-math.inf]


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_scores_far_apart_neither_overflow_nor_vanish(scale):
    q, k, v = normal(1, 2, 4), normal(2, 6, 4), normal(3, 6, 2)
    visible = torch.ones(2, 6, dtype=torch.bool)
    split = split_kv(q, k, v, visible, scale, [1, 3, 6])
    assert_same(split, attend(q, k, v, visible, scale))
    assert split.o.isfinite().all()


@quick
@given(st.data(), seeds, st.integers(0, 12))
def test_split_kv_gives_the_same_for_any_splits_empty_ones_included(data, seed, keys):
    cuts = sorted(data.draw(st.lists(st.integers(0, keys), max_size=5)))
    q, k, v = normal(seed, 3, 4), normal(seed + 1, keys, 4), normal(seed + 2, keys, 4)
    visible = torch.ones(3, keys, dtype=torch.bool)
    assert_same(split_kv(q, k, v, visible, 0.5, [*cuts, keys]), attend(q, k, v, visible, 0.5))


@quick
@given(seeds, st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2), (8, 4)]), st.integers(1, 6))
def test_a_group_is_its_heads_one_by_one(seed, heads_groups, tokens):
    heads, groups = heads_groups
    q = normal(seed, heads, tokens, 4)
    k, v = normal(seed + 1, groups, tokens, 4), normal(seed + 2, groups, tokens, 3)
    visible = masks.causal(tokens)
    together = grouped_attention(q, k, v, visible)
    for head in range(heads):
        group = head // (heads // groups)
        alone = attend(q[head], k[group], v[group], visible, 0.5)
        assert_same(Partial(together.o[head], together.lse[head]), alone)


def test_heads_that_do_not_group_are_refused():
    with pytest.raises(ValueError, match="3 query heads over 2"):
        grouped_attention(
            normal(0, 3, 1, 4), normal(1, 2, 1, 4), normal(2, 2, 1, 4), masks.causal(1)
        )


@quick
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.sampled_from(["contiguous", "striped"]))
def test_a_ring_of_devices_gives_what_one_device_gives(seed, devices, local, layout):
    tokens = devices * local
    q, k, v = normal(seed, tokens, 4), normal(seed + 1, tokens, 4), normal(seed + 2, tokens, 3)
    whole = attend(q, k, v, masks.causal(tokens), 0.5)
    assert_same(ring_attention(q, k, v, devices, layout), whole)


@quick
@given(st.integers(1, 12), st.integers(0, 12), st.integers(1, 6), st.integers(0, 4))
def test_streaming_llm_sees_sinks_and_the_last_keys_alone(new, prefix, window, sinks):
    mask = masks.window(new, window, prefix, sinks)
    for row in range(new):
        position = prefix + row
        recent = set(range(max(0, position - window + 1), position + 1))
        first = set(range(min(sinks, position + 1)))
        assert set(mask[row].nonzero().flatten().tolist()) == recent | first


@quick
@given(seeds, st.integers(4, 10), st.integers(1, 3), st.integers(0, 2))
def test_a_streaming_cache_that_dropped_its_middle_gives_the_same_step(seed, tokens, window, sinks):
    q, k, v = normal(seed, 1, 4), normal(seed + 1, tokens, 4), normal(seed + 2, tokens, 4)
    mask = masks.window(1, window, tokens - 1, sinks)
    kept = [*range(min(sinks, tokens - window)), *range(tokens - window, tokens)]
    everything = torch.ones(1, len(kept), dtype=torch.bool)
    dropped = attend(q, k[kept], v[kept], everything, 0.5)
    assert_same(dropped, attend(q, k, v, mask, 0.5))


@quick
@given(seeds, st.integers(1, 4), st.integers(1, 6), st.integers(0, 4))
def test_yoco_layers_over_one_cache_are_layers_with_equal_caches(seed, layers, new, prefix):
    keys, values = normal(seed, prefix + new, 3), normal(seed + 1, prefix + new, 5)
    x = normal(seed + 2, new, 5)
    queries = [normal(seed + 3 + layer, 5, 3) for layer in range(layers)]
    copies = [(keys.clone(), values.clone()) for _ in range(layers)]
    shared = cross_decoder(x, queries, lambda _: (keys, values), prefix)
    torch.testing.assert_close(
        shared, cross_decoder(x, queries, copies.__getitem__, prefix), **EXACT
    )
    # A prefill needs these layers for its last token alone.
    last = cross_decoder(x[-1:], queries, lambda _: (keys, values), prefix + new - 1)
    torch.testing.assert_close(last, shared[-1:], **EXACT)
