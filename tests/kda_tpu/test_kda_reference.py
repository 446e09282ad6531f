"""The oracle against an independent float64 step loop, and the chunked form against both."""

import dataclasses

import jax
import numpy as np
import pytest
from kda_cases import (
    ACTIVATED,
    BOUNDED,
    GATES,
    MIXED,
    inputs_of,
    oracle_of,
    recurrence_float64,
    small_case,
    with_tail,
)

from kda_tpu import Gate, KdaInputs, kda_reference

# fp32 sums over up to 210 steps against float64: measured at most 4.6e-7 over these cases.
ORACLE_TOLERANCE = 1e-6


@pytest.mark.parametrize("strength", ["weak", "typical", "strong"])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_the_oracle_is_the_float64_recurrence_to_fp32_rounding(gate, strength):
    case = small_case(MIXED, gate, gate_strength=strength)
    o, final_state = oracle_of(case)
    o_64, final_64 = recurrence_float64(inputs_of(case), MIXED, gate)
    assert np.abs(np.asarray(o) - o_64).max() < ORACLE_TOLERANCE
    assert np.abs(np.asarray(final_state) - final_64).max() < ORACLE_TOLERANCE
    assert np.abs(o_64).max() > 0.01, "the case is too small to show anything"


def test_the_oracle_takes_bf16_inputs_at_their_value_and_answers_in_fp32():
    case = small_case((65,), dtype="bfloat16")
    o, final_state = oracle_of(case)
    assert o.dtype == final_state.dtype == np.float32
    o_64, final_64 = recurrence_float64(inputs_of(case), (65,), BOUNDED)
    assert np.abs(np.asarray(o) - o_64).max() < ORACLE_TOLERANCE
    assert np.abs(np.asarray(final_state) - final_64).max() < ORACLE_TOLERANCE


def test_the_oracle_honours_a_given_scale():
    inputs = inputs_of(small_case((65,)))
    o, _ = kda_reference(inputs, (65,), BOUNDED, scale=0.25)
    o_64, _ = recurrence_float64(inputs, (65,), BOUNDED, scale=0.25)
    assert np.abs(np.asarray(o) - o_64).max() < ORACLE_TOLERANCE


def test_the_oracle_returns_the_initial_state_of_empty_sequences_and_zeros_behind_the_packing():
    inputs = inputs_of(small_case(MIXED))
    o, final_state = kda_reference(with_tail(inputs, 5, np.nan), MIXED, BOUNDED)
    np.testing.assert_array_equal(final_state[1], inputs.initial_state[1])
    np.testing.assert_array_equal(o[:, -5:], 0.0)
    np.testing.assert_array_equal(o[:, :-5], oracle_of(small_case(MIXED))[0])


def test_the_oracle_of_no_tokens_at_all_is_the_initial_state():
    inputs = inputs_of(small_case((0, 0)))
    o, final_state = kda_reference(inputs, (0, 0), BOUNDED)
    assert o.shape == (1, 0, 2, 16)
    np.testing.assert_array_equal(final_state, inputs.initial_state)


def chunked_float64(
    inputs: KdaInputs, tokens: int, lower_bound: float, chunk: int = 64, strip: int = 16
) -> tuple[np.ndarray, np.ndarray]:
    """One sequence, one head, in the chunked form with strips and Neumann factors on the RHS."""
    q, k, v, g, beta = (
        np.asarray(x, np.float64)[0, :, 0]
        for x in (inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta)
    )
    S = np.asarray(inputs.initial_state, np.float64)[0, 0]
    scale = q.shape[1] ** -0.5
    out = []
    for start in range(0, tokens, chunk):
        now = slice(start, min(tokens, start + chunk))
        Q, K, V, b = q[now], k[now], v[now], beta[now][:, None]
        G = np.cumsum(g[now], axis=0) / np.log(2)
        n = len(Q)
        A, L = np.zeros((n, n)), np.zeros((n, n))
        for s in range(0, n, strip):
            columns = slice(s, min(n, s + strip))
            anchor = (G[s - 1] if s else 0.0) + strip / 2 * lower_bound / np.log(2)
            right = K[columns] * np.exp2(anchor - G[columns])
            A[s:, columns] = scale * (Q[s:] * np.exp2(G[s:] - anchor)) @ right.T
            L[s:, columns] = b[s:] * ((K[s:] * np.exp2(G[s:] - anchor)) @ right.T)
        A, L = np.tril(A), np.tril(L, -1)
        z = np.concatenate([b * V, b * K * np.exp2(G)], axis=1)
        z, power = z - L @ z, L
        for _ in range(5):
            power = power @ power
            z = z + power @ z
        u, w = z[:, : V.shape[1]], z[:, V.shape[1] :]
        v_new = u - w @ S
        out.append(scale * (Q * np.exp2(G)) @ S + A @ v_new)
        S = np.exp2(G[-1])[:, None] * S + (K * np.exp2(G[-1] - G)).T @ v_new
    return np.concatenate(out), S


@pytest.mark.parametrize("strength", ["weak", "typical", "strong"])
def test_the_chunked_maths_is_the_recurrence_in_float64(strength):
    """Random keys: there, and in float64, even the Neumann series over a whole chunk is exact."""
    case = small_case((150,), Gate("activated", -5.0), heads=1, gate_strength=strength)
    inputs = inputs_of(case)
    o, S = chunked_float64(inputs, 150, -5.0)
    o_loop, S_loop = recurrence_float64(inputs, (150,), ACTIVATED)
    assert np.abs(o - o_loop[0, :, 0]).max() < 1e-13
    assert np.abs(S - S_loop[0, 0]).max() < 1e-12


def test_a_wrong_decay_is_seen_by_the_float64_loop():
    """The loop is not so forgiving that it would pass a clamp for the bounded gate."""
    case = small_case((65,), gate_strength="strong")
    inputs = inputs_of(case)
    x = inputs.g + inputs.dt_bias
    rate = np.exp(inputs.A_log)[:, None]
    clamped = np.maximum(-rate * jax.nn.softplus(x), -5.0)
    _, S = recurrence_float64(inputs, (65,), BOUNDED)
    _, S_wrong = recurrence_float64(dataclasses.replace(inputs, g=clamped), (65,), ACTIVATED)
    assert np.abs(S - S_wrong).max() > 1e-3
