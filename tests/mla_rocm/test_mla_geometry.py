"""Sizes, split lengths and the choice of the split count: integers, pinned."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_rocm import MlaArgumentError
from mla_rocm.geometry import (
    CPX_COMPUTE_UNITS,
    SPLIT_TILE,
    MlaGeometry,
    choose_num_kv_splits,
    needs_int64_offsets,
    resident_workgroups,
    row_major_offset,
    split_bounds,
    split_length,
    stage1_rounds,
    stage1_workgroups,
)


def test_k3_under_tp8_is_the_default():
    geometry = MlaGeometry()
    assert (geometry.heads, geometry.latent, geometry.rope) == (12, 512, 64)
    assert (geometry.absorbed_qk_dim, geometry.absorbed_v_dim) == (576, 512)
    assert (geometry.decompressed_qk_dim, geometry.decompressed_v_dim) == (192, 128)


def test_the_scale_is_that_of_the_decompressed_key_in_both_forms():
    assert MlaGeometry().scale == pytest.approx(192**-0.5)
    assert MlaGeometry().scale != pytest.approx(576**-0.5)


def test_a_cached_token_is_1152_bytes_in_bf16():
    assert MlaGeometry().cache_bytes_per_token() == 1152
    assert MlaGeometry().cache_bytes_per_token(itemsize=4) == 2304


@pytest.mark.parametrize("field", ["heads", "latent", "rope", "nope", "v_head_dim"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_size_that_is_no_positive_integer_is_refused_by_name(field, value):
    with pytest.raises(MlaArgumentError, match=f"geometry.{field}"):
        MlaGeometry(**{field: value})


@pytest.mark.parametrize(
    ("context", "splits", "length", "bounds"),
    [
        (0, 4, 0, ()),
        (1, 1, 32, ((0, 1),)),
        (5, 8, 32, ((0, 5),)),
        (20, 2, 32, ((0, 20),)),
        (33, 2, 32, ((0, 32), (32, 33))),
        (140, 4, 64, ((0, 64), (64, 128), (128, 140))),
        (140, 5, 32, ((0, 32), (32, 64), (64, 96), (96, 128), (128, 140))),
        (4096, 3, 1376, ((0, 1376), (1376, 2752), (2752, 4096))),
        (4096, 4096, 32, tuple((32 * i, 32 * i + 32) for i in range(128))),
    ],
)
def test_split_lengths_are_whole_tiles_and_splits_past_the_end_are_absent(
    context, splits, length, bounds
):
    assert split_length(context, splits) == length
    assert split_bounds(context, splits) == bounds


@settings(deadline=None)
@given(context=st.integers(0, 2**21), splits=st.integers(1, 1024))
def test_splits_partition_the_context(context, splits):
    bounds = split_bounds(context, splits)
    assert len(bounds) <= splits
    assert [0, *(end for _, end in bounds)] == [*(start for start, _ in bounds), context]
    assert all(start < end for start, end in bounds)
    assert all((end - start) % SPLIT_TILE == 0 for start, end in bounds[:-1])


def test_the_device_holds_512_workgroups_and_a_cpx_partition_64():
    assert resident_workgroups(256) == 512
    assert resident_workgroups(CPX_COMPUTE_UNITS) == 64


@pytest.mark.parametrize(
    ("splits", "workgroups", "rounds"), [(21, 504, 1), (22, 528, 2), (42, 1008, 2), (43, 1032, 3)]
)
def test_batch_24_needs_a_second_round_from_22_splits_on(splits, workgroups, rounds):
    assert stage1_workgroups(24, 12, splits) == workgroups
    assert stage1_rounds(24, 12, splits, 256) == rounds


@pytest.mark.parametrize(
    ("heads", "workgroups"), [(1, 1), (3, 1), (9, 1), (16, 1), (17, 2), (63, 4), (126, 8)]
)
def test_up_to_16_heads_share_a_workgroup(heads, workgroups):
    assert stage1_workgroups(1, heads, 1) == workgroups


# Pinned: a change here changes every launch, and shows in review.
SPLIT_TABLE = {
    # (context, batch): (whole MI355X, CPX partition)
    (0, 1): (1, 1),
    (5, 1): (1, 1),
    (32, 1): (1, 1),
    (140, 1): (5, 5),
    (4096, 1): (32, 32),
    (4096, 8): (32, 8),
    (4096, 24): (19, 8),
    (4096, 128): (4, 1),
    (32768, 1): (86, 64),
    (32768, 24): (21, 8),
    (65536, 1): (128, 64),
    (65536, 8): (64, 8),
    (69632, 24): (21, 8),
    (69632, 136): (15, 8),
    (524288, 1): (349, 64),
    (1047552, 1): (496, 64),
    (1047552, 24): (64, 8),
}


@pytest.mark.parametrize(
    ("context", "batch"), SPLIT_TABLE, ids=[f"L{c}-B{b}" for c, b in SPLIT_TABLE]
)
def test_the_chosen_split_count_is_the_pinned_one(context, batch):
    whole, cpx = SPLIT_TABLE[context, batch]
    assert choose_num_kv_splits((context,) * batch, 12) == whole
    assert choose_num_kv_splits((context,) * batch, 12, compute_units=CPX_COMPUTE_UNITS) == cpx


@settings(deadline=None)
@given(
    longest=st.integers(1, 2**20),
    batch=st.integers(1, 160),
    heads=st.sampled_from([1, 12, 16, 63, 126]),
    compute_units=st.sampled_from([256, 32]),
)
def test_the_choice_is_never_longer_than_one_split_and_leaves_none_unwritten(
    longest, batch, heads, compute_units
):
    chosen = choose_num_kv_splits((longest,) * batch, heads, compute_units=compute_units)
    assert 1 <= chosen <= 512
    assert len(split_bounds(longest, chosen)) == chosen, "every split of the longest is written"

    def stage1_keys(splits):
        return stage1_rounds(batch, heads, splits, compute_units) * split_length(longest, splits)

    assert stage1_keys(chosen) <= stage1_keys(1)


def test_the_longest_sequence_decides_and_empty_ones_do_not():
    assert choose_num_kv_splits((0, 7, 65536), 12) == choose_num_kv_splits((65536,) * 3, 12)
    assert choose_num_kv_splits((), 12) == choose_num_kv_splits((0, 0), 12) == 1


@pytest.mark.parametrize("argument", ["heads", "compute_units", "max_kv_splits"])
def test_a_bound_below_one_is_refused(argument):
    arguments = {"heads": 12, "compute_units": 256, "max_kv_splits": 512, argument: 0}
    with pytest.raises(MlaArgumentError, match=f"{argument} 0"):
        choose_num_kv_splits((64,), **arguments)


@pytest.mark.parametrize(
    ("shape", "overflows"),
    [
        ((64, 128, 512, 512), False),  # 2^31 elements: the last offset is 2^31 - 1
        ((65, 128, 512, 512), True),
        ((128, 128, 512, 512), True),
        ((256, 12, 64, 512), False),
        ((3_728_270, 576), False),
        ((3_728_271, 576), True),
    ],
    ids=str,
)
def test_offsets_past_int32_are_found(shape, overflows):
    last = row_major_offset([size - 1 for size in shape], shape)
    assert needs_int64_offsets(shape) == overflows == (last > 2**31 - 1)


def test_the_offset_of_a_partial_result_is_exact_where_int32_would_wrap():
    shape = (128, 128, 512, 512)
    offset = row_major_offset((127, 127, 511, 0), shape)
    assert offset == 127 * 2**25 + 127 * 2**18 + 511 * 512 == 2**32 - 512
    assert offset & (2**32 - 1) != offset & (2**31 - 1), "int32 would read this as negative"


@pytest.mark.parametrize("indices", [(-1, 0), (0, 3)])
def test_an_index_outside_its_dimension_is_refused(indices):
    with pytest.raises(MlaArgumentError, match="outside a dimension"):
        row_major_offset(indices, (2, 3))
