"""Bounds of single kernel calls: below every implementation's own bytes, and the fastest way's."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mla_rocm
from k3bench.compiled.tpu import KdaPoint
from k3bench.roofline.calls import (
    KernelCall,
    form_call,
    kda_decode_call,
    kda_prefill_call,
    mla_decode_call,
    mla_prefill_call,
)
from k3bench.roofline.distance import distance_figures, times_bound
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.machine import machine_of
from k3bench.roofline.reference.ways import PROBLEMS
from mla_rocm.work import decode_work, distinct_tokens, kda_decode_work, prefill_work

LENGTHS = st.lists(st.integers(0, 300), min_size=1, max_size=5)
WHOLE = machine_of("mi355x")
V6E = machine_of("tpu-v6e")
assert WHOLE is not None and V6E is not None


@given(LENGTHS)
def test_kda_prefill_moves_what_the_compiled_point_says_in_every_way(lengths: list[int]) -> None:
    point = KdaPoint("any", tuple(lengths), heads=3)
    call = kda_prefill_call([lengths], heads=3)
    for way, cost in call.ways.items():
        assert cost.hbm_bytes == point.required_hbm_bytes, way


def test_a_replay_is_the_sum_of_its_calls() -> None:
    parts = [(30, 0, 130), (64,), (7, 7)]
    whole = kda_prefill_call(parts, heads=4)
    alone = [kda_prefill_call([lengths], heads=4) for lengths in parts]
    for way, cost in whole.ways.items():
        assert cost.hbm_bytes == sum(one.ways[way].hbm_bytes for one in alone)
        assert cost.flops == sum(one.ways[way].flops for one in alone)


def test_the_recurrence_needs_fewer_flops_than_chunks_and_only_vector_units() -> None:
    call = kda_prefill_call([(2048,) * 4], heads=16)
    recurrent, chunked = call.ways["token by token"], call.ways["chunks of 64"]
    assert recurrent.flops == 8192 * 16 * 7 * 128 * 128 < chunked.flops
    assert recurrent.matrix_flops == 0
    found = call.bound(V6E)
    assert (found.way, found.bound.limited_by) == ("chunks of 64", "hbm")
    assert found.bound.seconds == call.usual.hbm_bytes / 1.64e12


@given(LENGTHS.filter(any), st.sampled_from(["float32", "bfloat16"]))
def test_mla_decode_needs_no_more_than_the_kernels_own_count(
    lengths: list[int], dtype: str
) -> None:
    case = mla_rocm.MlaDecodeCase(tuple(lengths), heads=3, dtype=dtype)
    [cost] = mla_decode_call(lengths, heads=3, dtype=dtype).ways.values()
    own = decode_work(case)
    assert cost.flops == own.flops
    # The kernel's count has tables and log-sum-exps besides.
    assert cost.hbm_bytes < own.hbm_bytes <= cost.hbm_bytes + 4 * len(lengths) * (2 + 3 + 5)


def test_rows_that_sequences_share_are_read_once() -> None:
    case = mla_rocm.MlaDecodeCase((640, 640), heads=3, table="shared")
    shared = mla_decode_call((640, 640), heads=3, distinct_tokens=distinct_tokens(case))
    alone = mla_decode_call((640, 640), heads=3)
    saved = alone.usual.hbm_bytes - shared.usual.hbm_bytes
    assert saved == 320 * 1152
    assert shared.usual.flops == alone.usual.flops


@given(st.integers(1, 200))
def test_kda_decode_needs_no_more_than_the_kernels_own_count(batch: int) -> None:
    [cost] = kda_decode_call(batch, heads=12).ways.values()
    own = kda_decode_work(mla_rocm.KdaDecodeCase(batch))
    assert cost.flops == own.flops
    assert own.hbm_bytes - 4 * batch == cost.hbm_bytes  # the slot of every state


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 400)), min_size=1, max_size=4),
    st.sampled_from(["decompressed", "absorbed"]),
)
def test_mla_prefill_needs_no_more_than_a_kernel_of_that_form(
    sequences: list[tuple[int, int]], form: str
) -> None:
    new, prefix = zip(*sequences, strict=True)
    case = mla_rocm.MlaPrefillCase(new, prefix, heads=2)
    call = mla_prefill_call(new, prefix, heads=2)
    own, cost = prefill_work(case, form), call.ways[form]
    assert cost.flops <= own.flops
    assert cost.hbm_bytes <= own.hbm_bytes or not any(new)


def test_the_best_form_of_a_prefill_bounds_every_form_of_it() -> None:
    call = mla_prefill_call((16_384,), (16_384,), heads=12)
    found = call.bound(WHOLE)
    assert (found.way, found.bound.limited_by) == ("decompressed", "matrix")
    mixed = call.ways["decompressed over an absorbed prefix"].bound(WHOLE.hardware).seconds
    assert found.bound.seconds < mixed < call.ways["absorbed"].bound(WHOLE.hardware).seconds
    # One new token behind a long prefix is a decode: absorbed.
    assert mla_prefill_call((1,), (60_000,), heads=12).bound(WHOLE).way == "absorbed"


def test_up_projections_are_read_once_however_many_sequences() -> None:
    one = mla_prefill_call((64,), heads=2).usual
    many = mla_prefill_call((64, 64, 100), heads=2).usual
    assert one.read["weights"] == many.read["weights"] == 2 * 512 * 256 * 2


def test_a_partition_is_bound_by_its_share_of_every_rate() -> None:
    call = mla_decode_call((65_536,), heads=12)
    part = machine_of("mi355x", 32)
    assert part is not None
    assert call.bound(part).bound.seconds == pytest.approx(8 * call.bound(WHOLE).bound.seconds)
    assert "32 of 256 compute units" in call.bound(part).peaks


def test_a_point_that_reaches_its_bound_is_once_as_far() -> None:
    call = kda_decode_call(64, heads=12)
    bound_s = call.bound(WHOLE).bound.seconds
    figures = distance_figures(call, bound_s, "mi355x")
    assert times_bound(figures) == 1.0
    assert figures["roofline.bound_s"] == figures["roofline.hbm_s"] == bound_s
    assert times_bound(distance_figures(call, 3 * bound_s, "mi355x")) == pytest.approx(3)


def test_nothing_to_do_and_unknown_peaks_have_no_bound_and_say_why() -> None:
    empty = distance_figures(mla_prefill_call((0, 0), heads=2), 1e-6, "mi355x")
    assert empty == {"roofline.none": "the call has nothing to do, so there is no bound"}
    unknown = distance_figures(kda_decode_call(1, heads=12), 1e-6, "cpu")
    assert list(unknown) == ["roofline.none"] and "cpu" in str(unknown["roofline.none"])
    assert times_bound(unknown) is None and times_bound(None) is None


def test_a_forms_bound_has_no_cache_rows_that_it_only_reads() -> None:
    problem = PROBLEMS["mla-chunk"]
    rows = problem.cost.written["cache"]
    assert form_call(problem.cost).usual.hbm_bytes == problem.cost.hbm_bytes - rows
    assert form_call(problem.cost).bound(V6E).bound.by_resource["matrix"] == (
        problem.cost.matrix_flops / 1.53e14
    )


def test_an_unknown_dtype_and_a_call_without_ways_are_refused() -> None:
    with pytest.raises(RooflineError, match="dtype 'int4'"):
        kda_decode_call(1, heads=1, dtype="int4")
    with pytest.raises(RooflineError, match="at least one"):
        KernelCall({})


def test_every_way_is_bound_from_below_by_the_call() -> None:
    call = kda_prefill_call([(500,)], heads=8, dtype="float32")
    found = call.bound(V6E).bound.seconds
    for way, cost in call.ways.items():
        alone = replace(call, ways={way: cost})
        assert found <= alone.bound(V6E).bound.seconds
