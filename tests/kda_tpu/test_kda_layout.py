"""Packing plans on the host: every token in exactly one slot, every pad marked, for any lengths."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kda_tpu import Gate, KdaArgumentError
from kda_tpu.layout import (
    NO_TOKEN,
    chunk_table,
    gate_pad,
    padded_layout,
    sequence_of_token,
)

packings = st.lists(st.integers(0, 200), min_size=1, max_size=12)
chunk_sizes = st.sampled_from([16, 32, 64, 128])


@given(packings, chunk_sizes)
def test_chunks_cover_every_token_once_and_never_cross_a_sequence(lengths, chunk):
    table = chunk_table(lengths, chunk)
    covered = [
        (start + row, sequence)
        for start, valid, sequence in zip(
            table.token_start, table.valid, table.sequence, strict=True
        )
        for row in range(valid)
    ]
    assert covered == list(enumerate(sequence_of_token(lengths)))
    assert len(table.valid) == sum(-(-n // chunk) for n in lengths)
    assert all(0 < valid <= chunk for valid in table.valid)


@given(packings, chunk_sizes)
def test_padding_and_unpadding_is_the_identity_on_tokens(lengths, chunk):
    layout = padded_layout(lengths, chunk)
    total = sum(lengths)
    np.testing.assert_array_equal(layout.token_of_slot[layout.slot_of_token], np.arange(total))
    pads = np.delete(layout.token_of_slot, layout.slot_of_token)
    assert (pads == NO_TOKEN).all()
    assert len(layout.token_of_slot) == chunk * len(layout.chunks.valid)


@given(packings, chunk_sizes)
def test_every_sequence_starts_on_a_chunk_of_its_own(lengths, chunk):
    layout = padded_layout(lengths, chunk)
    first_token = np.cumsum(lengths) - lengths
    for n, length in enumerate(lengths):
        assert layout.chunk_count[n] == -(-length // chunk)
        if length:
            assert layout.token_of_slot[layout.first_chunk[n] * chunk] == first_token[n]
            assert layout.chunks.sequence[layout.first_chunk[n]] == n


def test_a_small_packing_looks_as_drawn():
    layout = padded_layout([3, 0, 5], chunk=4)
    _ = NO_TOKEN
    np.testing.assert_array_equal(layout.token_of_slot, [0, 1, 2, _, 3, 4, 5, 6, 7, _, _, _])
    np.testing.assert_array_equal(layout.slot_of_token, [0, 1, 2, 4, 5, 6, 7, 8])
    np.testing.assert_array_equal(layout.chunks.token_start, [0, 3, 7])
    np.testing.assert_array_equal(layout.chunks.valid, [3, 4, 1])
    np.testing.assert_array_equal(layout.chunks.sequence, [0, 2, 2])
    np.testing.assert_array_equal(layout.first_chunk, [0, 1, 1])
    np.testing.assert_array_equal(layout.chunk_count, [1, 0, 2])


def test_plans_are_int32_arrays_of_the_host_and_jax_pytrees():
    for plan in (chunk_table([5, 0]), padded_layout([5, 0])):
        leaves = jax.tree.leaves(plan)
        assert leaves and all(type(x) is np.ndarray and x.dtype == np.int32 for x in leaves)


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(64, 4096))
def test_plans_of_long_prompts_are_linear_in_tokens(sequences, length):
    layout = padded_layout([length] * sequences)
    total = sum(x.nbytes for x in jax.tree.leaves(layout))
    assert total <= 12 * (length + 64) * sequences + 64


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], "one count per sequence"),
        ([[1, 2]], "one count per sequence"),
        ([3, -1], r"lengths\[1\] is -1"),
        ([1.5], "token counts are integers"),
        ([2**30, 2**30], "int32"),
    ],
)
def test_lengths_that_cannot_be_packed_are_refused(lengths, message):
    with pytest.raises(KdaArgumentError, match=message):
        padded_layout(lengths)


def test_padding_of_the_gate_is_minus_1e4_where_raw_and_zero_where_activated():
    assert gate_pad(Gate()) == gate_pad(Gate("unbounded")) == -1e4
    assert gate_pad(Gate("activated")) == gate_pad(Gate("activated", -5.0)) == 0.0
