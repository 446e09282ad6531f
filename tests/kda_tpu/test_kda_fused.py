"""Activations left to the kernel: q and k not yet normalised, beta before its sigmoid."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kda_cases import BOUNDED, UNBOUNDED

from kda_tpu import (
    IMPLEMENTATIONS,
    KdaCase,
    KdaInputs,
    kda_prefill,
    kda_reference,
    make_inputs,
    max_abs_error,
    tolerance,
)
from kda_tpu.fused import Fused, normalised

LENGTHS = (70, 0, 20)
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def raw_and_done(case: KdaCase) -> tuple[KdaInputs, KdaInputs]:
    """Inputs as a model's projections leave them, and in fp32 what the kernel should see."""
    inputs = make_inputs(case)
    dtype = inputs.q.dtype
    raw = dataclasses.replace(
        inputs,
        q=(3.0 * inputs.q).astype(dtype),
        k=(0.7 * inputs.k).astype(dtype),
        beta=jnp.log(inputs.beta / (1.0 - inputs.beta)),
    )
    f32 = jnp.float32
    done = dataclasses.replace(
        inputs, q=normalised(raw.q.astype(f32)), k=normalised(raw.k.astype(f32))
    )
    return raw, done


@pytest.mark.parametrize("gate", [BOUNDED, UNBOUNDED], ids=["fused", "before-the-ladder"])
def test_dyadic_takes_raw_inputs_under_either_gate(gate):
    case = KdaCase(LENGTHS, heads=8, gate=gate)
    raw, done = raw_and_done(case)
    bound = IMPLEMENTATIONS["dyadic"].bind(
        LENGTHS, gate, heads=8, head_dim_k=128, head_dim_v=128, interpret=True,
        fused=Fused(normalise_qk=True, beta_logits=True),
    )  # fmt: skip
    outputs = jax.jit(bound.fn, compiler_options=QUICKLY)(raw, bound.plan)
    # Normalised beforehand, q and k are rounded to bf16 once more than the reference's.
    allowed = tolerance("bfloat16") * (1 if gate is BOUNDED else 10)
    assert max_abs_error(outputs, kda_reference(done, LENGTHS, gate)) <= allowed


@pytest.mark.parametrize("which", ["normalise_qk", "beta_logits"])
def test_prefill_does_each_for_an_implementation_that_fuses_neither(which):
    case = KdaCase(LENGTHS, heads=2, head_dim_k=32, head_dim_v=16, dtype="float32")
    raw, done = raw_and_done(case)
    expected = kda_reference(done, LENGTHS, case.gate)
    names = ("q", "k") if which == "normalise_qk" else ("beta",)
    inputs = dataclasses.replace(done, **{name: getattr(raw, name) for name in names})
    arrays = {
        name: getattr(inputs, name)
        for name in ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state")
    }
    offsets = np.cumsum([0, *LENGTHS]).astype(np.int32)
    assert not IMPLEMENTATIONS["chunked_xla"].fuses
    outputs = kda_prefill(
        **arrays, cu_seqlens=offsets, implementation="chunked_xla", **{which: True}
    )
    assert max_abs_error(outputs, expected) <= tolerance("float32")


def test_a_row_of_zeros_is_normalised_to_zeros():
    assert not bool(jnp.any(normalised(jnp.zeros((2, 128)))))
