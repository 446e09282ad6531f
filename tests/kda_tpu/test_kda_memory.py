"""Scratch memory of the XLA implementations: in proportion to the inputs, never beyond."""

import jax
import pytest

from kda_tpu import IMPLEMENTATIONS, KdaCase, input_shapes
from kda_tpu.interface import Bound

XLA = ["recurrent_xla", "chunked_xla"]


def temporary_bytes(name: str, case: KdaCase) -> int:
    dims = {n: getattr(case, n) for n in ("heads", "head_dim_k", "head_dim_v")}
    bound: Bound = IMPLEMENTATIONS[name].bind(case.lengths, case.gate, **dims)
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    lowered = jax.jit(bound.fn).lower(input_shapes(case), bound.plan)
    return lowered.compile(compiler_options=options).memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("name", XLA)
def test_a_token_costs_at_most_one_copy_of_its_inputs_and_output(name):
    """bf16 once widened to fp32 for a whole packing doubled this."""
    few, many = (KdaCase((tokens,), heads=4) for tokens in (2048, 8192))
    growth = temporary_bytes(name, many) - temporary_bytes(name, few)
    q_k_v_g_and_o, beta = 5 * 4 * 128 * 2, 4 * 4
    plan = 3 * 4
    assert growth <= (many.tokens - few.tokens) * (q_k_v_g_and_o + beta + plan) * 1.01


@pytest.mark.parametrize("name", XLA)
def test_the_states_of_many_sequences_are_not_copied_once_a_step(name):
    """One more sequence costs its state in the carry, and nothing that multiplies with steps."""
    few, many = (KdaCase((64,) * n, heads=4) for n in (4, 32))
    state = 4 * 128 * 128 * 4
    tokens = (many.tokens - few.tokens) * (5 * 4 * 128 * 2 + 4 * 4 + 12)
    growth = temporary_bytes(name, many) - temporary_bytes(name, few)
    assert growth <= (len(many.lengths) - len(few.lengths)) * 2 * state + 1.01 * tokens
