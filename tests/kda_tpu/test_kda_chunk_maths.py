"""The parts of the chunked form: pair scores with and without a bounded gate, and the solve."""

import jax.numpy as jnp
import numpy as np
import pytest

from kda_tpu import Gate, KdaArgumentError, chunked_xla
from kda_tpu.chunked_xla import pair_scores, unit_lower_inverse

BT, K = 64, 32


def rows_and_decays(log_decay: np.ndarray, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x, k = rng.standard_normal((2, 1, BT, K))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    return x, k, np.cumsum(log_decay, axis=1) / np.log(2)


def exact_scores(x: np.ndarray, k: np.ndarray, G: np.ndarray) -> np.ndarray:
    gap = np.minimum(G[:, :, None] - G[:, None, :], 0.0)
    return np.tril(np.einsum("hic,hjc,hijc->hij", x, k, np.exp2(gap)))


DECAYS = {
    "open": np.full((1, BT, K), -1e-4),
    "at-the-bound": np.full((1, BT, K), -5.0),
    "mixed": -5.0 * np.random.default_rng(1).random((1, BT, K)),
    "bound-in-one-strip": np.where(np.arange(BT)[:, None] // 16 == 1, -5.0, -1e-3)[None]
    * np.ones((1, 1, K)),
}


def scores_of(x: np.ndarray, k: np.ndarray, G: np.ndarray, gate: Gate) -> np.ndarray:
    (scores,) = pair_scores((jnp.float32(x),), jnp.float32(k), jnp.float32(G), gate)
    return np.where(np.tril(np.ones((BT, BT), bool)), np.asarray(scores), 0.0)


@pytest.mark.parametrize("gate", [Gate(), Gate("unbounded")], ids=["bounded", "any-gate"])
@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS)
def test_pair_scores_are_exact_on_and_below_the_diagonal(decay, gate):
    x, k, G = rows_and_decays(decay)
    # A pair's decay is off by 2^-24 |G| ln 2, |G| <= 462, of itself; sums are of |x||k| = 6.
    assert np.abs(scores_of(x, k, G, gate) - exact_scores(x, k, G)).max() < 1e-4


@pytest.mark.parametrize("gate", [Gate(), Gate("unbounded")], ids=["bounded", "any-gate"])
def test_weak_gates_lose_nothing_to_the_exponents(gate):
    """A shift by 57.7 inside the exponent would round a decay of 2^-0.0001 off by 2e-6."""
    x, k, G = rows_and_decays(DECAYS["open"])
    assert np.abs(scores_of(x, k, G, gate) - exact_scores(x, k, G)).max() < 1e-6


def test_gates_below_the_bound_stay_finite_only_in_the_form_for_any_gate():
    """Two steps of -80 in a strip: 2^230 in the factored form, and still exact pair by pair."""
    decay = np.full((1, BT, K), -0.1)
    decay[:, [20, 25]] = -80.0
    x, k, G = rows_and_decays(decay)
    scores = scores_of(x, k, G, Gate("activated"))
    assert np.abs(scores - exact_scores(x, k, G)).max() < 1e-4
    assert not np.isfinite(scores_of(x, k, G, Gate("activated", -5.0))).all()


def test_a_bound_outside_the_exponent_budget_is_refused(monkeypatch):
    """Gate refuses it first; the kernel refuses it as well, should the strip or the bound grow."""
    monkeypatch.setattr(chunked_xla, "STRIP", 32)
    x, k, G = rows_and_decays(DECAYS["open"])
    with pytest.raises(KdaArgumentError, match="leaves fp32"):
        scores_of(x, k, G, Gate())


def unit_lower_systems() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    k = rng.standard_normal((BT, 128))
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    same = np.repeat(k[:1], BT, axis=0)
    near = same + 0.1 * k
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    keys = {"random": k, "one-repeated": same, "nearly-repeated": near, "period-4": k[:4][
        np.arange(BT) % 4
    ]}  # fmt: skip
    return {name: np.tril(x @ x.T, -1) for name, x in keys.items()}


@pytest.mark.parametrize("L", unit_lower_systems().values(), ids=unit_lower_systems())
def test_the_block_doubling_inverse_is_as_good_as_forward_substitution(L):
    inverse = np.asarray(unit_lower_inverse(jnp.float32(L)[None])[0], np.float64)
    exact = np.linalg.inv(np.eye(BT) + L)
    assert np.abs(inverse - exact).max() < 2e-6  # measured at most 5e-7; entries reach 1
    np.testing.assert_array_equal(inverse[np.triu_indices(BT, 1)], 0.0)


def test_a_neumann_series_over_the_whole_chunk_is_useless_on_repeated_keys():
    """Why the inverse is built by blocks: the alternative, measured."""
    L = np.float32(unit_lower_systems()["one-repeated"])
    z = np.eye(BT, dtype=np.float32)
    z, power = z - L @ z, L
    for _ in range(5):
        power = power @ power
        z = z + power @ z
    assert np.abs(z - np.linalg.inv(np.eye(BT) + np.float64(L))).max() > 1e3
