"""DSA and NSA: what is chosen, and what remains where everything is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from roofline.examples import normal, quick

from k3bench.roofline.reference import masks
from k3bench.roofline.reference.softmax import attend
from k3bench.roofline.reference.sparse import (
    NsaSizes,
    compress_rows,
    dsa,
    index_scores,
    nsa,
    nsa_branches,
    top_k_mask,
)

EXACT = {"rtol": 1e-12, "atol": 1e-12}
seeds = st.integers(0, 2**16)


@quick
@given(seeds, st.integers(1, 8), st.integers(0, 8))
def test_dsa_that_chooses_all_keys_is_dense(seed, new, prefix):
    keys = prefix + new
    q, k, v = normal(seed, 2, new, 4), normal(seed + 1, 2, keys, 4), normal(seed + 2, 2, keys, 3)
    scores = index_scores(
        normal(seed + 3, 3, new, 5), normal(seed + 4, keys, 5), normal(seed, new, 3)
    )
    dense = attend(q, k, v, masks.causal(new, prefix), 0.5)
    torch.testing.assert_close(dsa(q, k, v, scores, keys, prefix).o, dense.o, **EXACT)


@quick
@given(seeds, st.integers(1, 8), st.integers(0, 8), st.integers(1, 6))
def test_a_query_attends_its_k_best_visible_keys(seed, new, prefix, k):
    scores = normal(seed, new, prefix + new)
    visible = masks.causal(new, prefix)
    mask = top_k_mask(scores, visible, k)
    assert not (mask & ~visible).any()
    for row in range(new):
        ranked = sorted(
            visible[row].nonzero().flatten().tolist(), key=lambda key: -scores[row, key]
        )
        assert set(mask[row].nonzero().flatten().tolist()) == set(ranked[:k])


def test_equal_scores_are_chosen_from_the_front():
    mask = top_k_mask(torch.zeros(1, 5), masks.causal(1, 4), 2)
    assert mask.tolist() == [[True, True, False, False, False]]


def test_the_indexer_sums_relus_over_its_heads():
    q, k, w = normal(1, 3, 2, 4), normal(2, 5, 4), normal(3, 2, 3)
    scores = index_scores(q, k, w)
    for row in range(2):
        for key in range(5):
            expected = sum(
                w[row, head] * max(0.0, float(q[head, row] @ k[key])) for head in range(3)
            )
            assert scores[row, key] == pytest.approx(float(expected))


SIZES = NsaSizes(compress=4, stride=2, select_block=4, selected=2, window=3)


@quick
@given(seeds, st.integers(1, 20))
def test_nsa_with_one_gate_open_is_that_branch(seed, tokens):
    q, k, v = normal(seed, 2, tokens, 4), normal(seed + 1, tokens, 4), normal(seed + 2, tokens, 3)
    branches = nsa_branches(q, k, v, SIZES)
    for opened, branch in enumerate(branches):
        gates = torch.zeros(3, 2, tokens, dtype=q.dtype)
        gates[opened] = 1
        torch.testing.assert_close(nsa(q, k, v, gates, SIZES), branch.o, **EXACT)


@quick
@given(seeds, st.integers(1, 20))
def test_nsa_sums_its_branches_by_their_gates(seed, tokens):
    q, k, v = normal(seed, 2, tokens, 4), normal(seed + 1, tokens, 4), normal(seed + 2, tokens, 3)
    gates = torch.sigmoid(normal(seed + 3, 3, 2, tokens))
    expected = sum(
        gate[..., None] * branch.o
        for gate, branch in zip(gates, nsa_branches(q, k, v, SIZES), strict=True)
    )
    torch.testing.assert_close(nsa(q, k, v, gates, SIZES), expected, **EXACT)


@quick
@given(seeds, st.integers(1, 20))
def test_nsa_that_selects_every_block_or_sees_all_in_its_window_is_dense_there(seed, tokens):
    everything = NsaSizes(4, 2, select_block=4, selected=tokens, window=tokens)
    q, k, v = normal(seed, 2, tokens, 4), normal(seed + 1, tokens, 4), normal(seed + 2, tokens, 3)
    dense = attend(q, k, v, masks.causal(tokens), 0.5)
    _, selected, window = nsa_branches(q, k, v, everything)
    torch.testing.assert_close(selected.o, dense.o, **EXACT)
    torch.testing.assert_close(window.o, dense.o, **EXACT)


@quick
@given(seeds, st.integers(6, 20), st.data())
def test_no_branch_of_nsa_sees_the_future(seed, tokens, data):
    now = data.draw(st.integers(0, tokens - 2))
    q, k, v = normal(seed, 2, tokens, 4), normal(seed + 1, tokens, 4), normal(seed + 2, tokens, 3)
    gates = torch.ones(3, 2, tokens, dtype=q.dtype)
    before = nsa(q, k, v, gates, SIZES)
    k[now + 1 :] += 3.0
    v[now + 1 :] -= 5.0
    after = nsa(q, k, v, gates, SIZES)
    assert torch.equal(before[:, : now + 1], after[:, : now + 1])


def test_compressed_rows_are_means_of_their_blocks():
    rows = torch.arange(7, dtype=torch.float64)[:, None]
    assert compress_rows(rows, 4, 2).flatten().tolist() == [1.5, 3.5]
    assert compress_rows(rows[:3], 4, 2).shape == (0, 1)
