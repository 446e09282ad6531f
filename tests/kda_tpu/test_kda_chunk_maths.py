"""The parts of the chunked form: pair scores with and without a bounded gate, and the solve."""

import jax.numpy as jnp
import numpy as np
import pytest

from kda_tpu import KdaArgumentError
from kda_tpu.chunked_xla import scores_any_gate, scores_bounded, unit_lower_inverse

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


@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS)
def test_bounded_scores_are_exact_and_finite_on_and_below_the_diagonal(decay):
    x, k, G = rows_and_decays(decay)
    (scores,) = scores_bounded((jnp.float32(x),), jnp.float32(k), jnp.float32(G), -5.0)
    scores = np.tril(np.where(np.tril(np.ones((BT, BT))) > 0, np.asarray(scores), 0.0))
    # Relative error 2^-24 |G| ln 2 of a pair's decay, |G| <= 462, on sums of about |x||k| = 6.
    assert np.abs(scores - exact_scores(x, k, G)).max() < 1e-4


@pytest.mark.parametrize("decay", DECAYS.values(), ids=DECAYS)
def test_scores_for_any_gate_agree_with_the_exact_ones(decay):
    x, k, G = rows_and_decays(decay)
    (scores,) = scores_any_gate((jnp.float32(x),), jnp.float32(k), jnp.float32(G))
    assert np.abs(np.tril(scores) - exact_scores(x, k, G)).max() < 1e-4


def test_scores_for_any_gate_stay_finite_where_the_bounded_form_overflows():
    """Two steps of -80 in a strip: 2^230 in the factored form, and still exact here."""
    decay = np.full((1, BT, K), -0.1)
    decay[:, [20, 25]] = -80.0
    x, k, G = (np.float64(a) for a in rows_and_decays(decay))
    arguments = ((jnp.float32(x),), jnp.float32(k), jnp.float32(G))
    (scores,) = scores_any_gate(*arguments)
    assert np.isfinite(scores).all()
    assert np.abs(np.tril(scores) - exact_scores(x, k, G)).max() < 1e-4
    (broken,) = scores_bounded(*arguments, -5.0)
    on_or_below = np.tril(np.ones((BT, BT), bool))
    assert not np.isfinite(np.asarray(broken)[0][on_or_below]).all()


def test_bounded_scores_refuse_a_bound_outside_the_exponent_budget():
    x, k, G = rows_and_decays(DECAYS["open"])
    with pytest.raises(KdaArgumentError, match="leave fp32"):
        scores_bounded((jnp.float32(x),), jnp.float32(k), jnp.float32(G), -11.0)


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
