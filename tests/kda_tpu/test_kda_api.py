"""kda_prefill: what it returns, what it chooses, and every argument it refuses before running."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kda_cases import ACTIVATED, MIXED, PROMISED, inputs_of, oracle_of, small_case

import kda_tpu
from kda_tpu import (
    IMPLEMENTATIONS,
    Bound,
    Gate,
    Implementation,
    KdaArgumentError,
    KdaCase,
    Support,
    kda_prefill,
    kda_reference,
    max_abs_error,
    tolerance,
)

CASE = small_case(MIXED)
CU_SEQLENS = np.concatenate([[0], np.cumsum(MIXED)]).astype(np.int32)


def arguments(case: KdaCase = CASE) -> dict:
    inputs = inputs_of(case)
    fields = {f.name: getattr(inputs, f.name) for f in dataclasses.fields(inputs)}
    offsets = np.concatenate([[0], np.cumsum(case.lengths)]).astype(np.int32)
    return {**fields, "cu_seqlens": offsets, "gate": case.gate}


@pytest.mark.parametrize("implementation", ["auto", "recurrent_xla"])
def test_prefill_matches_the_oracle(implementation):
    outputs = kda_prefill(**arguments(), implementation=implementation)
    assert max_abs_error(outputs, oracle_of(CASE)) <= tolerance("float32")


def test_prefill_works_under_jit_with_a_concrete_packing():
    jitted = jax.jit(
        lambda q, rest: kda_prefill(
            q, **rest, cu_seqlens=CU_SEQLENS, implementation="recurrent_xla"
        )
    )
    rest = {k: v for k, v in arguments().items() if k not in ("q", "cu_seqlens", "gate")}
    outputs = jitted(arguments()["q"], rest)
    assert max_abs_error(outputs, oracle_of(CASE)) <= tolerance("float32")


def test_no_initial_state_means_zeros():
    case = small_case(MIXED, initial_state="zero")
    outputs = kda_prefill(**{**arguments(case), "initial_state": None})
    assert max_abs_error(outputs, oracle_of(case)) <= tolerance("float32")


def test_an_activated_gate_needs_no_gate_parameters():
    case = small_case(MIXED, ACTIVATED)
    outputs = kda_prefill(
        **{**arguments(case), "A_log": None, "dt_bias": None}, implementation="recurrent_xla"
    )
    assert max_abs_error(outputs, oracle_of(case)) <= tolerance("float32")


def changed(**changes):
    """Arguments with some replaced: by a value, or by a function of the old value."""
    base = arguments()
    return {**base, **{k: f(base[k]) if callable(f) else f for k, f in changes.items()}}


BAD = {
    "q-not-an-array": ({"q": [1.0]}, "q is a list"),
    "q-three-dims": ({"q": lambda x: x[0]}, r"q has shape \(434, 2, 32\)"),
    "q-two-batches": ({"q": lambda x: jnp.concatenate([x, x])}, "q has shape"),
    "q-float16": ({"q": lambda x: x.astype(jnp.float16)}, "q has dtype float16"),
    "k-other-heads": ({"k": lambda x: x[:, :, :1]}, "k has shape"),
    "k-other-dtype": ({"k": lambda x: x.astype(jnp.bfloat16)}, "k has dtype bfloat16"),
    "v-fewer-tokens": ({"v": lambda x: x[:, 1:]}, "v has shape"),
    "v-other-heads": ({"v": lambda x: x[:, :, :1]}, "v has shape"),
    "g-shape-of-v": ({"g": lambda x: x[..., :16]}, "g has shape"),
    "g-int": ({"g": lambda x: x.astype(jnp.int32)}, "g has dtype int32"),
    "beta-four-dims": ({"beta": lambda x: x[..., None]}, "beta has shape"),
    "A_log-scalar": ({"A_log": lambda x: x[0]}, "A_log has shape"),
    "A_log-missing": ({"A_log": None}, "A_log is a NoneType"),
    "A_log-bf16": ({"A_log": lambda x: x.astype(jnp.bfloat16)}, "A_log has dtype"),
    "dt_bias-flat": ({"dt_bias": lambda x: x[0]}, "dt_bias has shape"),
    "dt_bias-missing": ({"dt_bias": None}, "dt_bias is a NoneType"),
    "state-vxk": ({"initial_state": lambda x: jnp.swapaxes(x, 2, 3)}, "initial_state has shape"),
    "state-one-short": ({"initial_state": lambda x: x[1:]}, "initial_state has shape"),
    "state-bf16": (
        {"initial_state": lambda x: x.astype(jnp.bfloat16)},
        "initial_state has dtype bfloat16",
    ),
    "gate-a-string": ({"gate": "bounded"}, "gate is a str"),
    "scale-nan": ({"scale": float("nan")}, "scale is nan"),
    "scale-a-string": ({"scale": "1"}, "scale is '1'"),
    "implementation-unknown": ({"implementation": "fastest"}, "implementation is 'fastest'"),
    "cu-a-list": ({"cu_seqlens": [0, 434]}, "cu_seqlens is a list"),
    "cu-int64": ({"cu_seqlens": lambda x: x.astype(np.int64)}, "cu_seqlens has dtype int64"),
    "cu-two-dims": ({"cu_seqlens": lambda x: x[None]}, "cu_seqlens has shape"),
    "cu-one-entry": ({"cu_seqlens": lambda x: x[:1]}, "cu_seqlens has 1 entries"),
    "cu-not-from-zero": ({"cu_seqlens": lambda x: x + np.int32(1)}, r"cu_seqlens\[0\] is 1"),
    "cu-falling": (
        {"cu_seqlens": np.array([0, 30, 20, 434], np.int32)},
        "cu_seqlens falls from 30 to 20 at entry 2",
    ),
    "cu-short-of-T": ({"cu_seqlens": lambda x: x[:-1]}, "ends at 224 but q has 434 tokens"),
    "cu-past-T": (
        {"cu_seqlens": np.array([0, 435], np.int32)},
        "ends at 435 but q has 434 tokens",
    ),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_arguments_that_do_not_fit_are_refused_by_name(changes, message):
    with pytest.raises(KdaArgumentError, match=message) as caught:
        kda_prefill(**changed(**changes))
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_traced_cu_seqlens_is_refused():
    rest = {k: v for k, v in arguments().items() if k != "cu_seqlens"}
    with pytest.raises(KdaArgumentError, match="cu_seqlens is traced"):
        jax.jit(lambda cu: kda_prefill(**rest, cu_seqlens=cu))(CU_SEQLENS)


@pytest.mark.parametrize("value", [-5.5, np.nan, 0.1])
def test_a_promised_bound_that_does_not_hold_is_refused(value):
    case = small_case(MIXED, PROMISED)
    bad = {**arguments(case), "g": arguments(case)["g"].at[0, 7, 0, 0].set(value)}
    with pytest.raises(KdaArgumentError, match="g has"):
        kda_prefill(**bad)


def test_a_named_implementation_that_cannot_run_here_says_why():
    with pytest.raises(NotImplementedError, match=r"original: Pallas TPU kernel: .*never timed"):
        kda_prefill(**arguments(), implementation="original")


def refusing(name: str) -> Implementation:
    return Implementation(
        name, "", lambda platform, case: Support(False, f"not on {platform}"), None
    )


def test_auto_takes_the_last_that_can_run(monkeypatch):
    taken = []

    def bind(lengths, gate, **dims):
        taken.append(lengths)
        return IMPLEMENTATIONS["recurrent_xla"].bind(lengths, gate, **dims)

    willing = Implementation("willing", "", lambda platform, case: Support(True), bind)
    table = {"lower": refusing("lower"), "willing": willing, "top": refusing("top")}
    monkeypatch.setattr(kda_tpu.api, "IMPLEMENTATIONS", table)
    kda_prefill(**arguments())
    assert taken == [MIXED]


def test_auto_gives_every_reason_when_none_can_run(monkeypatch):
    table = {name: refusing(name) for name in ("one", "two")}
    monkeypatch.setattr(kda_tpu.api, "IMPLEMENTATIONS", table)
    with pytest.raises(NotImplementedError, match="two: not on cpu; one: not on cpu"):
        kda_prefill(**arguments())


def test_the_table_is_in_ladder_order_and_keyed_by_name():
    assert list(IMPLEMENTATIONS)[:3] == ["recurrent_xla", "chunked_xla", "original"]
    for name, implementation in IMPLEMENTATIONS.items():
        assert implementation.name == name
        assert implementation.summary and "\n" not in implementation.summary


@pytest.mark.parametrize("platform", ["cpu", "tpu", "gpu"])
def test_who_can_run_where(platform):
    answers = {n: i.can_run(platform, KdaCase((64,))) for n, i in IMPLEMENTATIONS.items()}
    assert answers["recurrent_xla"].ok and answers["chunked_xla"].ok
    assert answers["original"].ok == (platform == "tpu")
    assert all(a.ok or a.reason for a in answers.values())


def test_original_refuses_head_dims_it_was_never_compiled_for():
    too_wide = IMPLEMENTATIONS["original"].can_run("tpu", KdaCase((64,), head_dim_k=1024))
    assert not too_wide.ok and "head_dim_k is 1024" in too_wide.reason


def test_equal_padded_shapes_share_one_compilation():
    """And the packing is data: the same program answers for each."""
    inputs = inputs_of(small_case((30, 70)))

    def bound(*lengths: int) -> Bound:
        own_scale = 0.3  # a function that no other test has jitted
        return IMPLEMENTATIONS["recurrent_xla"].bind(
            lengths, Gate(), heads=2, head_dim_k=32, head_dim_v=16, scale=own_scale
        )

    compiled = jax.jit(bound(30, 70).fn)
    for lengths in ((30, 70), (20, 80), (99, 1)):
        o, final_state = compiled(inputs, bound(*lengths).plan)
        expected = kda_reference(inputs, lengths, Gate(), scale=0.3)
        assert max_abs_error((o, final_state), expected) <= tolerance("float32")
    assert compiled._cache_size() == 1
