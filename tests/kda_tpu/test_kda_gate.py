"""The gate: its formulas against numpy in float64, and what it refuses."""

import jax.numpy as jnp
import numpy as np
import pytest

from kda_tpu import Gate, KdaArgumentError, log_decay

RNG = np.random.default_rng(0)
G_RAW = 4 * RNG.standard_normal((1, 50, 3, 8))
A_LOG = RNG.uniform(-1, np.log(16), 3)
DT_BIAS = RNG.standard_normal((3, 8))


def activated(gate: Gate, g: np.ndarray = G_RAW) -> np.ndarray:
    return np.asarray(log_decay(gate, jnp.float32(g), jnp.float32(A_LOG), jnp.float32(DT_BIAS)))


def test_the_bounded_gate_is_a_scaled_sigmoid_and_not_a_clamped_softplus():
    x = G_RAW + DT_BIAS
    rate = np.exp(A_LOG)[:, None]
    got = activated(Gate("bounded", -4.0))
    np.testing.assert_allclose(got, -4.0 / (1 + np.exp(-rate * x)), rtol=1e-4, atol=1e-6)
    clamp = np.maximum(-rate * np.logaddexp(x, 0), -4.0)
    assert np.abs(got - clamp).max() > 0.5


def test_the_unbounded_gate_is_minus_a_softplus_and_goes_below_any_bound():
    expected = -np.exp(A_LOG)[:, None] * np.logaddexp(G_RAW + DT_BIAS, 0)
    got = activated(Gate("unbounded"))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    assert got.min() < -50


def test_an_activated_gate_is_passed_through():
    np.testing.assert_array_equal(activated(Gate("activated")), np.float32(G_RAW))


@pytest.mark.parametrize("raw", [-1e4, 1e4, -1e30, 1e30, 0.0])
@pytest.mark.parametrize("gate", [Gate(), Gate("unbounded")], ids=["bounded", "unbounded"])
def test_extreme_raw_gates_stay_finite_or_saturate(gate, raw):
    got = activated(gate, np.full_like(G_RAW, raw))
    assert not np.isnan(got).any() and (got <= 0).all()
    if gate.kind == "bounded":
        assert (got >= -5.0).all()
    if raw == -1e4:
        np.testing.assert_array_equal(got, 0.0)


def test_bf16_gates_are_activated_in_fp32():
    g = jnp.asarray(G_RAW, jnp.bfloat16)
    got = log_decay(Gate(), g, jnp.float32(A_LOG), jnp.float32(DT_BIAS))
    assert got.dtype == jnp.float32
    np.testing.assert_array_equal(got, activated(Gate(), np.float32(g)))


def test_defaults_are_the_k3_gate():
    assert Gate() == Gate("bounded", -5.0) and Gate().is_bounded and Gate().is_raw
    assert not Gate("unbounded").is_bounded
    assert not Gate("activated").is_bounded and Gate("activated", -5.0).is_bounded
    assert not Gate("activated").is_raw
    assert len({Gate(), Gate("bounded", -5.0), Gate("unbounded")}) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softplus",), "gate.kind is 'softplus'"),
        (("bounded", -5.1), r"gate.lower_bound is -5.1: must be in \[-5.0, 0\)"),
        (("bounded", 0.0), "must be in"),
        (("bounded", float("nan")), "must be in"),
        (("bounded", float("-inf")), "must be in"),
        (("activated", -6.0), "must be in"),
        (("unbounded", -5.0), "leave it None"),
    ],
)
def test_gates_outside_the_budget_are_refused(arguments, message):
    with pytest.raises(KdaArgumentError, match=message):
        Gate(*arguments)
