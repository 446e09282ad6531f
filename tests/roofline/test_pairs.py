"""Counts of pairs and keys against masks that are counted element by element."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from roofline.examples import quick

from k3bench.roofline.dense import Dense
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.pairs import (
    block_sparse_pairs,
    causal_pairs,
    top_k_pairs,
    window_keys,
    window_pairs,
)
from k3bench.roofline.reference import masks
from k3bench.roofline.reference.sparse import top_k_mask
from k3bench.roofline.ring import Ring
from k3bench.roofline.sparse import BlockSparse, compressed_keys, compressed_pairs
from k3bench.roofline.step import Step

new_tokens = st.integers(1, 40)
prefixes = st.integers(0, 40)


def count(mask):
    return int(mask.sum())


@quick
@given(new_tokens, prefixes)
def test_causal_pairs_are_those_of_the_mask(new, prefix):
    assert causal_pairs(new, prefix) == count(masks.causal(new, prefix))


@quick
@given(new_tokens, prefixes, st.integers(1, 30), st.integers(0, 8))
def test_window_and_sink_pairs_are_those_of_the_mask(new, prefix, window, sinks):
    mask = masks.window(new, window, prefix, sinks)
    assert window_pairs(new, window, prefix, sinks) == count(mask)
    assert window_keys(new, window, prefix, sinks) == count(mask.any(0))


@quick
@given(new_tokens, prefixes, st.integers(1, 30))
def test_top_k_pairs_are_those_of_any_choice(new, prefix, k):
    scores = torch.rand(new, prefix + new, generator=torch.Generator().manual_seed(new))
    mask = top_k_mask(scores, masks.causal(new, prefix), k)
    assert top_k_pairs(new, k, prefix) == count(mask)


@quick
@given(st.data(), new_tokens, prefixes, st.integers(1, 9))
def test_block_sparse_pairs_and_keys_are_those_of_the_mask(data, new, prefix, block):
    side = -(-(prefix + new) // block)
    row = st.lists(st.booleans(), min_size=side, max_size=side)
    visible = data.draw(st.lists(row, min_size=side, max_size=side))
    mask = masks.blocks(new, block, visible, prefix)
    assert block_sparse_pairs(new, block, visible, prefix) == count(mask)
    form = BlockSparse(1, 1, block=block, visible=tuple(map(tuple, visible)))
    # Whole blocks are read: every key of a block that any query block sees.
    query, key = masks.positions(new, prefix)
    chosen = torch.tensor(visible)[query // block, key // block] & (key // block <= query // block)
    assert form.keys(Step.chunk(new, prefix)) == count(chosen.any(0))


@quick
@given(new_tokens, prefixes, st.integers(1, 12), st.integers(1, 12))
def test_compressed_pairs_are_those_of_the_mask(new, prefix, block, stride):
    mask = masks.compressed(new, block, stride, prefix)
    assert compressed_pairs(new, block, stride, prefix) == count(mask)
    assert compressed_keys(prefix + new - 1, block, stride) == mask.shape[1]


@quick
@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from(["contiguous", "striped"]))
def test_ring_rounds_score_the_pairs_of_the_causal_mask_once(devices, local, layout):
    new = devices * local
    ring, step = Ring(Dense(1, 1), devices, layout), Step.prefill(new)
    shares = masks.ring_share(new, devices, layout)
    mask = masks.causal(new)
    total = 0
    for device in range(devices):
        for turn in range(devices):
            block = shares[(device - turn) % devices]
            pairs = ring.device_pairs(step, device, turn)
            assert pairs == count(mask[shares[device]][:, block])
            total += pairs
    assert total == causal_pairs(new)


def test_a_mask_of_the_wrong_size_is_refused():
    with pytest.raises(RooflineError, match="visible is not 2 x 2"):
        block_sparse_pairs(8, 4, [[True]])
    with pytest.raises(RooflineError, match="give a larger mask"):
        BlockSparse(1, 1, block=4, visible=((True,),)).pairs(Step.prefill(8))
    with pytest.raises(RooflineError, match="window 0"):
        window_pairs(4, 0)
