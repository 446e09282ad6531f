"""The optimisation ladder: every point of it against the oracle, and each rung against the last.

The shared body runs every rung with two heads, where ``optimized`` falls back to ``flat``. Here
are heads that fill head_block, K != V as ever. Rungs that only move data must agree bit by bit.
"""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from kda_cases import (
    ACTIVATED,
    BOUNDED,
    PROMISED,
    UNBOUNDED,
    inputs_of,
    oracle_of,
    replace_tokens,
    small_case,
    with_tail,
)

from kda_tpu import (
    IMPLEMENTATIONS,
    Gate,
    KdaArgumentError,
    KdaCase,
    KdaInputs,
    input_shapes,
    kda_reference,
    max_abs_error,
    tolerance,
)
from kda_tpu.ladder import chunk as chunk_maths
from kda_tpu.ladder.bind import bind_ladder
from kda_tpu.ladder.safe_gate import exponent_shift
from kda_tpu.ladder.vmem import SCOPED_VMEM_BYTES, HeadBlockShape, head_block_vmem
from kda_tpu.switches import RUNGS, Switches, legal_switches
from kda_tpu.variants import VARIANTS

RAGGED = (17, 0, 70, 5)
WHOLE = (64, 128)
EIGHT = {"heads": 8}
OPTIMIZED = RUNGS["optimized"]
_FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

Outputs = tuple[jax.Array, jax.Array]


@functools.cache
def jitted(fn):
    return jax.jit(fn, compiler_options=_FAST)


def bound_for(switches: Switches, inputs: KdaInputs, lengths, gate, interpret=True, **choices):
    _, _, heads, head_dim_k = inputs.q.shape
    return bind_ladder(
        switches, lengths, gate, heads=heads, head_dim_k=head_dim_k,
        head_dim_v=inputs.v.shape[3], interpret=interpret, **choices,
    )  # fmt: skip


def run(switches: Switches, inputs: KdaInputs, lengths, gate=BOUNDED, **choices) -> Outputs:
    bound = bound_for(switches, inputs, lengths, gate, **choices)
    return jitted(bound.fn)(inputs, bound.plan)


@functools.cache
def outputs_of(switches: Switches, case: KdaCase) -> Outputs:
    return run(switches, inputs_of(case), case.lengths, case.gate)


def assert_identical(ours: Outputs, theirs: Outputs) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert bool(jnp.isfinite(a.astype(jnp.float32)).all())


# Every point of the ladder.


@pytest.mark.parametrize("switches", legal_switches(), ids=lambda s: s.label)
def test_every_legal_combination_of_switches_matches_the_oracle(switches):
    case = small_case(RAGGED, **EIGHT)
    assert max_abs_error(outputs_of(switches, case), oracle_of(case)) <= tolerance("float32")


def test_there_are_ten_legal_combinations_and_the_rungs_are_among_them():
    assert len(legal_switches()) == 10
    assert set(RUNGS.values()) <= set(legal_switches())
    on = [sum(dataclasses.astuple(rung)) for rung in RUNGS.values()]
    assert on == [1, 2, 3, 4, 5]
    assert list(IMPLEMENTATIONS)[2:8] == ["original", *RUNGS]


@pytest.mark.parametrize(
    ("switches", "missing"),
    [
        ({"unified_layout": True}, "fuse"),
        ({"fuse": True, "flat_grid": True}, "unified_layout"),
        ({"safe_gate": True, "head_block": True}, "fuse, unified_layout, flat_grid"),
    ],
    ids=["unified-alone", "flat-before-unified", "head_block-alone"],
)
def test_a_switch_without_what_it_builds_on_is_refused(switches, missing):
    with pytest.raises(KdaArgumentError, match=missing):
        Switches(**switches)


# Each rung against the rung before.


@pytest.mark.parametrize("lengths", [RAGGED, WHOLE], ids=["ragged", "whole-chunks"])
@pytest.mark.parametrize(
    ("rung", "before"),
    [("unified", "fused"), ("flat", "unified"), ("optimized", "flat")],
)
def test_a_rung_that_only_moves_data_is_bit_identical_to_the_one_before(rung, before, lengths):
    case = small_case(lengths, **EIGHT)
    assert_identical(outputs_of(RUNGS[rung], case), outputs_of(RUNGS[before], case))


@pytest.mark.parametrize(
    "heads",
    [8, pytest.param(16, marks=pytest.mark.slow), pytest.param(32, marks=pytest.mark.slow)],
)
def test_head_block_is_bit_identical_in_bf16_at_any_multiple_of_8_heads(heads):
    case = small_case(RAGGED, dtype="bfloat16", heads=heads, head_dim_k=128)
    ours = outputs_of(OPTIMIZED, case)
    assert_identical(ours, outputs_of(RUNGS["flat"], case))
    assert max_abs_error(ours, oracle_of(case)) <= tolerance("bfloat16")


def test_heads_that_do_not_fill_groups_of_8_fall_back_to_flat_with_the_same_function():
    for heads in (1, 6, 12):
        bounds = [
            bind_ladder(s, RAGGED, BOUNDED, heads=heads, head_dim_k=32, head_dim_v=16)
            for s in (OPTIMIZED, RUNGS["flat"])
        ]
        assert bounds[0].fn is bounds[1].fn


def test_more_heads_than_vmem_holds_fall_back_to_flat_with_the_same_function():
    bounds = [
        bind_ladder(s, RAGGED, BOUNDED, heads=96, head_dim_k=128, head_dim_v=128)
        for s in (OPTIMIZED, RUNGS["flat"])
    ]
    assert bounds[0].fn is bounds[1].fn


# The gate decides the path.


@pytest.mark.parametrize("gate", [UNBOUNDED, ACTIVATED], ids=lambda g: g.kind)
@pytest.mark.parametrize("rung", RUNGS)
def test_gates_without_a_bound_never_take_the_fast_path(monkeypatch, rung, gate):
    def refuse(*_):
        raise AssertionError("the strip GEMMs were traced")

    monkeypatch.setattr("kda_tpu.ladder.chunk.strip_scores", refuse)
    monkeypatch.setattr("kda_tpu.ladder.mxu_port.strip_scores", refuse)
    # A scale of its own, so that no earlier trace is found in a cache.
    scale = 0.25 + 0.01 * list(RUNGS).index(rung)
    for chosen, fast in ((gate, False), (BOUNDED, True)):
        case = small_case((70,), chosen, **EIGHT)
        bound = IMPLEMENTATIONS[rung].bind(
            case.lengths, chosen, heads=8, head_dim_k=32, head_dim_v=16, scale=scale
        )
        if fast:
            with pytest.raises(AssertionError, match="strip GEMMs"):
                jax.eval_shape(bound.fn, input_shapes(case), bound.plan)
        else:
            jax.eval_shape(bound.fn, input_shapes(case), bound.plan)


def test_the_exponent_budget_ends_at_a_bound_of_eleven():
    assert exponent_shift(BOUNDED) == 58
    assert exponent_shift(Gate("activated", -1.0)) == 12
    # No Gate reaches so far; the check is what would catch a wider strip or a deeper bound.
    assert exponent_shift(types.SimpleNamespace(kind="bounded", lower_bound=-10.9)) == 126
    with pytest.raises(KdaArgumentError, match="budget"):
        exponent_shift(types.SimpleNamespace(kind="bounded", lower_bound=-11.0))
    with pytest.raises(KdaArgumentError, match="without a lower bound"):
        exponent_shift(UNBOUNDED)


# What head_block does differently: ragged windows of the native layout, and its own copies.


def test_neither_the_tail_nor_a_sequence_of_nan_reaches_its_neighbours():
    case = small_case(RAGGED, **EIGHT)
    inputs = with_tail(inputs_of(case), 37, np.nan)
    o, final_state = run(OPTIMIZED, inputs, RAGGED)
    assert_identical((o[:, :92], final_state), outputs_of(OPTIMIZED, case))
    assert float(jnp.abs(o[:, 92:]).max()) == 0
    poisoned = replace_tokens(inputs, slice(17, 87), np.nan)
    o_poisoned, final_poisoned = run(OPTIMIZED, poisoned, RAGGED)
    assert bool(jnp.isnan(o_poisoned[:, 17:87]).any())
    np.testing.assert_array_equal(o_poisoned[:, :17], o[:, :17])
    np.testing.assert_array_equal(o_poisoned[:, 87:], o[:, 87:])
    for n in (0, 1, 3):
        np.testing.assert_array_equal(final_poisoned[n], final_state[n])


@pytest.mark.parametrize("first_changed", [17 + 8, 17 + 65, 87 + 1])
def test_future_tokens_leave_the_past_of_head_block_bit_identical(first_changed):
    case = small_case(RAGGED, **EIGHT)
    other = inputs_of(small_case(RAGGED, seed=1, gate_strength="strong", **EIGHT))
    changed = replace_tokens(inputs_of(case), slice(first_changed, None), other)
    o, _ = outputs_of(OPTIMIZED, case)
    o_changed, _ = run(OPTIMIZED, changed, RAGGED)
    np.testing.assert_array_equal(o_changed[:, :first_changed], o[:, :first_changed])
    assert float(jnp.abs(o_changed[:, first_changed] - o[:, first_changed]).max()) > 0


def test_head_block_in_two_calls_equals_one_call():
    case = small_case((180,), **EIGHT)
    inputs = inputs_of(case)
    o, final_state = run(OPTIMIZED, inputs, (180,))
    parts, state = [], inputs.initial_state
    for span in (slice(0, 90), slice(90, 180)):
        tokens = {n: getattr(inputs, n)[:, span] for n in ("q", "k", "v", "g", "beta")}
        part, state = run(
            OPTIMIZED, dataclasses.replace(inputs, initial_state=state, **tokens), (90,)
        )
        parts.append(part)
    chained = (jnp.concatenate(parts, axis=1), state)
    assert max_abs_error(chained, (o, final_state)) <= tolerance("float32")


def test_head_block_reads_nothing_unwritten_and_its_copies_do_not_race():
    """Interpreted as a TPU would run it: buffers full of NaN, copies that may overtake.

    With a tail, because this interpreter knows no windows that run over the end.
    """
    case = small_case((5, 0, 66), heads=8, head_dim_k=16, head_dim_v=8)
    careful = pltpu.InterpretParams(uninitialized_memory="nan", detect_races=True)
    inputs = with_tail(inputs_of(case), 64, np.nan)
    o, final_state = run(OPTIMIZED, inputs, case.lengths, interpret=careful)
    found = (o[:, : case.tokens], final_state)
    assert max_abs_error(found, oracle_of(case)) <= tolerance("float32")
    assert float(jnp.abs(o[:, case.tokens :]).max()) == 0
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    assert not interpret_pallas_call.races.races_found


def test_head_block_survives_a_prompt_that_repeats_one_token():
    case = small_case(RAGGED, PROMISED, **EIGHT)
    inputs = inputs_of(case)
    inputs = dataclasses.replace(
        inputs,
        k=jnp.broadcast_to(inputs.k[:, :1], inputs.k.shape),
        beta=jnp.ones_like(inputs.beta),
        g=jnp.full_like(inputs.g, -1e-3),
    )
    expected = kda_reference(inputs, RAGGED, PROMISED)
    found = run(OPTIMIZED, inputs, RAGGED, PROMISED)
    assert max_abs_error(found, expected) <= tolerance("float32")


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 32, 64])
def test_every_batch_of_the_grid_matches_the_oracle_at_a_small_length(batch):
    case = small_case((32,) * batch)
    assert max_abs_error(outputs_of(OPTIMIZED, case), oracle_of(case)) <= tolerance("float32")


@pytest.mark.slow
def test_32k_tokens_of_mixed_lengths_match_the_oracle():
    lengths = (9000, 1, 0, 63, 12000, 64, 5, 4097, 7538)
    case = small_case(lengths, **EIGHT)
    assert case.tokens == 32768
    assert max_abs_error(outputs_of(OPTIMIZED, case), oracle_of(case)) <= tolerance("float32")


# Beside the ladder.


@pytest.mark.parametrize("name", ["heads_serial", "optimized_chunk32", "optimized_chunk128"])
def test_a_variant_matches_the_oracle(name):
    case = small_case(RAGGED, **EIGHT)
    choices = {
        "heads_serial": {"head_loop": "serial"},
        "optimized_chunk32": {"chunk": 32},
        "optimized_chunk128": {"chunk": 128},
    }[name]
    bound = VARIANTS[name].bind(
        RAGGED, BOUNDED, heads=8, head_dim_k=32, head_dim_v=16, interpret=True
    )
    assert bound.fn is bound_for(OPTIMIZED, inputs_of(case), RAGGED, BOUNDED, **choices).fn
    outputs = jitted(bound.fn)(inputs_of(case), bound.plan)
    assert max_abs_error(outputs, oracle_of(case)) <= tolerance("float32")
    if name == "heads_serial":
        assert_identical(outputs, outputs_of(OPTIMIZED, case))


def test_head_block_without_safe_gate_is_refused_at_16_heads_with_the_figures():
    variant = VARIANTS["head_block_any_gate"]
    dims = {"head_dim_k": 128, "head_dim_v": 128}
    with pytest.raises(KdaArgumentError, match=r"16 heads wants 46\.7 MB .* 32 MiB"):
        variant.bind((64,), BOUNDED, heads=16, **dims)
    assert variant.bind((64,), BOUNDED, heads=8, **dims).padded_tokens == 64


@pytest.mark.parametrize(
    "choices", [{"chunk": 48}, {"head_loop": "parallel"}], ids=["chunk", "head_loop"]
)
def test_a_choice_that_does_not_exist_is_refused(choices):
    with pytest.raises(KdaArgumentError, match=f"{next(iter(choices))} is"):
        bound_for(OPTIMIZED, inputs_of(small_case((5,))), (5,), BOUNDED, **choices)


def test_k3_fits_vmem_and_the_estimate_grows_with_heads_and_dtype():
    k3 = HeadBlockShape(24, 128, 128, chunk=64, safe_gate=True)
    assert head_block_vmem(k3, 2).fits
    assert head_block_vmem(k3, 2).total < head_block_vmem(k3, 4).total <= SCOPED_VMEM_BYTES
    assert not head_block_vmem(dataclasses.replace(k3, heads=96), 2).fits
    assert [dataclasses.replace(k3, heads=h).interleaved_heads for h in (8, 24, 32, 96)] == [
        8, 24, 16, 24,
    ]  # fmt: skip


# The arithmetic alone.


def test_running_sums_are_taken_within_each_span():
    x = jax.random.normal(jax.random.key(0), (64, 8))
    for span in (16, 64):
        expected = np.cumsum(np.asarray(x, np.float64).reshape(-1, span, 8), axis=1)
        found = np.asarray(chunk_maths.scan_rows(x, span)).reshape(-1, span, 8)
        np.testing.assert_allclose(found, expected, atol=2e-5)


# For a TPU, from this machine.


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("rung", "kernels"),
    [("mxu_port", 4), ("fused", 2), ("unified", 4), ("flat", 4), ("optimized", 1)],
)
def test_every_rung_lowers_for_a_tpu_with_its_number_of_kernels(rung, kernels, dtype):
    case = KdaCase((70, 0, 64), heads=8, dtype=dtype)
    bound = IMPLEMENTATIONS[rung].bind(
        case.lengths, case.gate, heads=8, head_dim_k=128, head_dim_v=128
    )
    exported = jax.export.export(jax.jit(bound.fn), platforms=["tpu"])(
        input_shapes(case), bound.plan
    )
    module = exported.mlir_module()
    assert module.count("stablehlo.custom_call @tpu_custom_call") == kernels
