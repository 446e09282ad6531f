"""Stage 1 and stage 2 apart: each can be checked by itself, and together they are the whole."""

import pytest
import torch
from mla_devices import HALF, INTERPRETED, on_devices

from mla_rocm import (
    DECODE_IMPLEMENTATIONS,
    MlaDecodeCase,
    Outputs,
    make_decode_inputs,
    max_abs_error,
    reference_decode,
    tolerance_for,
)
from mla_rocm.base import no_stages
from mla_rocm.geometry import split_bounds
from mla_rocm.numerics import merge_partials

CASES = [
    MlaDecodeCase((5, 300, 140), heads=3, num_kv_splits=4, dtype="float32"),
    MlaDecodeCase((70,), num_kv_splits=3, dtype=HALF),
]
STAGED = [
    pytest.param(name, device, case, id=f"{name}-{case.id}-{device}")
    for case in CASES
    for name, device in on_devices(DECODE_IMPLEMENTATIONS, case)
    if DECODE_IMPLEMENTATIONS[name].can_run_stages is not no_stages
]
every_staged = pytest.mark.parametrize(("name", "device", "case"), STAGED)


def test_an_implementation_with_stages_runs_here():
    assert {param.values[0] for param in STAGED} & {"torch_splitkv", "triton"}


@every_staged
def test_stage_1_alone_leaves_parts_that_merge_into_the_answer(name, device, case):
    inputs = make_decode_inputs(case, device)
    partials = DECODE_IMPLEMENTATIONS[name].bind(inputs).stages["stage1"]()
    merged = Outputs(*merge_partials(partials.o, partials.lse, partials.dim))
    error = max_abs_error(merged, reference_decode(inputs))
    assert error <= tolerance_for(case.dtype).max_abs_error
    written = sum(len(split_bounds(n, case.num_kv_splits)) for n in case.context_lengths)
    assert int(partials.lse.isfinite().sum()) == written * case.heads


@every_staged
def test_stage_2_alone_merges_what_stage_1_left(name, device, case):
    inputs = make_decode_inputs(case, device)
    bound = DECODE_IMPLEMENTATIONS[name].bind(inputs)
    whole = bound.fn()
    bound.stages["stage1"]()
    for _ in range(2):  # a stage is timed again and again
        outputs = bound.stages["stage2"]()
        assert torch.equal(outputs.o, whole.o) and torch.equal(outputs.lse, whole.lse)


@every_staged
def test_a_stage_1_that_loses_a_split_is_found_wrong(name, device, case):
    inputs = make_decode_inputs(case, device)
    partials = DECODE_IMPLEMENTATIONS[name].bind(inputs).stages["stage1"]()
    lost = partials.lse.clone()
    lost.select(partials.dim, 1).fill_(float("-inf"))
    merged = Outputs(*merge_partials(partials.o, lost, partials.dim))
    error = max_abs_error(merged, reference_decode(inputs))
    assert error > 2 * tolerance_for(case.dtype).max_abs_error


@pytest.mark.parametrize("name", ["torch_dense", "aiter"])
def test_one_pass_has_no_stages_and_says_so(name):
    support = DECODE_IMPLEMENTATIONS[name].can_run_stages("cpu", MlaDecodeCase((64,)))
    assert not support.ok and "one pass" in support.reason


def test_the_stages_of_a_kernel_that_cannot_run_here_give_its_reason():
    if INTERPRETED:
        pytest.skip("the interpreter runs it")
    triton = DECODE_IMPLEMENTATIONS["triton"]
    case = MlaDecodeCase((64,))
    assert triton.can_run_stages("cpu", case) == triton.can_run("cpu", case)
