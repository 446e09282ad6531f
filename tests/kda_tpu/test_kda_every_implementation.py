"""The test body that every implementation of KDA prefill must pass, one fault a test.

A new implementation is tested by being in IMPLEMENTATIONS. Pallas TPU kernels run interpreted.
Errors are against the fp32 oracle on the same inputs, in o and in the final state, and must stay
within kda_tpu.tolerance (5e-4 bf16; 1e-5 fp32: see there for the reasons).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kda_cases import (
    ACTIVATED,
    BOUNDED,
    GATES,
    MIXED,
    PROMISED,
    SMALL,
    UNBOUNDED,
    inputs_of,
    oracle_of,
    replace_tokens,
    run,
    small_case,
    with_tail,
)

from kda_tpu import (
    IMPLEMENTATIONS,
    Gate,
    KdaCase,
    KdaInputs,
    kda_reference,
    make_inputs,
    max_abs_error,
    tolerance,
)

pytestmark = pytest.mark.parametrize("name", IMPLEMENTATIONS)

EDGES = (1, 8, 15, 16, 17, 63, 64, 65)  # of strips and chunks, all in one packing; some alone
LENGTHS = [EDGES, (1,), (63,), (130, 64, 210)]


def lengths_id(lengths: tuple[int, ...]) -> str:
    return "T" + "+".join(map(str, lengths))


def assert_matches_oracle(name: str, case: KdaCase) -> None:
    outputs = run(name, inputs_of(case), case.lengths, case.gate)
    assert outputs[0].dtype == jnp.dtype(case.dtype)
    assert outputs[1].dtype == jnp.float32
    assert max_abs_error(outputs, oracle_of(case)) <= tolerance(case.dtype)


def assert_identical(a: jax.Array, b: jax.Array) -> None:
    """Bit by bit, NaN not excepted."""
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert bool(jnp.isfinite(a).all())


@pytest.mark.parametrize("lengths", LENGTHS, ids=lengths_id)
def test_prompts_shorter_than_at_and_past_chunk_edges_match_the_oracle(name, lengths):
    assert_matches_oracle(name, small_case(lengths))


@pytest.mark.parametrize("strength", ["weak", "typical", "strong"])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_every_gate_at_every_strength_matches_the_oracle(name, gate, strength):
    assert_matches_oracle(name, small_case(MIXED, gate, gate_strength=strength))


@pytest.mark.parametrize("strength", ["weak", "typical", "strong"])
@pytest.mark.parametrize("gate", [BOUNDED, UNBOUNDED], ids=["bounded", "unbounded"])
def test_bf16_inputs_match_the_oracle_within_the_published_threshold(name, gate, strength):
    case = small_case(MIXED, gate, gate_strength=strength, dtype="bfloat16", head_dim_k=128)
    assert_matches_oracle(name, case)


def test_more_value_than_key_channels_another_bound_and_another_scale_match_the_oracle(name):
    case = small_case((70, 20), Gate("bounded", -1.5), head_dim_k=16, head_dim_v=48)
    inputs = inputs_of(case)
    outputs = run(name, inputs, case.lengths, case.gate, scale=0.5)
    expected = kda_reference(inputs, case.lengths, case.gate, scale=0.5)
    assert max_abs_error(outputs, expected) <= tolerance("float32")
    assert max_abs_error(outputs, oracle_of(case)) > 100 * tolerance("float32")


def test_a_zero_initial_state_matches_the_oracle(name):
    assert_matches_oracle(name, small_case(MIXED, initial_state="zero"))


def test_two_sequences_meeting_inside_a_tile_under_strong_gates_match_the_oracle(name):
    assert_matches_oracle(name, small_case((63, 65), gate_strength="strong"))


@pytest.mark.parametrize("log_decay", [-5.0, -4.999, 0.0])
def test_every_gate_at_the_bound_or_wide_open_matches_the_oracle(name, log_decay):
    case = small_case(MIXED, PROMISED)
    inputs = inputs_of(case)
    inputs = dataclasses.replace(inputs, g=jnp.full_like(inputs.g, log_decay))
    expected = kda_reference(inputs, case.lengths, case.gate)
    assert max_abs_error(run(name, inputs, MIXED, case.gate), expected) <= tolerance("float32")


def test_gates_that_close_completely_and_open_again_match_the_oracle(name):
    """Far below any bound: the cumulative decay leaves fp32's exponent range within a chunk.

    G reaches -520 in log2 units, where fp32 steps by 6e-5: an open pair's decay is off by up to
    4e-5 of itself in the chunked forms (measured 1.2e-5). No exactness is left to ask for.
    """
    case = small_case(MIXED, ACTIVATED)
    inputs = inputs_of(case)
    closed = (jnp.arange(case.tokens) % 11 == 3)[None, :, None, None]
    inputs = dataclasses.replace(inputs, g=jnp.where(closed, -60.0, 0.01 * inputs.g))
    expected = kda_reference(inputs, case.lengths, case.gate)
    assert max_abs_error(run(name, inputs, MIXED, case.gate), expected) <= 4e-5


def test_a_prompt_that_repeats_one_token_matches_the_oracle(name):
    """Equal keys make I + L as far from I as it gets; a Neumann series over 64 rows explodes."""
    case = small_case(MIXED, PROMISED)
    inputs = inputs_of(case)
    inputs = dataclasses.replace(
        inputs,
        k=jnp.broadcast_to(inputs.k[:, :1], inputs.k.shape),
        beta=jnp.ones_like(inputs.beta),
        g=jnp.full_like(inputs.g, -1e-3),
    )
    expected = kda_reference(inputs, case.lengths, case.gate)
    assert max_abs_error(run(name, inputs, MIXED, case.gate), expected) <= tolerance("float32")


def test_a_zero_length_sequence_returns_its_initial_state(name):
    case = small_case(MIXED)
    inputs = inputs_of(case)
    _, final_state = run(name, inputs, MIXED, case.gate)
    assert_identical(final_state[1], inputs.initial_state[1])


def test_nothing_but_zero_length_sequences_returns_every_initial_state(name):
    inputs = inputs_of(small_case((0, 0)))
    o, final_state = run(name, inputs, (0, 0), BOUNDED)
    assert o.shape == (1, 0, SMALL["heads"], SMALL["head_dim_v"])
    assert_identical(final_state, inputs.initial_state)


def test_zero_length_sequences_first_and_last_change_nothing_for_the_others(name):
    """Also where the last sequence has no chunk to stand on at the end of the packing."""
    case = small_case((0, 70, 0, 5, 0))
    inputs = inputs_of(case)
    outputs = run(name, inputs, case.lengths, case.gate)
    assert max_abs_error(outputs, oracle_of(case)) <= tolerance("float32")
    for empty in (0, 2, 4):
        assert_identical(outputs[1][empty], inputs.initial_state[empty])


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
@pytest.mark.parametrize("first_changed", [103, 160 + 8, 224 + 1])
def test_future_tokens_leave_the_past_bit_identical(name, gate, first_changed):
    """Mid-strip, at a strip's middle, and one token into a sequence; gates jump to strong."""
    case = small_case(MIXED, gate)
    inputs = inputs_of(case)
    other = inputs_of(small_case(MIXED, gate, seed=1, gate_strength="strong"))
    o, final_state = run(name, inputs, MIXED, gate)
    changed = replace_tokens(inputs, slice(first_changed, None), other)
    o_changed, final_changed = run(name, changed, MIXED, gate)
    assert_identical(o_changed[:, :first_changed], o[:, :first_changed])
    assert float(jnp.abs(o_changed[:, first_changed] - o[:, first_changed]).max()) > 0
    ended = int(np.searchsorted(np.cumsum(MIXED), first_changed, side="right"))
    assert_identical(final_changed[:ended], final_state[:ended])
    assert float(jnp.abs(final_changed[ended:] - final_state[ended:]).max()) > 0


def test_one_shot_prefill_equals_chained_prefill(name):
    """The state handed on between chunk-unaligned halves; both halves have the same shapes."""
    case = small_case((180, 60))
    inputs = inputs_of(case)
    o, final_state = run(name, inputs, case.lengths, case.gate)

    def part(first: tuple[slice, slice], state: jax.Array) -> KdaInputs:
        pieces = {
            field: jnp.concatenate([getattr(inputs, field)[:, s] for s in first], axis=1)
            for field in ("q", "k", "v", "g", "beta")
        }
        return dataclasses.replace(inputs, initial_state=state, **pieces)

    halves = (90, 30)
    first = part((slice(0, 90), slice(180, 210)), inputs.initial_state)
    o_first, state = run(name, first, halves, case.gate)
    second = part((slice(90, 180), slice(210, 240)), state)
    o_second, state = run(name, second, halves, case.gate)
    o_chained = jnp.concatenate(
        [o_first[:, :90], o_second[:, :90], o_first[:, 90:], o_second[:, 90:]], axis=1
    )
    assert max_abs_error((o_chained, state), (o, final_state)) <= tolerance("float32")


def test_tokens_behind_the_packing_are_never_read(name):
    """NaN right behind the last sequence, where its last chunk would run over."""
    case = small_case(MIXED)
    inputs = inputs_of(case)
    o, final_state = run(name, inputs, MIXED, case.gate)
    o_tail, final_tail = run(name, with_tail(inputs, 37, np.nan), MIXED, case.gate)
    assert_identical(o_tail[:, : case.tokens], o)
    assert_identical(final_tail, final_state)
    assert_identical(o_tail[:, case.tokens :], jnp.zeros_like(o_tail[:, case.tokens :]))


def test_a_sequence_of_nan_leaves_its_neighbours_bit_identical(name):
    """Its tokens lie where the neighbours' last chunks run over and where they begin."""
    case = small_case(MIXED)
    inputs = inputs_of(case)
    o, final_state = run(name, inputs, MIXED, case.gate)
    start, end = 30, 160
    poisoned = replace_tokens(inputs, slice(start, end), np.nan)
    o_poisoned, final_poisoned = run(name, poisoned, MIXED, case.gate)
    assert bool(jnp.isnan(o_poisoned[:, start:end]).any())
    for kept in (slice(0, start), slice(end, None)):
        assert_identical(o_poisoned[:, kept], o[:, kept])
    for n in (0, 1, 3, 4):
        assert_identical(final_poisoned[n], final_state[n])


def test_padding_decays_nothing_even_where_the_raw_gate_pad_does_not_saturate(name):
    """exp(A_log) = 2e-9 leaves sigmoid(-1e4 exp(A_log)) at a half: only a mask is neutral."""
    case = small_case(MIXED)
    inputs = inputs_of(case)
    inputs = dataclasses.replace(inputs, A_log=jnp.full_like(inputs.A_log, -20.0))
    expected = kda_reference(inputs, case.lengths, case.gate)
    assert max_abs_error(run(name, inputs, MIXED, case.gate), expected) <= tolerance("float32")


def test_the_final_state_is_computed_and_not_only_the_output(name):
    """With q = 0 at the last token only the final state shows what v was there."""
    case = small_case(MIXED)
    inputs = inputs_of(case)
    inputs = dataclasses.replace(inputs, q=inputs.q.at[:, -1].set(0.0))
    changed = dataclasses.replace(inputs, v=inputs.v.at[:, -1].add(1.0))
    o, final_state = run(name, inputs, MIXED, case.gate)
    o_changed, final_changed = run(name, changed, MIXED, case.gate)
    assert_identical(o_changed, o)
    assert_identical(final_changed[:-1], final_state[:-1])
    assert float(jnp.abs(final_changed[-1] - final_state[-1]).max()) > 1e-3


def test_the_same_configuration_binds_to_the_same_function_object(name):
    bind = IMPLEMENTATIONS[name].bind
    one, two, other_gate = (
        bind(lengths, gate, **SMALL)
        for lengths, gate in (((30, 70), BOUNDED), ((20, 80), BOUNDED), ((30, 70), UNBOUNDED))
    )
    assert one.fn is two.fn
    assert one.fn is not other_gate.fn
    assert jax.tree.map(np.shape, one.plan) == jax.tree.map(np.shape, two.plan)
    assert not any(isinstance(x, jax.Array) for x in jax.tree.leaves(one.plan))


def test_padded_tokens_count_what_is_executed(name):
    bound = IMPLEMENTATIONS[name].bind(MIXED, BOUNDED, **SMALL)
    padded_to_chunks = sum(-(-n // 64) * 64 for n in MIXED)
    assert bound.padded_tokens in (sum(MIXED), padded_to_chunks)
    assert bound.padded_tokens == sum(MIXED) or name != "recurrent_xla"


def test_inputs_are_left_as_they_were(name):
    case = small_case(MIXED)
    run(name, inputs_of(case), case.lengths, case.gate)
    for ours, fresh in zip(
        jax.tree.leaves(inputs_of(case)), jax.tree.leaves(make_inputs(case)), strict=True
    ):
        assert_identical(ours, fresh)
