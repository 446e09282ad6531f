"""Scratch memory of the XLA implementations: in proportion to the inputs, never beyond."""

import functools

import jax
import pytest

from kda_tpu import IMPLEMENTATIONS, KdaCase, input_shapes

XLA = ["recurrent_xla", "chunked_xla"]
HEADS, K, V = 4, 128, 128


@functools.cache
def temporary_bytes(name: str, lengths: tuple[int, ...]) -> int:
    """What the compiled program asks for beside its arguments and results; bf16, K3's head dims."""
    case = KdaCase(lengths, heads=HEADS)
    bound = IMPLEMENTATIONS[name].bind(lengths, case.gate, heads=HEADS, head_dim_k=K, head_dim_v=V)
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    lowered = jax.jit(bound.fn).lower(input_shapes(case), bound.plan)
    return lowered.compile(compiler_options=options).memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("name", XLA)
def test_a_token_costs_at_most_one_copy_of_its_inputs_and_output(name):
    """bf16 once widened to fp32 for a whole packing doubled this."""
    growth = temporary_bytes(name, (8192,)) - temporary_bytes(name, (2048,))
    q_k_v_g_and_o, beta, plan = 5 * HEADS * K * 2, HEADS * 4, 3 * 4
    assert growth <= 1.01 * (8192 - 2048) * (q_k_v_g_and_o + beta + plan)


@pytest.mark.parametrize("name", XLA)
def test_a_sequence_costs_at_most_two_copies_of_its_state_whatever_the_steps(name):
    """Same tokens, same chunks: only the number of states in the carry differs."""
    growth = temporary_bytes(name, (64,) * 32) - temporary_bytes(name, (2048,))
    assert growth <= 1.01 * (32 - 1) * 2 * HEADS * K * V * 4
