"""One body of tests for every KDA decode implementation."""

import dataclasses

import pytest
import torch
from mla_devices import DEVICES, INTERPRETED, on_devices, runs_here, tensors_of

from mla_rocm import (
    KDA_DECODE_IMPLEMENTATIONS,
    KdaDecodeCase,
    MlaArgumentError,
    kda_decode_errors,
    kda_decode_is_right,
    make_kda_decode_inputs,
    reference_kda_decode,
)
from mla_rocm.kda_torch import O_TOLERANCES, STATE_TOLERANCE

CASES = [
    *(KdaDecodeCase(3, heads=5, dtype=dtype) for dtype in ("float32", "float16", "bfloat16")),
    KdaDecodeCase(1, gate="unbounded", dtype="float32"),
    KdaDecodeCase(4, heads=2, padded=2, dtype="float32"),
    KdaDecodeCase(2, heads=2, padded=2, dtype="float32"),
    KdaDecodeCase(2, heads=3, head_dim_k=64, head_dim_v=128, dtype="float32"),
    KdaDecodeCase(2, heads=1, head_dim_k=128, head_dim_v=48, dtype="float32"),
    KdaDecodeCase(2, heads=2, head_dim_k=24, head_dim_v=20, gate="unbounded", dtype="float32"),
    KdaDecodeCase(17, heads=1, dtype="bfloat16"),
    *(() if INTERPRETED else (KdaDecodeCase(256),)),
]
# No matrix products, so the interpreter computes our kernel in bfloat16 too; sglang's dispatches
# bfloat16 to a kernel that is no Triton.
EVERY_CASE = [
    pytest.param(name, case, device, id=f"{name}-{case.id}-{device}")
    for device in DEVICES
    for name, implementation in KDA_DECODE_IMPLEMENTATIONS.items()
    for case in CASES
    if runs_here(implementation, dataclasses.replace(case, dtype="float32"), device)
    and not (INTERPRETED and name == "sglang" and case.dtype == "bfloat16")
]
HERE = on_devices(KDA_DECODE_IMPLEMENTATIONS, KdaDecodeCase(1, dtype="float32"))
EVERY_IMPLEMENTATION = pytest.mark.parametrize(("name", "device"), HERE)


def _poisoned(inputs):
    """Every state that no sequence owns made NaN."""
    state = torch.full_like(inputs.state, float("nan"))
    owned = inputs.state_indices[inputs.state_indices >= 0].long()
    state[owned] = inputs.state[owned]
    return dataclasses.replace(inputs, state=state)


@pytest.mark.parametrize(("name", "case", "device"), EVERY_CASE)
def test_it_agrees_with_the_reference_on_poisoned_inputs(name, case, device):
    inputs = _poisoned(make_kda_decode_inputs(case, device))
    before = {key: value.clone() for key, value in tensors_of(inputs).items()}
    bound = KDA_DECODE_IMPLEMENTATIONS[name].bind(inputs)
    outputs = bound.fn()

    reference = reference_kda_decode(inputs)
    o_error, state_error = kda_decode_errors(outputs, reference, inputs.state_indices)
    assert o_error <= O_TOLERANCES[case.dtype]
    assert state_error <= STATE_TOLERANCE
    assert kda_decode_is_right(outputs, reference, inputs)
    assert outputs.o.shape == (case.batch, case.heads, case.head_dim_v)
    assert outputs.o.dtype == getattr(torch, case.dtype)
    assert outputs.state.dtype == torch.float32
    assert (outputs.o[case.tokens :] == 0).all(), "padding gives 0"
    assert bound.executed_tokens == case.tokens

    if not INTERPRETED and not bound.in_place:
        again = bound.fn()
        assert kda_decode_errors(again, reference, inputs.state_indices) == (o_error, state_error)
    for key, value in tensors_of(inputs).items():
        assert torch.equal(value.view(torch.uint8), before[key].view(torch.uint8)), (
            f"{key} was written to"
        )


@EVERY_IMPLEMENTATION
def test_steps_chained_through_the_state_agree_with_the_reference(name, device):
    inputs = make_kda_decode_inputs(KdaDecodeCase(2, heads=2, dtype="float32"), device)
    expected = inputs
    for seed in range(4):
        token = make_kda_decode_inputs(KdaDecodeCase(2, heads=2, dtype="float32", seed=seed))
        packed = token.packed.to(device)
        inputs = dataclasses.replace(inputs, packed=packed)
        expected = dataclasses.replace(expected, packed=packed)
        outputs = KDA_DECODE_IMPLEMENTATIONS[name].bind(inputs).fn()
        reference = reference_kda_decode(expected)
        assert kda_decode_is_right(outputs, reference, inputs)
        inputs = dataclasses.replace(inputs, state=outputs.state)
        expected = dataclasses.replace(expected, state=reference.state)


@EVERY_IMPLEMENTATION
def test_strong_and_weak_gates_forget_and_keep_the_state(name, device):
    inputs = make_kda_decode_inputs(KdaDecodeCase(1, heads=1, dtype="float32"), device)
    packed = inputs.packed.clone()
    gate_begin, gate_end = 2 * 128 + 128, 3 * 128 + 128
    packed[:, gate_end:] = -1e4  # beta 0: nothing is written
    slot = int(inputs.state_indices[0])
    for raw, kept in ((1e4, torch.tensor(-5.0).exp().item()), (-1e4, 1.0)):
        packed[:, gate_begin:gate_end] = raw
        changed = dataclasses.replace(inputs, packed=packed.clone())
        state = KDA_DECODE_IMPLEMENTATIONS[name].bind(changed).fn().state
        torch.testing.assert_close(state[slot], kept * inputs.state[slot], rtol=1e-5, atol=1e-7)


@EVERY_IMPLEMENTATION
def test_a_full_write_makes_the_state_answer_its_key_with_its_value(name, device):
    inputs = make_kda_decode_inputs(KdaDecodeCase(1, heads=1, dtype="float32"), device)
    packed = inputs.packed.clone()
    packed[:, -1] = 1e4  # beta 1
    packed[:, :128] = packed[:, 128:256]  # q is k, so o is the value just written, scaled
    outputs = KDA_DECODE_IMPLEMENTATIONS[name].bind(dataclasses.replace(inputs, packed=packed)).fn()
    value = packed[0, 256:384]
    torch.testing.assert_close(outputs.o[0, 0], value * 128**-0.5, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(INTERPRETED, reason="about the oracle")
@pytest.mark.parametrize("mistake", ["beta", "decay", "order", "slot", "transposed"])
@pytest.mark.parametrize("dtype", O_TOLERANCES)
def test_a_wrong_kernel_lies_far_outside_the_tolerance(mistake, dtype):
    inputs = make_kda_decode_inputs(KdaDecodeCase(2, dtype=dtype))
    reference = reference_kda_decode(inputs)
    wrong = inputs
    if mistake == "beta":
        packed = inputs.packed.clone()
        packed[:, -inputs.heads :] = 0
        wrong = dataclasses.replace(inputs, packed=packed)
    elif mistake == "decay":
        wrong = dataclasses.replace(inputs, dt_bias=inputs.dt_bias - 0.1)
    elif mistake == "slot":
        wrong = dataclasses.replace(inputs, state_indices=inputs.state_indices.flip(0))
    elif mistake == "transposed":
        wrong = dataclasses.replace(inputs, state=inputs.state.mT.contiguous())
    outputs = reference_kda_decode(wrong)
    if mistake == "order":  # read before the update
        q = inputs.unpack()[0].float()
        q = torch.nn.functional.normalize(q, dim=-1)
        state = inputs.state[inputs.state_indices.long()]
        o = inputs.scale * (state * q.unsqueeze(-1)).sum(2)
        outputs = dataclasses.replace(outputs, o=o)
    o_error, state_error = kda_decode_errors(outputs, reference, inputs.state_indices)
    assert max(o_error / O_TOLERANCES[dtype], state_error / STATE_TOLERANCE) > 5
    assert not kda_decode_is_right(outputs, reference, inputs)


@pytest.mark.skipif(INTERPRETED, reason="about the oracle")
@pytest.mark.parametrize("gate", ["bounded", "unbounded"])
def test_the_reference_is_the_prefill_oracle_on_one_token(gate):
    """The two rooms state the same recurrence: one token of the TPU oracle, in jax."""
    jnp = pytest.importorskip("jax.numpy")
    from kda_tpu.gate import Gate
    from kda_tpu.inputs import KdaInputs
    from kda_tpu.reference import kda_reference

    case = KdaDecodeCase(2, heads=3, head_dim_k=64, head_dim_v=32, gate=gate, dtype="float32")
    inputs = make_kda_decode_inputs(case)
    q, k, v, g, beta = (part.contiguous() for part in inputs.unpack())
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    slots = inputs.state_indices.long()
    o, final = kda_reference(
        KdaInputs(
            *(jnp.asarray(x[None].numpy()) for x in (q, k, v, g, beta.sigmoid())),
            jnp.asarray(inputs.A_log.numpy()),
            jnp.asarray(inputs.dt_bias.numpy()),
            jnp.asarray(inputs.state[slots].numpy()),
        ),
        (1, 1),
        Gate(gate),
    )
    reference = reference_kda_decode(inputs)
    torch.testing.assert_close(
        reference.o, torch.from_numpy(jnp.asarray(o[0]).__array__().copy()), rtol=1e-4, atol=1e-6
    )
    torch.testing.assert_close(
        reference.state[slots], torch.from_numpy(final.__array__().copy()), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("batch", 0), ("heads", True), ("padded", 3), ("gate", "soft"), ("dtype", "int8")],
)
def test_a_bad_case_is_refused_by_its_field(field, value):
    with pytest.raises(MlaArgumentError, match=field):
        KdaDecodeCase(**{"batch": 2, field: value})
