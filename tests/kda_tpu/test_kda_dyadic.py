"""``dyadic`` by its own kernels, interpreted: against the oracle, and bit by bit against itself.

The shared body runs it with two heads, where it falls back to the ladder. Here are eight, bf16.
Compiling takes seconds, so one packing, EDGES, serves most tests, and every packing with as many
tokens, tiles and sequences, however they lie, runs the same program.
"""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.pallas import tpu as pltpu
from kda_cases import (
    BOUNDED,
    PROMISED,
    inputs_of,
    oracle_of,
    replace_tokens,
    with_tail,
)

from kda_tpu import (
    IMPLEMENTATIONS,
    Gate,
    KdaCase,
    KdaInputs,
    kda_reference,
    max_abs_error,
    tolerance,
)

Outputs = tuple[jax.Array, jax.Array]

# Around strips of 32 and tiles of 64; empty sequences first, within and last.
EDGES = (0, 1, 5, 130, 0, 16, 20, 31, 32, 33, 63, 64, 65, 96, 97, 100, 0)
EMPTY = [n for n, length in enumerate(EDGES) if length == 0]
STARTS = np.cumsum((0, *EDGES))
TAIL = 37
STRENGTHS = ("weak", "typical", "strong")
# Emitting fusions through MLIR is two thirds of what compiling an interpreted kernel takes.
FAST = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
TOLERANCE = tolerance("bfloat16")
FIELDS = ("q", "k", "v", "g", "beta")


def case_of(lengths: Sequence[int], gate: Gate = BOUNDED, **changes) -> KdaCase:
    return KdaCase(tuple(lengths), **{"heads": 8, "gate": gate, **changes})


@functools.cache
def jitted(fn):
    return jax.jit(fn, compiler_options=FAST)


def run(inputs: KdaInputs, lengths: Sequence[int], gate: Gate = BOUNDED, interpret=True) -> Outputs:
    """o and final_state. The ladder's plan is left out: bf16 inputs never read it, and its shapes
    would split compilations.
    """
    _, _, heads, head_dim_k = inputs.q.shape
    bound = IMPLEMENTATIONS["dyadic"].bind(
        lengths, gate, heads=heads, head_dim_k=head_dim_k, head_dim_v=inputs.v.shape[3],
        interpret=interpret,
    )  # fmt: skip
    return jitted(bound.fn)(inputs, dataclasses.replace(bound.plan, ladder=None))


@functools.cache
def outputs_of(case: KdaCase) -> Outputs:
    return run(inputs_of(case), case.lengths, case.gate)


def assert_identical(a: jax.Array, b: jax.Array) -> None:
    """Bit by bit, -0 apart from 0, and all of it finite."""
    assert a.dtype == b.dtype
    a, b = np.asarray(a), np.asarray(b)
    assert np.isfinite(a.astype(np.float32)).all()
    bits = {2: np.uint16, 4: np.uint32}[a.dtype.itemsize]
    np.testing.assert_array_equal(a.view(bits), b.view(bits))


def tokens_of(lengths: Sequence[int], n: int) -> slice:
    start = sum(lengths[:n])
    return slice(start, start + lengths[n])


def picked(inputs: KdaInputs, lengths: Sequence[int], order: Sequence[int]) -> KdaInputs:
    """Some sequences of a packing in another order, packed end to end."""
    tokens = np.concatenate([np.arange(sum(lengths))[tokens_of(lengths, n)] for n in order])
    changed = {name: getattr(inputs, name)[:, tokens] for name in FIELDS}
    return dataclasses.replace(
        inputs, initial_state=inputs.initial_state[np.array(order)], **changed
    )


def beyond_rounding(o: jax.Array, expected: jax.Array) -> float:
    """The largest error of o, less half a bf16 step of each: what rounding a correct one may cost.

    Where |o| is an eighth or more that half step alone is 4.9e-4 of the 5e-4 allowed.
    """
    expected = np.asarray(expected)
    half_step = np.ldexp(0.5, np.frexp(expected)[1] - 8)
    off = np.abs(np.asarray(o, np.float32) - expected)
    assert np.isfinite(off).all()
    return float(np.maximum(off - half_step, 0.0).max())


# Against the oracle.


@pytest.mark.parametrize("strength", STRENGTHS)
def test_lengths_at_every_edge_match_the_oracle_at_every_strength(strength):
    case = case_of(EDGES, gate_strength=strength)
    o, final_state = outputs_of(case)
    assert o.dtype == jnp.bfloat16 and final_state.dtype == jnp.float32
    assert max_abs_error((o, final_state), oracle_of(case)) <= TOLERANCE


def repeated(inputs: KdaInputs, raw_gate: float) -> KdaInputs:
    """One key for all tokens, beta 1: I + L is as far from I as the gate lets it be."""
    return dataclasses.replace(
        inputs,
        k=jnp.broadcast_to(inputs.k[:, :1], inputs.k.shape),
        beta=jnp.ones_like(inputs.beta),
        g=jnp.full_like(inputs.g, raw_gate),
    )


def test_one_token_repeated_under_a_closed_gate_matches_the_oracle():
    """Every log decay is -5 exactly: what a strip's exponents must hold."""
    inputs = repeated(inputs_of(case_of(EDGES)), 1e3)
    assert max_abs_error(run(inputs, EDGES), kda_reference(inputs, EDGES, BOUNDED)) <= TOLERANCE


@pytest.mark.parametrize("raw_gate", [-9.0, -1e4], ids=["nearly-open", "open"])
def test_one_token_repeated_under_an_open_gate_matches_the_oracle(raw_gate):
    """Every value replaces the one before and errors do not decay.

    A series in powers of L would be off by 10^17, an inverse merged in bf16 by 6e-2.
    """
    inputs = repeated(inputs_of(case_of(EDGES)), raw_gate)
    assert max_abs_error(run(inputs, EDGES), kda_reference(inputs, EDGES, BOUNDED)) <= TOLERANCE


def test_a_wide_open_gate_matches_the_oracle():
    """|o| reaches 0.2 here."""
    inputs = inputs_of(case_of(EDGES))
    inputs = dataclasses.replace(inputs, g=jnp.full_like(inputs.g, -1e4))
    assert max_abs_error(run(inputs, EDGES), kda_reference(inputs, EDGES, BOUNDED)) <= TOLERANCE


@pytest.mark.parametrize("raw_gate", [None, -9.0, 0.0, 1e3], ids=["weak", "open", "half", "closed"])
def test_o_is_off_by_little_more_than_its_rounding(raw_gate):
    """So that the tolerance, which leaves 1.2e-5 beside a half step of 2^-11, holds by design
    wherever |o| < 1/4. Measured: 4e-6.
    """
    inputs = inputs_of(case_of(EDGES, gate_strength="weak"))
    if raw_gate is not None:
        inputs = dataclasses.replace(inputs, g=jnp.full_like(inputs.g, raw_gate))
    expected, _ = kda_reference(inputs, EDGES, BOUNDED)
    assert beyond_rounding(run(inputs, EDGES)[0], expected) <= 1e-5


@functools.cache
def promised_inputs(log_decay: float | None) -> KdaInputs:
    inputs = inputs_of(case_of(EDGES, PROMISED))
    if log_decay is None:
        return inputs
    return repeated(inputs, log_decay)


@pytest.mark.parametrize("log_decay", [None, -5.0, -4.999], ids=["drawn", "-5", "-4.999"])
def test_a_promised_gate_matches_the_oracle_and_the_tail_is_zero(log_decay):
    """With a tail of NaN, so that these share one program with the test of the tail."""
    inputs = promised_inputs(log_decay)
    o, final_state = run(with_tail(inputs, TAIL, np.nan), EDGES, PROMISED)
    found = (o[:, : sum(EDGES)], final_state)
    assert max_abs_error(found, kda_reference(inputs, EDGES, PROMISED)) <= TOLERANCE
    assert_identical(o[:, sum(EDGES) :], jnp.zeros_like(o[:, sum(EDGES) :]))


def test_what_lies_behind_the_packing_is_never_read():
    inputs = promised_inputs(None)
    finite, poisoned = (
        run(with_tail(inputs, TAIL, value), EDGES, PROMISED) for value in (-1.0, np.nan)
    )
    for a, b in zip(finite, poisoned, strict=True):
        assert_identical(a, b)


def test_seventy_tiny_sequences_match_the_oracle():
    """Their values twice as wide as their keys, so that a state stored V x K cannot pass."""
    case = case_of([n % 4 for n in range(70)], head_dim_v=256)
    assert max_abs_error(outputs_of(case), oracle_of(case)) <= TOLERANCE


@pytest.mark.parametrize(
    "lengths", [(5, 1, 20, 0), (0, 26, 0, 0), (0, 0, 0, 26)], ids=lambda x: "+".join(map(str, x))
)
def test_short_sequences_and_none_but_empty_ones_beside_them_match_the_oracle(lengths):
    case = case_of(lengths)
    o, final_state = outputs_of(case)
    assert max_abs_error((o, final_state), oracle_of(case)) <= TOLERANCE
    for n in np.flatnonzero(np.array(lengths) == 0):
        assert_identical(final_state[n], inputs_of(case).initial_state[n])


def test_nothing_but_empty_sequences_returns_every_initial_state():
    inputs = inputs_of(case_of((0, 0)))
    o, final_state = run(inputs, (0, 0))
    assert o.shape == (1, 0, 8, 128)
    assert_identical(final_state, inputs.initial_state)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dims",
    [{"head_dim_v": 256}, {"head_dim_k": 256}, {"heads": 16}],
    ids=lambda d: "{}-{}".format(*next(iter(d.items()))),
)
def test_other_dims_match_the_oracle_in_both_kernels(dims):
    """The one long tile is full here, beside a short one."""
    case = case_of((20, 64), **dims)
    assert max_abs_error(outputs_of(case), oracle_of(case)) <= TOLERANCE


# Nobody's neighbours matter.


def test_an_empty_sequence_returns_its_initial_state_bit_by_bit():
    case = case_of(EDGES)
    for n in EMPTY:
        assert_identical(outputs_of(case)[1][n], inputs_of(case).initial_state[n])


@pytest.mark.parametrize("poisoned", [1, 3, 8, 12, 15], ids=lambda n: f"length-{EDGES[n]}")
def test_a_sequence_of_nan_leaves_all_others_bit_identical(poisoned):
    """Tokens and initial state; empty sequences lie before and behind some of these."""
    case = case_of(EDGES)
    tokens = tokens_of(EDGES, poisoned)
    inputs = replace_tokens(inputs_of(case), tokens, np.nan)
    state = inputs.initial_state.at[poisoned].set(np.nan)
    o, final_state = run(dataclasses.replace(inputs, initial_state=state), EDGES)
    assert bool(jnp.isnan(o[:, tokens]).all())
    assert bool(jnp.isnan(final_state[poisoned]).all())
    expected_o, expected_final = outputs_of(case)
    for kept in (slice(0, tokens.start), slice(tokens.stop, None)):
        assert_identical(o[:, kept], expected_o[:, kept])
    others = np.delete(np.arange(len(EDGES)), poisoned)
    assert_identical(final_state[others], expected_final[others])


# Of the sequence of 130: in its first strip, at its second, at its second tile and at its last
# token; in a short sequence; at the first token of one; in the second strip of a later tile.
CHANGED = {
    "mid-strip": STARTS[3] + 13,
    "at-a-strip": STARTS[3] + 32,
    "at-a-tile": STARTS[3] + 64,
    "last-token": STARTS[3] + 129,
    "in-a-short-one": STARTS[7] + 17,
    "first-token": STARTS[10],
    "in-a-second-strip": STARTS[14] + 45,
}


@pytest.mark.parametrize("first_changed", CHANGED.values(), ids=CHANGED)
def test_future_tokens_leave_the_past_bit_identical(first_changed):
    case = case_of(EDGES)
    other = inputs_of(case_of(EDGES, seed=1, gate_strength="strong"))
    o, final_state = outputs_of(case)
    changed = replace_tokens(inputs_of(case), slice(first_changed, None), other)
    o_changed, final_changed = run(changed, EDGES)
    assert_identical(o_changed[:, :first_changed], o[:, :first_changed])
    assert float(jnp.abs(o_changed[:, first_changed] - o[:, first_changed]).max()) > 0
    ended = int(np.searchsorted(STARTS[1:], first_changed, side="right"))
    assert_identical(final_changed[:ended], final_state[:ended])
    assert float(jnp.abs(final_changed[ended] - final_state[ended]).max()) > 0


# The sequences of 20, 64 and 100 tokens, and where else each is put.
WATCHED = {20: EDGES.index(20), 64: EDGES.index(64), 100: EDGES.index(100)}
OTHERS = [n for n in range(len(EDGES)) if n not in WATCHED.values()]


def assert_as_among_the_edges(length: int, o: jax.Array, final_state: jax.Array) -> None:
    n = WATCHED[length]
    expected_o, expected_final = outputs_of(case_of(EDGES))
    assert_identical(o, expected_o[:, tokens_of(EDGES, n)])
    assert_identical(final_state, expected_final[n])


@pytest.mark.parametrize(
    ("first", "last"), [(20, 64), (64, 100), (100, 20)], ids=["20-64", "64-100", "100-20"]
)
def test_a_sequence_first_or_last_gives_the_bits_it_gives_among_others(first, last):
    between = next(n for length, n in WATCHED.items() if length not in (first, last))
    order = [WATCHED[first], *reversed(OTHERS), between, WATCHED[last]]
    lengths = [EDGES[n] for n in order]
    o, final_state = run(picked(inputs_of(case_of(EDGES)), EDGES, order), lengths)
    for place, length in ((0, first), (-2, EDGES[between]), (-1, last)):
        place %= len(order)
        assert_as_among_the_edges(length, o[:, tokens_of(lengths, place)], final_state[place])


@pytest.mark.parametrize(
    "lengths", [(20,), (64,), (100,), (64, 100), (5, 1, 20, 0)], ids=lambda x: "+".join(map(str, x))
)
def test_a_sequence_alone_or_with_its_like_gives_the_bits_it_gives_among_others(lengths):
    """Then only one of the two kernels runs, and one for whole tiles where there are no others.

    Behind what is alone lies NaN: also where whole tiles take their beta without a gather.
    """
    order = [EDGES.index(length) for length in lengths]
    inputs = picked(inputs_of(case_of(EDGES)), EDGES, order)
    if len(lengths) == 1:
        inputs = with_tail(inputs, 3, np.nan)
    o, final_state = run(inputs, lengths)
    for place, length in enumerate(lengths):
        if length in WATCHED:
            assert_as_among_the_edges(length, o[:, tokens_of(lengths, place)], final_state[place])


def test_chained_prefill_equals_one_shot():
    """Split at a tile's end (64 of 128) and elsewhere (100 of 200), the state handed on."""
    whole, half = (128, 200), (64, 100)
    inputs = inputs_of(case_of(whole))
    o, final_state = run(inputs, whole)
    state, parts = inputs.initial_state, []
    for part in (0, 1):
        tokens = np.concatenate(
            [np.arange(n) + part * n + start for start, n in zip((0, 128), half, strict=True)]
        )
        own = {name: getattr(inputs, name)[:, tokens] for name in FIELDS}
        o_part, state = run(dataclasses.replace(inputs, initial_state=state, **own), half)
        parts.append(o_part)
    chained = jnp.concatenate(
        [part[:, own] for own in (slice(64), slice(64, None)) for part in parts], axis=1
    )
    assert max_abs_error((chained, state), (o, final_state)) <= TOLERANCE
    assert max_abs_error((chained, state), oracle_of(case_of(whole))) <= TOLERANCE


# Packings drawn at random.

TILES = [-(-n // 64) for n in EDGES if n > 32]
SHORT = sum(0 < n <= 32 for n in EDGES)


@st.composite
def packings(draw) -> tuple[int, ...]:
    """Lengths with as many tokens, tiles and sequences as EDGES: hypothesis explores packings and
    not compilations."""
    extra = sum(TILES) - len(TILES)
    cuts = sorted(
        draw(st.lists(st.integers(0, extra), min_size=len(TILES) - 1, max_size=len(TILES) - 1))
    )
    tiles = 1 + np.diff([0, *cuts, extra])
    ranges = [(64 * (n - 1) + 1 if n > 1 else 33, 64 * n) for n in map(int, tiles)]
    ranges += [(1, 32)] * SHORT
    slack = sum(EDGES) - sum(least for least, _ in ranges)
    lengths = []
    for index, (least, most) in enumerate(ranges):
        behind = sum(b - a for a, b in ranges[index + 1 :])
        taken = draw(st.integers(max(0, slack - behind), min(most - least, slack)))
        lengths.append(least + taken)
        slack -= taken
    return tuple(draw(st.permutations(lengths + [0] * len(EMPTY))))


@settings(max_examples=8, deadline=None)
@given(lengths=packings(), strength=st.sampled_from(STRENGTHS))
def test_any_packing_of_as_many_tiles_matches_the_oracle(lengths, strength):
    inputs = inputs_of(case_of(EDGES, gate_strength=strength))
    o, final_state = run(inputs, lengths)
    expected = kda_reference(inputs, lengths, BOUNDED)
    assert max_abs_error((o, final_state), expected) <= TOLERANCE
    empty = np.flatnonzero(np.array(lengths) == 0)
    assert_identical(final_state[empty], inputs.initial_state[empty])


@pytest.mark.slow
@pytest.mark.parametrize("strength", ["weak", "strong"])
@pytest.mark.parametrize("sequences", [1, 8, 33, 70])
def test_any_number_of_sequences_of_up_to_300_tokens_matches_the_oracle(sequences, strength):
    draw = np.random.default_rng(sequences)
    lengths = draw.integers(0, 301, sequences)
    # As in traffic: tiles with many boundaries, and some sequences without a token.
    lengths = np.where(draw.random(sequences) < 0.4, lengths % 20, lengths)
    case = case_of(lengths, gate_strength=strength)
    assert max_abs_error(outputs_of(case), oracle_of(case)) <= TOLERANCE


# As a TPU would run it.


@pytest.mark.slow
def test_nothing_unwritten_is_read_and_no_copies_race():
    """Buffers full of NaN until they are written, copies that may overtake.

    With a tail, because this interpreter knows no windows that run over the end.
    """
    case = case_of((5, 0, 66))
    careful = pltpu.InterpretParams(uninitialized_memory="nan", detect_races=True)
    inputs = with_tail(inputs_of(case), 64, np.nan)
    o, final_state = run(inputs, case.lengths, interpret=careful)
    found = (o[:, : case.tokens], final_state)
    assert max_abs_error(found, oracle_of(case)) <= TOLERANCE
    assert float(jnp.abs(o[:, case.tokens :]).max()) == 0
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    assert not interpret_pallas_call.races.races_found
