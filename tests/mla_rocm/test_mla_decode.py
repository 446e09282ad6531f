"""One body of tests for every decode implementation: each edge case that broke a real kernel."""

import dataclasses
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mla_devices import (
    DEVICES,
    HALF,
    INTERPRETED,
    examples,
    on_devices,
    runs_here,
    tensors_of,
)

from mla_rocm import (
    DECODE_IMPLEMENTATIONS,
    MlaDecodeCase,
    MlaDecodeInputs,
    MlaGeometry,
    make_decode_inputs,
    max_abs_error,
    reference_decode,
    tolerance_for,
)
from mla_rocm.decode_torch import plan_gathers
from mla_rocm.decode_triton import bind_decode
from mla_rocm.geometry import split_bounds
from mla_rocm.inputs import poison_decode_inputs

# The lengths that broke real kernels, an empty sequence between them.
LENGTHS = (5, 20, 0, 21, 140)

CASES = [
    *(MlaDecodeCase(LENGTHS, dtype=dtype) for dtype in ("float32", "float16", "bfloat16")),
    *(
        MlaDecodeCase((64, 130, 200), page_size=page, table=table, dtype="float32")
        for page in (1, 16, 64)
        for table in ("contiguous", "shuffled", "shared")
    ),
    *(MlaDecodeCase((20, 70), heads=heads, dtype="float32") for heads in (1, 3, 9, 63, 126)),
    *(
        MlaDecodeCase((140, 0, 1000), num_kv_splits=splits, dtype="float32")
        for splits in (1, 3, 8, 21)
    ),
    MlaDecodeCase((5, 1, 20), num_kv_splits=64, dtype="float32"),
    MlaDecodeCase((0, 0), dtype="float32"),
    MlaDecodeCase((0,), num_kv_splits=4, dtype="float32"),
    MlaDecodeCase(tuple(range(33)), page_size=1, dtype="bfloat16"),
    MlaDecodeCase((4096, 3, 777), dtype="bfloat16"),
]


def _runnable(device):
    return [
        pytest.param(name, case, device, id=f"{name}-{case.id}-{device}")
        for name, implementation in DECODE_IMPLEMENTATIONS.items()
        for case in CASES
        if runs_here(implementation, case, device)
    ]


EVERY_CASE = [param for device in DEVICES for param in _runnable(device)]
HERE = on_devices(DECODE_IMPLEMENTATIONS, MlaDecodeCase((64,), dtype="float32"))
EVERY_IMPLEMENTATION = pytest.mark.parametrize(("name", "device"), HERE)
torch_forms = pytest.mark.skipif(INTERPRETED, reason="about the torch forms, not Triton kernels")


def _error(name, inputs):
    return max_abs_error(DECODE_IMPLEMENTATIONS[name].bind(inputs).fn(), reference_decode(inputs))


def test_every_implementation_runs_most_cases():
    assert HERE
    for name, _ in HERE:
        assert sum(param.values[0] == name for param in EVERY_CASE) >= len(CASES) // 2


@pytest.mark.parametrize(("name", "case", "device"), EVERY_CASE)
def test_it_agrees_with_the_reference_on_poisoned_inputs(name, case, device):
    inputs = poison_decode_inputs(make_decode_inputs(case, device))
    before = {key: value.clone() for key, value in tensors_of(inputs).items()}
    bound = DECODE_IMPLEMENTATIONS[name].bind(inputs)
    outputs = bound.fn()

    reference = reference_decode(inputs)
    assert max_abs_error(outputs, reference) <= tolerance_for(case.dtype).max_abs_error
    assert outputs.o.shape == (case.batch, case.heads, 512)
    assert outputs.o.dtype == getattr(torch, case.dtype)
    assert outputs.lse.shape == (case.batch, case.heads)
    assert outputs.lse.dtype == torch.float32

    assert bound.executed_tokens >= case.tokens
    if not INTERPRETED:  # one program after the other: the second run cannot differ
        again = bound.fn()
        assert torch.equal(outputs.o, again.o) and torch.equal(outputs.lse, again.lse)
    for key, value in tensors_of(inputs).items():
        assert torch.equal(value.view(torch.uint8), before[key].view(torch.uint8)), (
            f"{key} was written to"
        )


@EVERY_IMPLEMENTATION
def test_an_empty_sequence_gives_zero_and_minus_infinity(name, device):
    case = MlaDecodeCase((7, 0, 9), dtype=HALF)
    if not runs_here(DECODE_IMPLEMENTATIONS[name], case, device):
        pytest.skip("does not take empty sequences")
    inputs = poison_decode_inputs(make_decode_inputs(case, device))
    outputs = DECODE_IMPLEMENTATIONS[name].bind(inputs).fn()
    assert (outputs.o[1] == 0).all()
    assert (outputs.lse[1] == -math.inf).all()
    assert outputs.lse[0].isfinite().all() and outputs.lse[2].isfinite().all()


@EVERY_IMPLEMENTATION
def test_two_heads_over_two_values_give_the_worked_numbers(name, device):
    geometry = MlaGeometry(heads=3, latent=3, rope=1, nope=1, v_head_dim=1)
    # The first latent column is the value; the others, and the rotary key, make the scores.
    cache = torch.tensor([[[10.0, 2.0, 0.0, 2.0]], [[20.0, 0.0, 2.0, 4.0]]], device=device)
    q = torch.tensor([[[0, 1.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]]], device=device)
    inputs = MlaDecodeInputs(
        geometry,
        q / geometry.scale,
        cache,
        torch.tensor([[0, 1]], dtype=torch.int32, device=device),
        torch.tensor([2], dtype=torch.int32, device=device),
    )
    outputs = DECODE_IMPLEMENTATIONS[name].bind(inputs).fn()
    # Scores [2, 0], [0, 2] and [2, 4]; a plain mean of the values would be 15.
    assert outputs.o[0, :, 0].tolist() == pytest.approx([11.19, 18.81, 18.81], abs=5e-3)
    assert outputs.lse[0, 2].item() == pytest.approx(math.log(math.exp(2) + math.exp(4)), abs=1e-4)


@EVERY_IMPLEMENTATION
@settings(max_examples=examples(60), deadline=None)
@given(
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=5),
    splits=st.none() | st.integers(1, 40),
    page_size=st.sampled_from([1, 16, 64]),
    table=st.sampled_from(["contiguous", "shuffled"]),
    heads=st.sampled_from([1, 3, 12]),
    seed=st.integers(0, 100),
)
def test_any_lengths_splits_and_pages_agree_with_the_reference(
    name, device, lengths, splits, page_size, table, heads, seed
):
    case = MlaDecodeCase(tuple(lengths), heads, page_size, splits, "float32", seed, table)
    if not runs_here(DECODE_IMPLEMENTATIONS[name], case, device):
        case = dataclasses.replace(case, num_kv_splits=None)
        assume(runs_here(DECODE_IMPLEMENTATIONS[name], case, device))
    inputs = poison_decode_inputs(make_decode_inputs(case, device))
    assert _error(name, inputs) <= tolerance_for("float32").max_abs_error


@EVERY_IMPLEMENTATION
def test_a_token_outside_the_sequence_changes_nothing(name, device):
    inputs = make_decode_inputs(MlaDecodeCase((100, 37), dtype=HALF), device)
    expected = DECODE_IMPLEMENTATIONS[name].bind(inputs).fn()
    cache = inputs.kv_cache.clone()
    cache[inputs.block_table[0, 1], 36:] = 1e4  # tokens 100 to 127 of the first sequence's pages
    cache[inputs.block_table[1, 0], 37:] = -1e4
    changed = dataclasses.replace(inputs, kv_cache=cache)
    outputs = DECODE_IMPLEMENTATIONS[name].bind(changed).fn()
    assert torch.equal(outputs.o, expected.o) and torch.equal(outputs.lse, expected.lse)


@EVERY_IMPLEMENTATION
def test_shared_pages_give_what_private_copies_give(name, device):
    case = MlaDecodeCase((200, 300), page_size=16, dtype=HALF, table="shared")
    shared = make_decode_inputs(case, device)
    pages = shared.kv_cache[shared.block_table.long()].flatten(0, 1)
    private = dataclasses.replace(
        shared,
        kv_cache=pages,
        block_table=torch.arange(len(pages), dtype=torch.int32, device=device).view(2, -1),
    )
    implementation = DECODE_IMPLEMENTATIONS[name]
    assert torch.equal(implementation.bind(shared).fn().o, implementation.bind(private).fn().o)


# Split-KV.


SPLIT_CASE = MlaDecodeCase((1000, 33, 0, 500), num_kv_splits=2, dtype="float32")


@pytest.mark.parametrize(("name", "device"), on_devices(DECODE_IMPLEMENTATIONS, SPLIT_CASE))
def test_the_number_of_splits_does_not_change_the_answer(name, device):
    base = make_decode_inputs(SPLIT_CASE, device)
    splitkv = DECODE_IMPLEMENTATIONS[name]
    one = splitkv.bind(dataclasses.replace(base, num_kv_splits=1)).fn()
    for splits in (2, 5) if INTERPRETED else (2, 5, 16, 31, 200):
        outputs = splitkv.bind(dataclasses.replace(base, num_kv_splits=splits)).fn()
        assert max_abs_error(outputs, one) < 1e-5


TRITON_HERE = [device for name, device in HERE if name == "triton"]
triton_only = pytest.mark.skipif(
    not TRITON_HERE, reason="no GPU for Triton kernels, and not interpreted"
)


@triton_only
def test_a_batch_invariant_result_is_the_same_bits_alone_and_in_company():
    case = MlaDecodeCase((150, 0, 700, 33), heads=2, dtype="float32")
    together = make_decode_inputs(case, TRITON_HERE[0])
    expected = bind_decode(together, batch_invariant=True).fn()
    assert max_abs_error(expected, reference_decode(together)) <= 5e-5
    for row in range(case.batch):
        alone = dataclasses.replace(
            together,
            q=together.q[row : row + 1],
            block_table=together.block_table[row : row + 1],
            seq_lens=together.seq_lens[row : row + 1],
        )
        outputs = bind_decode(alone, batch_invariant=True).fn()
        assert torch.equal(outputs.o[0], expected.o[row])
        assert torch.equal(outputs.lse[0], expected.lse[row])


@triton_only
def test_partial_results_that_no_split_wrote_are_never_read(monkeypatch):
    case = MlaDecodeCase((5, 0, 100), heads=2, num_kv_splits=9, dtype="float32")
    inputs = make_decode_inputs(case, TRITON_HERE[0])
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: empty(*a, **k).fill_(float("nan")))
    outputs = bind_decode(inputs).fn()
    monkeypatch.undo()
    assert (
        max_abs_error(outputs, reference_decode(inputs)) <= tolerance_for("float32").max_abs_error
    )


@torch_forms
@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=8),
    splits=st.integers(1, 70),
    keys=st.sampled_from([32, 256, 2048]),
)
def test_gathers_cover_each_written_split_once_and_read_nothing_else(lengths, splits, keys):
    gathers = plan_gathers(lengths, splits, keys, torch.device("cpu"))
    seen = {}
    for gather in gathers:
        for row, (sequence, split) in enumerate(
            zip(gather.sequence.tolist(), gather.split.tolist(), strict=True)
        ):
            position = gather.position[row]
            assert 0 <= position.min() <= position.max() < lengths[sequence]
            if gather.past_end is not None:
                position = position[~gather.past_end[row]]
            assert (sequence, split) not in seen
            seen[sequence, split] = (int(position[0]), int(position[-1]) + 1)
            assert torch.equal(position, torch.arange(*seen[sequence, split]))
        assert gather.position.numel() <= max(keys, gather.position.shape[1])
    assert seen == {
        (sequence, split): bounds
        for sequence, length in enumerate(lengths)
        for split, bounds in enumerate(split_bounds(length, splits))
    }
    padded = sum(gather.position.numel() for gather in gathers)
    assert padded <= sum(lengths) / 0.75, "padding is bounded at a third"


@torch_forms
def test_equal_lengths_are_executed_without_padding():
    inputs = make_decode_inputs(MlaDecodeCase((1024,) * 3))
    assert DECODE_IMPLEMENTATIONS["torch_splitkv"].bind(inputs).executed_tokens == 3 * 1024


@torch_forms
def test_the_dense_form_counts_its_padding_and_refuses_what_it_cannot_do():
    dense = DECODE_IMPLEMENTATIONS["torch_dense"]
    case = MlaDecodeCase((100, 7, 0))
    assert dense.bind(make_decode_inputs(case)).executed_tokens == 200
    assert dense.can_run("cpu", MlaDecodeCase((100,), num_kv_splits=1)).ok
    splits = dense.can_run("cpu", MlaDecodeCase((100,), num_kv_splits=4))
    assert not splits.ok and "4 are asked for" in splits.reason
    huge = dense.can_run("cpu", MlaDecodeCase((1_047_552,) * 4))
    assert not huge.ok and "13.5 GiB" in huge.reason
