"""The aiter adapter, against a recording stand-in that computes from its arguments alone."""

import dataclasses
import importlib.util
import sys
import types

import fake_aiter
import pytest
import torch

from mla_rocm import (
    DECODE_IMPLEMENTATIONS,
    MlaDecodeCase,
    make_decode_inputs,
    max_abs_error,
    mla_decode,
    reference_decode,
    tolerance_for,
)
from mla_rocm.inputs import poison_decode_inputs
from mla_rocm.providers.aiter_mla import HEAD_COUNTS, NOT_INSTALLED, padded_heads

AITER = DECODE_IMPLEMENTATIONS["aiter"]

CASES = [
    MlaDecodeCase((5, 20, 21, 140)),
    *(
        MlaDecodeCase((64, 130, 200), page_size=page, table=table)
        for page in (1, 16, 64)
        for table in ("contiguous", "shuffled", "shared")
    ),
    *(MlaDecodeCase((20, 70), heads=heads) for heads in (1, 3, 9, 16, 63, 126)),
    MlaDecodeCase((140, 1000), num_kv_splits=7),
]


@pytest.fixture(params=[False, True], ids=["newer-release", "older-release"])
def aiter(request, monkeypatch):
    """The stand-in installed as aiter, on a torch that is built for ROCm."""
    module = fake_aiter.module(old_release=request.param)
    _install(monkeypatch, module)
    return module


def _install(monkeypatch, module):
    package = types.ModuleType("aiter")
    package.__path__ = []
    package.__spec__ = importlib.util.spec_from_loader("aiter", None)
    monkeypatch.setitem(sys.modules, "aiter", package)
    monkeypatch.setitem(sys.modules, "aiter.mla", module)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "7.1")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_aiter_is_given_describes_the_case(aiter, case):
    assert AITER.can_run("rocm", case).ok
    inputs = poison_decode_inputs(make_decode_inputs(case))
    bound = AITER.bind(inputs)
    outputs = bound.fn()
    error = max_abs_error(outputs, reference_decode(inputs))
    assert error <= tolerance_for(case.dtype).max_abs_error
    assert outputs.o.shape == (case.batch, case.heads, 512)
    assert outputs.lse is None
    assert bound.executed_tokens == case.tokens
    [call] = aiter.calls
    assert call["sm_scale"] == pytest.approx(192**-0.5), "aiter's own default is 576^-0.5"
    assert call["num_kv_splits"] == case.num_kv_splits
    assert call["kv_buffer"].untyped_storage().data_ptr() == (
        inputs.kv_cache.untyped_storage().data_ptr()
    ), "the cache is passed as it lies, not copied"


def test_the_verdict_needs_the_right_scale_and_the_right_slots(aiter):
    inputs = make_decode_inputs(MlaDecodeCase((300, 200)))
    reference = reference_decode(inputs)
    tolerance = tolerance_for("bfloat16").max_abs_error
    outputs = AITER.bind(inputs).fn()
    assert max_abs_error(outputs, reference) <= tolerance
    call = dict(aiter.calls[0])
    for name, wrong in (("sm_scale", None), ("kv_indices", call["kv_indices"].roll(100))):
        changed = torch.empty_like(call["o"])
        aiter.mla_decode_fwd(**{**call, name: wrong, "o": changed})
        wrong_outputs = dataclasses.replace(outputs, o=changed[:, :12])
        assert max_abs_error(wrong_outputs, reference) > 2 * tolerance, name


def test_heads_are_padded_to_the_next_kernel_of_aiters():
    assert [padded_heads(n) for n in (1, 12, 16, 17, 63, 126, 128)] == [
        16,
        16,
        16,
        32,
        64,
        128,
        128,
    ]
    assert padded_heads(129) is None
    assert HEAD_COUNTS == fake_aiter.KERNEL_HEADS


@pytest.mark.parametrize(
    ("case", "platform", "reason"),
    [
        (MlaDecodeCase((5,), heads=129), "rocm", "129 heads"),
        (MlaDecodeCase((5,), dtype="float16"), "rocm", "float16"),
        (MlaDecodeCase((5,), dtype="float32"), "rocm", "float32"),
        (MlaDecodeCase((5, 0)), "rocm", "divides by zero"),
        (MlaDecodeCase((5,)), "cuda", "ROCm alone"),
        (MlaDecodeCase((5,)), "cpu", "ROCm alone"),
    ],
    ids=["heads", "float16", "float32", "empty-context", "cuda", "cpu"],
)
def test_what_aiter_cannot_do_is_refused_with_the_reason(aiter, case, platform, reason):
    support = AITER.can_run(platform, case)
    assert not support.ok and reason in support.reason
    assert not aiter.calls


@pytest.mark.parametrize("platform", ["cpu", "rocm"])
def test_an_absent_aiter_is_the_reason_with_how_to_get_it(platform, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    support = AITER.can_run(platform, MlaDecodeCase((64,)))
    assert not support.ok and support.reason == NOT_INSTALLED and "\n" not in support.reason


def test_another_package_of_that_name_is_not_taken_for_aiter(monkeypatch):
    _install(monkeypatch, None)  # None makes the import of aiter.mla fail
    support = AITER.can_run("rocm", MlaDecodeCase((64,)))
    assert not support.ok and "aiter.mla does not import" in support.reason


def test_its_stages_are_not_apart_and_the_public_function_returns_no_lse(aiter, monkeypatch):
    case = MlaDecodeCase((64,))
    assert not AITER.can_run_stages("rocm", case).ok
    monkeypatch.setattr("mla_rocm.api.platform_of", lambda device: "rocm")
    inputs = make_decode_inputs(case)
    o, lse = mla_decode(
        inputs.q,
        inputs.kv_cache,
        inputs.block_table,
        inputs.seq_lens,
        geometry=inputs.geometry,
        implementation="aiter",
    )
    assert o.shape == (1, 12, 512) and lse is None
