"""Launch descriptions: grids, split counts, bytes and FLOPs pinned, and code objects for gfx950."""

import re
import subprocess
import sys

import pytest
import torch

from mla_rocm import KdaDecodeCase, MlaDecodeCase, MlaGeometry, MlaPrefillCase
from mla_rocm.cost import prefill_attention_flops
from mla_rocm.decode_plan import BATCH_INVARIANT_SPLITS, BLOCK_N, choose_splits, plan_decode
from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import CPX_COMPUTE_UNITS, split_length
from mla_rocm.paging import lay_out_pages
from mla_rocm.prefill_plan import PREFILL_FORMS, plan_prefill

pytest.importorskip("triton")

from mla_rocm.launches import (
    decode_launches,
    kda_decode_launches,
    pool_pages,
    prefill_launches,
)
from mla_rocm.providers.recording import recorded_launches

# Pinned: a change here changes every launch, and shows in review.
SPLIT_TABLE = {
    # (context, batch): (whole MI355X, CPX partition)
    (0, 1): (1, 1),
    (5, 1): (1, 1),
    (140, 1): (5, 5),
    (1024, 1): (32, 32),
    (4096, 1): (128, 43),
    (4096, 8): (43, 8),
    (4096, 24): (16, 2),
    (4096, 128): (4, 1),
    (32768, 1): (342, 64),
    (65536, 1): (410, 64),
    (65536, 8): (64, 8),
    (69632, 24): (21, 8),
    (69632, 136): (11, 8),
    (524288, 1): (512, 64),
    (1047552, 1): (512, 64),
    (1047552, 24): (21, 8),
}


@pytest.mark.parametrize(
    ("context", "batch"), SPLIT_TABLE, ids=[f"L{c}-B{b}" for c, b in SPLIT_TABLE]
)
def test_the_chosen_split_count_is_the_pinned_one(context, batch):
    whole, cpx = SPLIT_TABLE[context, batch]
    assert choose_splits(context, batch, 12) == whole
    assert choose_splits(context, batch, 12, CPX_COMPUTE_UNITS) == cpx


def test_split_lengths_are_whole_stage_1_tiles():
    assert all(split_length(n, s) % BLOCK_N == 0 for n in range(0, 5000, 77) for s in (1, 7, 64))


def test_a_batch_invariant_plan_ignores_the_batch():
    geometry = MlaGeometry()
    plans = {
        plan_decode(lengths, geometry, compute_units=units, batch_invariant=True)
        for lengths in [(5,), (65536,), (65536,) * 128, (1, 1047552)]
        for units in (32, 256)
    }
    assert len(plans) == 1 and plans.pop().num_kv_splits == BATCH_INVARIANT_SPLITS


@pytest.mark.parametrize(
    ("splits", "block_s", "block_d"),
    [(1, 1, 512), (4, 4, 512), (16, 16, 512), (21, 32, 256), (410, 512, 32), (2000, 512, 32)],
)
def test_stage_2_reduces_blocks_of_splits(splits, block_s, block_d):
    plan = plan_decode((65536,), MlaGeometry(), num_kv_splits=splits)
    assert (plan.block_s, plan.block_d) == (block_s, block_d)


@pytest.mark.parametrize("argument", ["num_kv_splits", "compute_units"])
def test_a_count_below_one_is_refused(argument):
    with pytest.raises(MlaArgumentError, match=f"{argument} is 0"):
        plan_decode((64,), MlaGeometry(), **{argument: 0})


def test_a_decode_step_reads_the_cache_once_and_its_partials_once():
    stage1, stage2 = decode_launches(MlaDecodeCase((1_047_552,), num_kv_splits=512))
    assert stage1.grid == (512, 1, 1) and stage2.grid == (16, 12, 1)
    cache = 1_047_552 * 1152
    queries, table, length = 512 * 12 * 576 * 2, 1_047_552 // 64 * 4, 4
    # Splits of 2,048 keys are whole pages; the last is short.
    assert stage1.read_bytes == cache + queries + table + length
    assert stage1.written_bytes == 512 * 12 * 513 * 4 == stage2.read_bytes - 4
    assert stage2.written_bytes == 12 * (512 * 2 + 4)
    assert stage1.flops == 2 * 12 * (576 + 512) * 1_047_552
    assert stage1.iterations == 2048 // 32 and stage2.iterations == 1


def test_bytes_count_what_is_visited_not_what_is_allocated():
    ragged, _ = decode_launches(MlaDecodeCase((64, 0, 6400), num_kv_splits=4))
    alone, _ = decode_launches(MlaDecodeCase((6400,), num_kv_splits=4))
    short, _ = decode_launches(MlaDecodeCase((64,), num_kv_splits=4))
    assert ragged.read_bytes == alone.read_bytes + short.read_bytes + 4
    assert short.grid == (2, 1, 1), "two tiles of 32 make two splits of the four asked for"


def test_batch_24_fills_one_round_and_not_a_second():
    stage1, _ = decode_launches(MlaDecodeCase((69632,) * 24))
    assert stage1.workgroups == 504


@pytest.mark.parametrize("form", PREFILL_FORMS)
def test_every_form_scores_every_pair_once(form):
    new, prefix = (40, 0, 7, 100), (35, 9, 0, 64)
    expected = sum(c * p + c * (c + 1) // 2 for c, p in zip(new, prefix, strict=True))
    for chunk in (1, 16, 33, 1000):
        assert sum(step.pairs for step in plan_prefill(new, prefix, form, chunk)) == expected


def test_the_absorbed_prefix_costs_the_published_multiple_of_flops():
    case = MlaPrefillCase((16384,), (16384,))
    flops = {
        form: sum(launch.flops for launch in prefill_launches(case, form)) for form in PREFILL_FORMS
    }
    assert flops["decompressed"] == flops["chunked_decompressed"]
    whole = prefill_attention_flops(MlaGeometry(), 16384, 16384, new_form="absorbed")
    assert flops["absorbed"] == whole
    # The second half of 32K against the first, each in its published form: 1.03e12, 1.05e13.
    first = prefill_launches(MlaPrefillCase((16384,)), "decompressed")[0].flops
    assert flops["absorbed"] / first == pytest.approx(10.2, abs=0.05)
    names = [launch.name for launch in prefill_launches(case, "chunked_absorbed")]
    assert names == ["decompressed-causal", "absorbed-prefix"]


def test_a_kda_step_moves_each_state_in_and_out_once():
    (step,) = kda_decode_launches(KdaDecodeCase(1))
    assert step.grid == (4, 12, 1) and step.options["num_warps"] == 1
    state = 12 * 128 * 128 * 4
    assert 69 * state == 54_263_808  # over K3's KDA layers
    assert step.read_bytes == state + 12 * (4 * 128 + 1) * 2 + 12 * 129 * 4 + 4
    assert step.written_bytes == state + 12 * 128 * 2
    (batched,) = kda_decode_launches(KdaDecodeCase(256, padded=6))
    assert batched.grid == (4, 12, 256) and batched.flops == 250 * 7 * 12 * 128 * 128


@pytest.mark.parametrize(
    ("context", "batch", "marked"),
    [(65536, 1, True), (1_047_552, 1, True), (69632, 24, True), (69632, 136, False)],
    ids=["64K", "1M", "1.9 GB", "10.9 GB"],
)
def test_only_a_cache_under_2_gib_has_a_32_bit_range(context, batch, marked):
    stage1, _ = decode_launches(MlaDecodeCase((context,) * batch))
    cache = list(stage1.signature).index("kv_cache")
    assert (["tt.pointer_range", 32] in stage1.attrs[cache,]) is marked
    assert ["tt.divisibility", 16] in stage1.attrs[cache,]
    assert ["tt.pointer_range", 32] in stage1.attrs[list(stage1.signature).index("q"),]


def test_attributes_are_those_that_the_runtime_derives_from_the_tensors():
    case = MlaDecodeCase((69632,) * 30, num_kv_splits=4)
    stage1, _ = decode_launches(case)

    def tensor(name, kind):
        dtype = {"*bf16": torch.bfloat16, "*fp32": torch.float32, "*i32": torch.int32}[kind]
        size = stage1.storage_bytes[name] // dtype.itemsize
        return torch.empty(size, dtype=dtype, device="meta")

    scalars = {"fp32": 0.5, "i32": 7}
    arguments = {
        name: scalars[kind] if kind in scalars else tensor(name, kind)
        for name, kind in stage1.signature.items()
        if kind != "constexpr"
    }
    with recorded_launches() as recorded:
        stage1.kernel[stage1.grid](**arguments, **stage1.constexprs, **stage1.options)
    [call] = recorded
    found = call.specialized("hip", "gfx950", 64)
    assert found.attrs == stage1.attrs
    assert found.signature == stage1.signature
    assert (call.grid, call.options) == (stage1.grid, stage1.options)


@pytest.mark.parametrize("table", ["contiguous", "shared"])
def test_the_pool_is_as_large_as_the_laid_out_one(table):
    lengths = (1000, 130, 0, 64)
    _, pages = lay_out_pages(lengths, 64, table, torch.Generator())
    assert pool_pages(lengths, 64, table) == pages


def test_a_causal_prefill_states_its_longest_and_its_mean_workgroup():
    (launch,) = prefill_launches(MlaPrefillCase((16384,)), "decompressed")
    assert launch.iterations == 16384 // 32
    # Tiles of 128 queries see 4, 8, ..., 512 tiles of 32 keys.
    assert launch.mean_iterations == pytest.approx((4 + 512) / 2)
    assert launch.busy_workgroups == launch.workgroups == 128 * 12
    ragged, _ = decode_launches(MlaDecodeCase((64, 6400), num_kv_splits=4))
    assert (ragged.workgroups, ragged.busy_workgroups) == (8, 6)


COMPILED = {
    "decode-page64": lambda: decode_launches(MlaDecodeCase((65536,))),
    "decode-page1": lambda: decode_launches(MlaDecodeCase((65536,), page_size=1)),
    "decode-page16-B24": lambda: decode_launches(MlaDecodeCase((69632,) * 24, page_size=16)),
    "prefill": lambda: (
        *prefill_launches(MlaPrefillCase((16384,), (16384,)), "absorbed"),
        *prefill_launches(MlaPrefillCase((16384,)), "decompressed"),
    ),
    "kda": lambda: kda_decode_launches(KdaDecodeCase(1)),
}


@pytest.mark.parametrize("what", COMPILED)
def test_code_objects_for_gfx950_have_no_scratch_and_the_planned_residency(
    what, tmp_path, monkeypatch
):
    import triton
    from triton.backends.compiler import GPUTarget

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for launch in COMPILED[what]():
        built = triton.compile(
            launch.source(), target=GPUTarget("hip", "gfx950", 64), options=launch.options
        )
        assembly = built.asm["amdgcn"]

        def field(name, assembly=assembly):
            return int(re.search(rf"{name}:\s+(\d+)", assembly)[1])

        assert field(r"\.private_segment_fixed_size") == 0, launch.name
        assert "scratch_" not in assembly
        assert built.metadata.shared <= 160 * 1024
        if launch.name == "stage1":
            # Two workgroups a compute unit, by registers and by LDS: 72 KB of keys in flight.
            assert field(r"\.vgpr_count") <= 256
            assert 2 * built.metadata.shared <= 160 * 1024


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else find(name, *rest)
import torch
torch.version.hip = "7.0"
import mla_rocm
case = mla_rocm.MlaDecodeCase((64,))
found = mla_rocm.DECODE_IMPLEMENTATIONS["triton"].can_run("rocm", case)
assert not found.ok and "triton is not installed" in found.reason, found
assert mla_rocm.DECODE_IMPLEMENTATIONS["torch_splitkv"].can_run("rocm", case).ok
"""


@pytest.mark.parametrize(
    "script",
    [WITHOUT_TRITON, "import sys, mla_rocm; assert 'triton.language' not in sys.modules"],
    ids=["without-triton", "not-imported-early"],
)
def test_importing_the_room_needs_no_triton(script):
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
