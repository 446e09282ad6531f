"""Seeded inputs: the same bits for the same case, with the properties that the case names."""

import dataclasses
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kda_cases import GATES, SMALL, small_case

from kda_tpu import Gate, KdaArgumentError, KdaCase, input_shapes, log_decay, make_inputs

CASE = small_case((50, 0, 40), dtype="bfloat16")


def as_bytes(x: jax.Array) -> bytes:
    return np.asarray(x).tobytes()


def test_shapes_and_dtypes_are_those_of_the_kernel():
    x = make_inputs(CASE)
    T, H, K, V = 90, SMALL["heads"], SMALL["head_dim_k"], SMALL["head_dim_v"]
    expected = {
        "q": ((1, T, H, K), jnp.bfloat16),
        "k": ((1, T, H, K), jnp.bfloat16),
        "v": ((1, T, H, V), jnp.bfloat16),
        "g": ((1, T, H, K), jnp.bfloat16),
        "beta": ((1, T, H), jnp.float32),
        "A_log": ((H,), jnp.float32),
        "dt_bias": ((H, K), jnp.float32),
        "initial_state": ((3, H, K, V), jnp.float32),
    }
    for name, (shape, dtype) in expected.items():
        assert (getattr(x, name).shape, getattr(x, name).dtype) == (shape, dtype), name
        assert bool(jnp.isfinite(getattr(x, name)).all()), name


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_input_shapes_are_those_of_the_inputs(gate):
    case = dataclasses.replace(CASE, gate=gate)
    made = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), make_inputs(case))
    assert input_shapes(case) == made


def test_the_same_case_gives_the_same_bits_and_another_seed_others():
    one, two = make_inputs(CASE), make_inputs(CASE)
    other = make_inputs(dataclasses.replace(CASE, seed=1))
    for name in ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state"):
        assert as_bytes(getattr(one, name)) == as_bytes(getattr(two, name)), name
        assert as_bytes(getattr(one, name)) != as_bytes(getattr(other, name)), name


def test_the_bits_are_pinned():
    """v goes from Philox words to bf16 through the quantile table alone: the same anywhere."""
    digest = hashlib.sha256(as_bytes(make_inputs(CASE).v)).hexdigest()
    assert digest == "69656274853e464b7a063538d97eeb20826f1f9ca2c44243dc37f58fcc4b6053"


def test_q_and_k_are_unit_vectors_v_is_standard_normal_and_beta_a_sigmoid():
    x = make_inputs(small_case((512,)))
    for unit in (x.q, x.k):
        np.testing.assert_allclose(np.linalg.norm(unit, axis=-1), 1.0, atol=1e-6)
    assert abs(float(x.v.mean())) < 0.02 and abs(float(x.v.std()) - 1) < 0.02
    assert float(x.beta.min()) > 0 and float(x.beta.max()) < 1
    assert not np.array_equal(x.q, x.k)


def test_one_tensor_keeps_its_bits_when_another_dimension_changes():
    wide = make_inputs(dataclasses.replace(CASE, head_dim_v=48))
    assert as_bytes(wide.q) == as_bytes(make_inputs(CASE).q)


def test_blocks_of_rows_do_not_show(monkeypatch):
    whole = make_inputs(CASE)
    monkeypatch.setattr("kda_tpu.inputs._BLOCK_ELEMENTS", 200)
    assert as_bytes(make_inputs(CASE).v) == as_bytes(whole.v)
    assert as_bytes(make_inputs(CASE).q) == as_bytes(whole.q)


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_gate_strengths_are_ordered_and_keep_the_promised_bound(gate):
    medians = []
    for strength in ("weak", "typical", "strong"):
        x = make_inputs(small_case((256,), gate, gate_strength=strength))
        decay = log_decay(gate, x.g, x.A_log, x.dt_bias)
        medians.append(float(jnp.median(decay)))
        assert float(decay.max()) <= 0
        if gate.is_bounded:
            assert float(decay.min()) >= gate.lower_bound
    assert medians[0] > 3 * medians[1] > 9 * medians[2]
    assert medians[0] > -0.1 and medians[2] < -3


def test_an_unbounded_gate_leaves_the_bounded_range_when_strong():
    x = make_inputs(small_case((256,), Gate("unbounded"), gate_strength="strong"))
    assert float(log_decay(Gate("unbounded"), x.g, x.A_log, x.dt_bias).min()) < -5


def test_activated_gates_come_in_fp32_whatever_the_dtype():
    assert make_inputs(dataclasses.replace(CASE, gate=Gate("activated"))).g.dtype == jnp.float32


def test_the_initial_state_is_random_or_zero():
    assert float(jnp.abs(make_inputs(CASE).initial_state).min()) > 0
    zero = make_inputs(dataclasses.replace(CASE, initial_state="zero")).initial_state
    assert float(jnp.abs(zero).max()) == 0


def test_the_defaults_are_k3_per_chip():
    case = KdaCase((64,))
    assert (case.heads, case.head_dim_k, case.head_dim_v) == (24, 128, 128)
    assert (case.dtype, case.gate, case.initial_state) == ("bfloat16", Gate(), "random")
    assert KdaCase([3, 0, 4]).lengths == (3, 0, 4) and KdaCase([3, 0, 4]).tokens == 7
    assert hash(KdaCase((64,))) == hash(KdaCase(np.array([64])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": ()}, "one count per sequence"),
        ({"lengths": (5, -3)}, r"lengths\[1\] is -3"),
        ({"heads": 0}, "heads is 0"),
        ({"head_dim_k": 0}, "head_dim_k is 0"),
        ({"head_dim_v": -1}, "head_dim_v is -1"),
        ({"dtype": "float16"}, "dtype is 'float16': use one of bfloat16, float32"),
        ({"initial_state": "ones"}, "initial_state is 'ones'"),
        ({"gate_strength": "medium"}, "gate_strength is 'medium'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_cases_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(KdaArgumentError, match=message):
        KdaCase(**{"lengths": (64,), **changes})
