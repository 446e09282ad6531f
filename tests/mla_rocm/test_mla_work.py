"""Bytes and FLOPs of one call: what is visited, once, and as the launches count it."""

import pytest

from mla_rocm import KdaDecodeCase, MlaDecodeCase, MlaPrefillCase, make_decode_inputs
from mla_rocm.inputs import owned_slots
from mla_rocm.work import (
    decode_memory_bytes,
    decode_stage_work,
    decode_work,
    distinct_pages,
    distinct_tokens,
    kda_decode_work,
    prefill_memory_bytes,
    prefill_work,
)


def test_a_decode_step_at_one_million_tokens_moves_the_cache_and_little_else():
    work = decode_work(MlaDecodeCase((1_047_552,)))
    cache = 1_047_552 * 1152
    assert 24 * cache == pytest.approx(28.96e9, rel=5e-4)
    table, length, q, o = 1_047_552 // 64 * 4, 4, 12 * 576 * 2, 12 * (512 * 2 + 4)
    assert work.hbm_bytes == cache + table + length + q + o
    assert work.flops == 1_047_552 * 26_112


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("table", ["contiguous", "shuffled", "shared"])
def test_tokens_and_pages_are_counted_as_the_tables_hold_them(page_size, table):
    case = MlaDecodeCase((64, 130, 200, 0), page_size=page_size, table=table)
    if table == "shared":
        assert distinct_tokens(case) < case.tokens
    inputs = make_decode_inputs(case)
    slots = owned_slots(inputs.block_table, inputs.seq_lens, page_size)
    visited = {int(slot) for row in slots for slot in row}
    assert distinct_tokens(case) == len(visited)
    assert distinct_pages(case) == len({slot // page_size for slot in visited})


def test_the_two_stages_move_the_step_and_the_partials_twice():
    case = MlaDecodeCase((1000, 70))
    rows = 12 * 9
    one, two = (decode_stage_work(case, stage, rows) for stage in ("stage1", "stage2"))
    whole = decode_work(case)
    partials = rows * 513 * 4
    assert one.hbm_bytes + two.hbm_bytes == whole.hbm_bytes + 2 * partials + 4 * case.batch
    assert one.flops == whole.flops and two.flops == 2 * rows * 512


def test_the_work_is_what_the_launches_say_they_move():
    pytest.importorskip("triton")
    from mla_rocm.launches import decode_launches, kda_decode_launches, prefill_launches

    # One split: the launches read queries and table entries once, as the mathematics does.
    case = MlaDecodeCase((4096, 640, 64), num_kv_splits=1)
    stages = zip(("stage1", "stage2"), decode_launches(case), strict=True)
    for stage, launch in stages:
        work = decode_stage_work(case, stage, partial_rows=3 * 12)
        assert work.hbm_bytes == launch.read_bytes + launch.written_bytes
        assert work.flops == launch.flops
    for kda in (KdaDecodeCase(1), KdaDecodeCase(256, padded=6)):
        (launch,) = kda_decode_launches(kda)
        work = kda_decode_work(kda)
        assert work.hbm_bytes == launch.read_bytes + launch.written_bytes
        assert work.flops == launch.flops
    prefill = MlaPrefillCase((300, 40), (64, 0))
    for form in ("decompressed", "absorbed", "chunked_decompressed", "chunked_absorbed"):
        launches = prefill_launches(prefill, form)
        work = prefill_work(prefill, form)
        assert work.attention_flops == sum(launch.flops for launch in launches)
        assert work.hbm_bytes > sum(launch.read_bytes + launch.written_bytes for launch in launches)


def test_kda_states_over_69_layers_are_the_published_54_mb_in_and_out():
    state = 12 * 128 * 128 * 4
    work = kda_decode_work(KdaDecodeCase(1))
    assert 69 * state == pytest.approx(54.3e6, rel=1e-3)
    assert work.hbm_bytes == pytest.approx(2 * state, rel=0.02)


def test_memory_needed_covers_the_inputs_and_grows_with_what_is_held_not_what_is_attended():
    case = MlaDecodeCase((5000, 3000), page_size=16)
    inputs = make_decode_inputs(case)
    assert decode_memory_bytes(case) > inputs.kv_cache.nbytes + inputs.block_table.nbytes
    # 128 sequences of a million tokens: 154 GB of cache on MI355X's 288 GB.
    huge = decode_memory_bytes(MlaDecodeCase((1_047_552,) * 128))
    assert 154e9 < huge < 180e9
    shared = decode_memory_bytes(MlaDecodeCase((1_047_552,) * 128, table="shared"))
    assert shared < 0.6 * huge
    assert prefill_memory_bytes(MlaPrefillCase((16_384,), (1_031_168,))) > 1_047_552 * 12 * 320 * 4
