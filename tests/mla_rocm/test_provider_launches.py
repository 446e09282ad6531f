"""Host code is recorded as it launches; sglang's is asked for what it would do on an MI355X."""

import importlib.util
import types

import pytest
import torch

from mla_rocm import KdaDecodeCase, MlaDecodeCase, MlaPrefillCase
from mla_rocm.errors import MlaArgumentError

pytest.importorskip("triton")

from mla_rocm.kernels.kda_decode import kda_decode_step
from mla_rocm.providers.recording import recorded_launches, replaced
from mla_rocm.providers.sglang_launches import (
    AmdTarget,
    decode_launches,
    extend_launches,
    kda_launches,
)

MI355X = AmdTarget("gfx950", 256)
needs_sglang = pytest.mark.skipif(
    importlib.util.find_spec("sglang") is None, reason="sglang is not installed: see docs/mla.md"
)


def launch(**changes):
    def meta(size, dtype=torch.float32):
        return torch.empty(size, dtype=dtype, device="meta")

    arguments = {
        "packed": meta(64, torch.bfloat16), "a_log": meta(12), "dt_bias": meta(12),
        "state_indices": meta(4, torch.int32), "state_in": meta(2**29), "state_out": meta(64),
        "o": meta(64, torch.bfloat16), "scale": 0.5, "lower_bound": None, "row_stride": 1,
        "HEADS": 12, "K": 128, "V": 128, "K_PAD": 128, "BLOCK_V": 32, "BOUNDED": True,
    }  # fmt: skip
    kda_decode_step[lambda meta: (meta["HEADS"], 2)](**{**arguments, "num_warps": 1, **changes})


def test_a_launch_is_recorded_and_not_run():
    with recorded_launches() as launches:
        launch()
    [call] = launches
    assert (call.kernel, call.grid, call.options) == (
        kda_decode_step,
        (12, 2, 1),
        {"num_warps": 1},
    )


def test_arguments_are_specialised_as_the_runtime_does():
    with recorded_launches() as launches:
        launch()
    found = launches[0].specialized("hip", "gfx950", 64)
    assert found.signature["packed"] == "*bf16"
    assert found.constexprs["lower_bound"] is None and found.constexprs["K"] == 128
    assert found.attrs[3,] == [["tt.divisibility", 16], ["tt.pointer_range", 32]]
    # 2^29 floats are 2 GiB.
    assert found.attrs[4,] == [["tt.divisibility", 16]]


def test_what_is_asked_for_instead_must_be_there():
    with recorded_launches() as launches:
        launch()
    launches[0].take_instead({"num_warps": 2, "BLOCK_V": 16})
    assert launches[0].options == {"num_warps": 2} and launches[0].named["BLOCK_V"] == 16
    with pytest.raises(MlaArgumentError, match="has no BLOCK_N"):
        launches[0].take_instead({"BLOCK_N": 64})


def test_recording_and_replacing_end_with_their_block():
    from triton.runtime.jit import JITFunction

    run, module = JITFunction.run, types.ModuleType("host")
    module.flag = 1
    with pytest.raises(RuntimeError), recorded_launches(), replaced(module, flag=2, other=3):
        assert module.flag == 2 and not hasattr(module, "other")
        raise RuntimeError
    assert JITFunction.run is run and module.flag == 1


def test_another_vendors_target_is_refused():
    with pytest.raises(MlaArgumentError, match="arch is 90"):
        AmdTarget("90", 132)


@needs_sglang
@pytest.mark.parametrize(
    ("context", "written"), [(4096, 128), (32768, 171), (65536, 205), (1_047_552, 256)]
)
def test_the_scheduler_gives_the_split_counts_of_the_published_run(context, written):
    stage1, stage2 = decode_launches(MlaDecodeCase((context,)), MI355X)
    assert stage1.busy_workgroups == stage2.iterations == written
    assert stage1.grid == (1, 1, 256)
    assert stage1.options["num_warps"] == 4 and stage1.iteration_bytes == 16 * 1152


@needs_sglang
def test_the_tuned_launch_is_the_published_one():
    stage1, stage2 = decode_launches(MlaDecodeCase((69632,) * 24), MI355X, "tuned")
    assert stage1.grid == (24, 1, 21)
    assert (stage1.options["num_warps"], stage1.iteration_bytes) == (2, 32 * 1152)
    assert stage2.constexprs["FORCED_KV_SPLITS"] == 21
    many, _ = decode_launches(MlaDecodeCase((69632,) * 136), MI355X, "tuned")
    assert many.grid == (136, 1, 7) and many.options["num_warps"] == 1
    asked, _ = decode_launches(MlaDecodeCase((69632,) * 24, num_kv_splits=22), MI355X, "tuned")
    assert asked.grid == (24, 1, 22)


@needs_sglang
def test_both_forms_of_extend_are_described():
    (fresh,) = extend_launches(MlaPrefillCase((16384,)), MI355X)
    assert (fresh.name, fresh.grid, fresh.options["num_warps"]) == (
        "decompressed",
        (1, 12, 128),
        8,
    )
    (after,) = extend_launches(MlaPrefillCase((16384,), (16384,)), MI355X)
    assert (after.name, after.grid, after.iterations) == ("absorbed", (1, 12, 256), 1024)
    assert after.flops / fresh.flops == pytest.approx(10.2, abs=0.05)


@needs_sglang
def test_the_packed_recurrence_is_48_workgroups_of_one_wave():
    (step,) = kda_launches(KdaDecodeCase(1), MI355X)
    assert (step.grid, step.options["num_warps"]) == ((4, 1, 12), 1)
    with pytest.raises(MlaArgumentError, match="kernel of its own"):
        kda_launches(KdaDecodeCase(8), MI355X)


@needs_sglang
def test_what_sglang_does_not_take_is_refused():
    for case, variant in (
        (MlaDecodeCase((0, 64)), "default"),
        (MlaDecodeCase((64,), heads=1), "default"),
        (MlaDecodeCase((64,), num_kv_splits=2), "lean"),
    ):
        with pytest.raises(MlaArgumentError):
            decode_launches(case, MI355X, variant)
    with pytest.raises(MlaArgumentError, match="no new tokens"):
        extend_launches(MlaPrefillCase((0,), (9,)), MI355X)
