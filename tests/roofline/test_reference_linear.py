"""Linear attention, RetNet, Lightning Attention-2 and KDA: recurrent = chunked = parallel."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from roofline.examples import normal, quick

from k3bench.roofline.reference import kda, linear

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SINGLE = {"rtol": 2e-4, "atol": 2e-4}
H, K, V = 2, 4, 3  # K and V differ: a transposed state would not fit

seeds = st.integers(0, 2**16)
lengths = st.integers(0, 20)
chunks = st.integers(1, 24)
dtypes = st.sampled_from([torch.float64, torch.float32])
DECAYS = {
    "linear attention": lambda heads: torch.ones(heads, dtype=torch.float64),
    "RetNet": linear.retnet_decays,
    "Lightning": linear.lightning_decays,
}


def tolerance(dtype):
    return EXACT if dtype == torch.float64 else SINGLE


@pytest.mark.parametrize("family", DECAYS)
@quick
@given(seed=seeds, tokens=lengths, chunk=chunks, dtype=dtypes)
def test_three_ways_of_linear_attention_agree(family, seed, tokens, chunk, dtype):
    decay = DECAYS[family](H).to(dtype)
    q, k = normal(seed, H, tokens, K, dtype=dtype), normal(seed + 1, H, tokens, K, dtype=dtype)
    v, state = normal(seed + 2, H, tokens, V, dtype=dtype), normal(seed + 3, H, K, V, dtype=dtype)
    o, final = linear.recurrent(q, k, v, decay, state)
    by_chunk, last = linear.chunked(q, k, v, decay, state, chunk)
    torch.testing.assert_close(by_chunk, o, **tolerance(dtype))
    torch.testing.assert_close(last, final, **tolerance(dtype))
    empty = torch.zeros_like(state)
    from_nothing, _ = linear.recurrent(q, k, v, decay, empty)
    torch.testing.assert_close(linear.parallel(q, k, v, decay), from_nothing, **tolerance(dtype))


def test_decays_are_those_of_the_papers():
    assert linear.retnet_decays(2).tolist() == [1 - 1 / 32, 1 - 1 / 64]
    slopes = -torch.log(linear.lightning_decays(8))
    assert slopes.tolist() == pytest.approx([2.0**-power for power in range(1, 9)])


def kda_problem(seed, tokens, dtype, strength, per_channel):
    q, k = normal(seed, H, tokens, K, dtype=dtype), normal(seed + 1, H, tokens, K, dtype=dtype)
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    g = -strength * torch.sigmoid(normal(seed + 2, H, tokens, K, dtype=dtype))
    if not per_channel:
        g = g[..., :1].expand(-1, -1, K)
    beta = torch.sigmoid(normal(seed + 3, H, tokens, dtype=dtype))
    v, state = normal(seed + 4, H, tokens, V, dtype=dtype), normal(seed + 5, H, K, V, dtype=dtype)
    return q, k, v, g, beta, state


@quick
@given(seeds, lengths, chunks, dtypes, st.sampled_from([0.0, 0.1, 5.0, 50.0]), st.booleans())
def test_three_ways_of_kda_and_of_the_gated_delta_rule_agree(
    seed, tokens, chunk, dtype, strength, per_channel
):
    inputs = kda_problem(seed, tokens, dtype, strength, per_channel)
    o, final = kda.recurrent(*inputs)
    for other, last in (kda.chunked(*inputs, chunk), kda.parallel(*inputs)):
        torch.testing.assert_close(other, o, **tolerance(dtype))
        torch.testing.assert_close(last, final, **tolerance(dtype))


@quick
@given(seeds, st.integers(1, 12), st.integers(0, 12))
def test_a_prefill_in_two_calls_hands_its_state_on(seed, first, second):
    q, k, v, g, beta, state = kda_problem(seed, first + second, torch.float64, 5.0, True)
    o, final = kda.chunked(q, k, v, g, beta, state, 5)
    head = [x[:, :first] for x in (q, k, v, g, beta)]
    tail = [x[:, first:] for x in (q, k, v, g, beta)]
    o_head, between = kda.chunked(*head, state, 5)
    o_tail, last = kda.chunked(*tail, between, 5)
    torch.testing.assert_close(torch.cat([o_head, o_tail], 1), o, **EXACT)
    torch.testing.assert_close(last, final, **EXACT)


def test_without_decay_and_with_orthonormal_keys_the_delta_rule_is_linear_attention():
    tokens = K
    q, k = normal(1, H, tokens, K), torch.eye(K, dtype=torch.float64).expand(H, K, K)
    v, empty = normal(2, H, tokens, V), torch.zeros(H, K, V, dtype=torch.float64)
    ones = torch.ones(H, tokens, dtype=torch.float64)
    o, state = kda.recurrent(q, k, v, torch.zeros(H, tokens, K, dtype=torch.float64), ones, empty)
    plain, same = linear.recurrent(q, k, v, torch.ones(H, dtype=torch.float64), empty)
    torch.testing.assert_close(o, plain * K**-0.5, **EXACT)
    torch.testing.assert_close(state, same, **EXACT)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_kernels_oracle_is_this_recurrence(seed):
    jnp = pytest.importorskip("jax.numpy")
    from kda_tpu.gate import Gate
    from kda_tpu.inputs import KdaInputs
    from kda_tpu.reference import kda_reference

    tokens = 7
    q, k, v, _, beta, state = kda_problem(seed, tokens, torch.float32, 1.0, True)
    raw = normal(seed + 9, H, tokens, K, dtype=torch.float32)
    a_log, bias = (
        normal(seed + 6, H, dtype=torch.float32),
        normal(seed + 7, H, K, dtype=torch.float32),
    )
    # The bounded gate of K3: -5 sigmoid(exp(A_log) (g + bias)).
    g = -5 * torch.sigmoid(torch.exp(a_log)[:, None, None] * (raw + bias[:, None]))
    o, final = kda.recurrent(q, k, v, g, beta, state)

    def packed(x):
        return jnp.asarray(x.transpose(0, 1).numpy())[None]

    inputs = KdaInputs(
        q=packed(q),
        k=packed(k),
        v=packed(v),
        g=packed(raw),
        beta=packed(beta),
        A_log=jnp.asarray(a_log.numpy()),
        dt_bias=jnp.asarray(bias.numpy()),
        initial_state=jnp.asarray(state.numpy())[None],
    )
    theirs, theirs_final = kda_reference(inputs, [tokens], Gate())
    torch.testing.assert_close(torch.tensor(theirs[0].tolist()).transpose(0, 1), o, **SINGLE)
    torch.testing.assert_close(torch.tensor(theirs_final[0].tolist()), final, **SINGLE)
