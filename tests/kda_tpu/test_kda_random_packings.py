"""``chunked_xla`` on packings drawn at random, with NaN behind them, against the float64 loop."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kda_cases import ACTIVATED, BOUNDED, inputs_of, recurrence_float64, run, small_case

from kda_tpu import tolerance

# Equal shapes for every draw (4 sequences, 6 chunks, 6 * 64 tokens with a tail behind them), so
# that hypothesis explores packings and not compilations.
SEQUENCES, CHUNKS, CHUNK = 4, 6, 64
TOKENS = CHUNKS * CHUNK


@st.composite
def packings(draw) -> tuple[int, ...]:
    """Lengths of SEQUENCES sequences, some empty, that fill exactly CHUNKS chunks."""
    cuts = sorted(draw(st.lists(st.integers(0, CHUNKS), min_size=3, max_size=3)))
    chunks = np.diff([0, *cuts, CHUNKS])
    return tuple(int(CHUNK * (c - 1) + draw(st.integers(1, CHUNK))) if c else 0 for c in chunks)


@pytest.mark.parametrize("gate", [BOUNDED, ACTIVATED], ids=["bounded", "activated"])
@settings(max_examples=15, deadline=None)
@given(lengths=packings(), strength=st.sampled_from(["weak", "typical", "strong"]))
def test_chunked_xla_is_the_recurrence_on_any_packing(gate, lengths, strength):
    clean = inputs_of(small_case((TOKENS, 0, 0, 0), gate, gate_strength=strength, heads=1))
    in_packing = (jnp.arange(TOKENS) < sum(lengths))[None, :, None, None]
    poisoned = dataclasses.replace(clean, v=jnp.where(in_packing, clean.v, np.nan))
    o, final_state = run("chunked_xla", poisoned, lengths, gate)
    o_64, final_64 = recurrence_float64(clean, lengths, gate)
    # The fp32 tolerance of the package: here against float64 instead of the fp32 oracle.
    assert np.abs(np.asarray(o) - o_64).max() < tolerance("float32")
    assert np.abs(np.asarray(final_state) - final_64).max() < tolerance("float32")
