"""Inputs: seeded, paged, scaled, and free of the traps of public benchmark scripts."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_rocm import (
    MlaDecodeCase,
    MlaPrefillCase,
    make_decode_inputs,
    make_prefill_inputs,
    reference_decode,
    reference_prefill,
)
from mla_rocm.inputs import (
    owned_slots,
    poison_decode_inputs,
    poison_prefill_inputs,
    score_spread,
)
from mla_rocm.paging import SPARE_PAGES, gather_context, lay_out_pages, slot_indices

LENGTHS = (5, 20, 0, 21, 140)


def _tensors(inputs):
    return {
        field.name: value
        for field in dataclasses.fields(inputs)
        if isinstance(value := getattr(inputs, field.name), torch.Tensor)
    }


@pytest.mark.parametrize(
    ("make", "case"),
    [
        (make_decode_inputs, MlaDecodeCase(LENGTHS)),
        (make_prefill_inputs, MlaPrefillCase(LENGTHS, LENGTHS[::-1])),
    ],
    ids=["decode", "prefill"],
)
def test_inputs_depend_on_the_seed_and_on_nothing_else(make, case):
    torch.manual_seed(1)
    first = _tensors(make(case))
    torch.manual_seed(2)
    again = _tensors(make(case))
    other = _tensors(make(dataclasses.replace(case, seed=case.seed + 1)))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["kv_cache"], other["kv_cache"])
    assert not torch.equal(first["q"], other["q"])
    assert not torch.equal(first["block_table"], other["block_table"])


def test_decode_inputs_have_the_documented_shapes_and_types():
    inputs = make_decode_inputs(MlaDecodeCase(LENGTHS, heads=9, page_size=16, num_kv_splits=3))
    assert inputs.q.shape == (5, 9, 576)
    assert inputs.kv_cache.shape[1:] == (16, 576)
    assert inputs.block_table.shape == (5, 9)
    assert inputs.block_table.dtype == inputs.seq_lens.dtype == torch.int32
    assert inputs.seq_lens.tolist() == list(LENGTHS)
    assert inputs.q.dtype == inputs.kv_cache.dtype == torch.bfloat16
    assert inputs.num_kv_splits == 3
    assert inputs.page_size == 16


def test_prefill_inputs_have_the_documented_shapes_and_types():
    inputs = make_prefill_inputs(MlaPrefillCase((3, 0, 4), (0, 70, 5), dtype="float32"))
    assert inputs.q.shape == (7, 12, 192)
    assert inputs.latent_kv.shape == (7, 576)
    assert inputs.w_uk.shape == (12, 128, 512)
    assert inputs.w_uv.shape == (12, 512, 128)
    assert inputs.cu_seqlens.tolist() == [0, 3, 3, 7]
    assert inputs.prefix_lens.tolist() == [0, 70, 5]
    assert inputs.block_table.shape == (3, 2)
    for tensor in (inputs.cu_seqlens, inputs.prefix_lens, inputs.block_table):
        assert tensor.dtype == torch.int32


# The traps.


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 200), min_size=1, max_size=6),
    page_size=st.sampled_from([1, 16, 64]),
    table=st.sampled_from(["contiguous", "shuffled"]),
    seed=st.integers(0, 1000),
)
def test_no_cache_slot_belongs_to_two_tokens(lengths, page_size, table, seed):
    generator = torch.Generator().manual_seed(seed)
    block_table, pool = lay_out_pages(lengths, page_size, table, generator)
    slots = torch.cat(owned_slots(block_table, torch.tensor(lengths), page_size))
    assert slots.numel() == sum(lengths)
    assert slots.unique().numel() == slots.numel(), "indices were drawn with replacement"
    assert slots.numel() == 0 or 0 <= slots.min() <= slots.max() < pool * page_size


def test_a_contiguous_table_is_in_order_and_a_shuffled_one_is_not():
    contiguous = make_decode_inputs(MlaDecodeCase((640, 640), table="contiguous")).block_table
    assert contiguous.flatten().tolist() == list(range(20))
    shuffled = make_decode_inputs(MlaDecodeCase((640, 640), table="shuffled")).block_table
    steps = shuffled.flatten().diff()
    assert (steps != 1).float().mean() > 0.5


def test_shared_tables_share_half_of_the_shortest_sequences_full_pages_and_no_more():
    lengths = (300, 0, 200, 1000)
    inputs = make_decode_inputs(MlaDecodeCase(lengths, page_size=16, table="shared"))
    slots = [set(row.tolist()) for row in owned_slots(inputs.block_table, inputs.seq_lens, 16)]
    common = 16 * 6  # 200 tokens fill 12 pages
    for a, b in itertools.combinations([0, 2, 3], 2):
        assert len(slots[a] & slots[b]) == common
    assert all(len(own) == length for own, length in zip(slots, lengths, strict=True))
    assert inputs.kv_cache.shape[0] == 6 + (19 - 6) + (13 - 6) + (63 - 6) + SPARE_PAGES


@pytest.mark.parametrize("table", ["contiguous", "shuffled", "shared"])
def test_rotary_parts_are_not_zero(table):
    decode = make_decode_inputs(MlaDecodeCase((64, 140), table=table))
    prefill = make_prefill_inputs(MlaPrefillCase((64, 140), (64, 140), table=table))
    for rotary in (
        decode.q[..., 512:],
        decode.kv_cache[..., 512:],
        prefill.q[..., 128:],
        prefill.latent_kv[..., 512:],
        prefill.kv_cache[..., 512:],
    ):
        assert rotary.shape[-1] == 64
        assert rotary.float().std() > 0.5


def test_every_sequence_reads_its_own_rows():
    inputs = make_decode_inputs(MlaDecodeCase((140, 140), page_size=16))
    rows = [gather_context(inputs.kv_cache, inputs.block_table, b, 140) for b in range(2)]
    assert not torch.equal(rows[0], rows[1])
    assert torch.equal(rows[0][16], inputs.kv_cache[inputs.block_table[0, 1], 0])


# Scale.


@pytest.mark.parametrize("context", [5, 140, 4096, 65536])
def test_scores_have_the_stated_spread_and_outputs_stay_visible_at_every_context(context):
    inputs = make_decode_inputs(MlaDecodeCase((context,), dtype="float32", heads=4))
    rows = gather_context(inputs.kv_cache, inputs.block_table, 0, context)
    scores = inputs.q[0] @ rows.T * inputs.geometry.scale
    # A head's spread scatters with its own query's norm and, at 5 keys, with the keys drawn.
    assert scores.pow(2).mean().sqrt() == pytest.approx(
        score_spread(context), rel=0.5 if context < 64 else 0.15
    )
    output_std = reference_decode(inputs).o.std()
    assert 0.1 < output_std < 0.8


def test_prefill_scores_have_the_stated_spread_in_both_parts():
    inputs = make_prefill_inputs(MlaPrefillCase((1024,), dtype="float32", heads=4))
    latent, rotary = inputs.latent_kv.split([512, 64], -1)
    key = torch.einsum("sl,hnl->hsn", latent, inputs.w_uk)
    value = torch.einsum("sl,hlv->hsv", latent, inputs.w_uv)
    assert key.std() == pytest.approx(1.0, rel=0.05)
    assert value.std() == pytest.approx(1.0, rel=0.05)
    assert rotary.std() == pytest.approx(1.0, rel=0.05)
    assert inputs.q.std() == pytest.approx(score_spread(1024), rel=0.05)


def test_spread_grows_with_the_context_so_that_attention_does_not_go_flat():
    assert score_spread(0) == score_spread(43) == 1.0
    assert score_spread(4096) == pytest.approx(2.355, abs=1e-3)
    assert score_spread(1_048_576) == pytest.approx(3.330, abs=1e-3)


# Poison.


def test_poison_is_everywhere_but_in_owned_slots_and_used_table_entries():
    clean = make_decode_inputs(MlaDecodeCase(LENGTHS, page_size=16))
    poisoned = poison_decode_inputs(clean)
    owned = torch.cat(owned_slots(clean.block_table, clean.seq_lens, 16))
    is_owned = torch.zeros(clean.kv_cache.shape[0] * 16, dtype=torch.bool)
    is_owned[owned] = True
    rows = poisoned.kv_cache.flatten(0, 1)
    assert rows[~is_owned].isnan().all()
    assert torch.equal(rows[is_owned], clean.kv_cache.flatten(0, 1)[is_owned])
    for b, length in enumerate(LENGTHS):
        used = -(-length // 16)
        assert torch.equal(poisoned.block_table[b, :used], clean.block_table[b, :used])
        unused = poisoned.block_table[b, used:]
        assert ((unused < 0) | (unused >= clean.kv_cache.shape[0])).all()
    assert (poisoned.block_table < 0).any() and (poisoned.block_table >= 2**30).any()


def test_poison_does_not_reach_the_references():
    decode = make_decode_inputs(MlaDecodeCase(LENGTHS, page_size=16))
    assert torch.equal(reference_decode(poison_decode_inputs(decode)).o, reference_decode(decode).o)
    prefill = make_prefill_inputs(MlaPrefillCase((3, 4), (70, 5)))
    assert torch.equal(
        reference_prefill(poison_prefill_inputs(prefill)).o, reference_prefill(prefill).o
    )


# Addressing.


def test_slots_past_int32_are_exact():
    block_table = torch.tensor([[2**26, 2**31 - 1]], dtype=torch.int32)
    slots = slot_indices(block_table, torch.tensor([0, 0]), torch.tensor([5, 64 + 63]), 64)
    assert slots.tolist() == [2**32 + 5, (2**31 - 1) * 64 + 63]
