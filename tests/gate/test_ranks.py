"""The rank test, its guard and the adjustments: small cases by hand, properties, scipy and asv."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from k3bench.gate.discoveries import benjamini_hochberg, holm
from k3bench.gate.ranks import rank_test, samples_needed, smallest_p

positive = st.floats(1e-6, 1e3)


def one(base, head):
    found = rank_test(np.array([base], dtype=float), np.array([head], dtype=float))
    return found.p[0], found.shift[0], found.standard_error[0]


@pytest.mark.parametrize(("m", "n"), [(3, 3), (6, 6), (5, 7), (4, 9)], ids=lambda n: str(n))
def test_complete_separation_reaches_exactly_the_smallest_p(m, n):
    p, shift, _ = one(range(1, m + 1), range(101, 101 + n))
    assert p == pytest.approx(float(Fraction(2, comb(m + n, m))), rel=1e-12)
    assert p == pytest.approx(smallest_p(m, n), rel=1e-12) and shift > 0


def test_six_against_six_cannot_reach_what_asv_asks_for():
    # asv's guard takes half of it, 0.00108, and then tests at 0.002 what can never be below it.
    assert smallest_p(6, 6) == pytest.approx(2 / 924) and smallest_p(6, 6) > 0.002
    assert smallest_p(7, 7) < 0.002
    assert samples_needed(0.002) == 7
    assert smallest_p(0, 5) == 1.0


def test_a_case_counted_by_hand():
    # Ranks of head among 1..6: 2, 5, 6. U = 2 + 5 + 6 - 6 = 7; P(U >= 7) = P(U <= 2) = 4 / 20.
    p, _, _ = one([1, 3, 4], [2, 5, 6])
    assert p == pytest.approx(2 * 4 / 20)


@pytest.mark.parametrize("sizes", [(10, 10), (30, 30), (20, 50), (60, 60)], ids=str)
def test_p_values_are_scipys_and_rows_do_not_mix(sizes):
    random = np.random.default_rng(1)
    base, head = random.lognormal(size=(7, sizes[0])), random.lognormal(size=(7, sizes[1]))
    found = rank_test(base, head)
    method = "exact" if max(sizes) <= 50 else "asymptotic"
    for index in range(7):
        expected = stats.mannwhitneyu(base[index], head[index], method=method).pvalue
        assert found.p[index] == pytest.approx(expected)


def test_ties_are_corrected_for_and_constant_samples_do_not_differ():
    base, head = [1.0, 1.0, 2.0, 2.0, 3.0], [2.0, 3.0, 3.0, 4.0, 4.0]
    expected = stats.mannwhitneyu(base, head, method="asymptotic").pvalue
    assert one(base, head)[0] == pytest.approx(expected)
    p, shift, error = one([1.0] * 5, [1.0] * 5)
    assert p == 1.0 and shift == 0.0 and error > 0


def test_the_shift_is_the_median_of_all_pairwise_log_ratios():
    base, head = np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0])
    expected = np.median(np.log(head[None, :] / base[:, None]))
    assert one(base, head)[1] == pytest.approx(expected)


def test_the_interval_covers_the_true_shift_as_often_as_it_says():
    random = np.random.default_rng(2)
    base = np.exp(0.05 * random.standard_normal((2000, 30)))
    head = 1.1 * np.exp(0.05 * random.standard_normal((2000, 30)))
    found = rank_test(base, head)
    covered = np.abs(found.shift - np.log(1.1)) <= 1.96 * found.standard_error
    assert 0.93 < covered.mean() < 0.97


def test_a_hundred_samples_a_side_give_the_same_shift_as_all_pairs():
    random = np.random.default_rng(3)
    base, head = random.lognormal(0, 0.1, (5, 100)), random.lognormal(0.05, 0.1, (5, 100))
    found = rank_test(base, head)
    for index in range(5):
        every = np.log(head[index][None, :] / base[index][:, None])
        assert found.shift[index] == pytest.approx(np.median(every), abs=2e-3)


@given(st.lists(positive, min_size=2, max_size=12), st.lists(positive, min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_swapping_the_sides_keeps_p_and_turns_the_shift(base, head):
    p, shift, error = one(base, head)
    back, turned, same = one(head, base)
    assert back == pytest.approx(p) and turned == pytest.approx(-shift, abs=1e-9)
    assert same == pytest.approx(error, rel=1e-6)


@given(st.lists(positive, min_size=2, max_size=12), st.integers(-20, 20))
@settings(max_examples=60, deadline=None)
def test_the_unit_of_time_does_not_matter(samples, power):
    base = np.array(samples)
    head = base[::-1] * 1.25
    p, shift, _ = one(base, head)
    scaled, moved, _ = one(base * 2.0**power, head * 2.0**power)
    assert scaled == pytest.approx(p) and moved == pytest.approx(shift, abs=1e-9)


def test_benjamini_hochberg_by_hand():
    p = np.array([0.01, 0.04, 0.03, 0.5])
    # Sorted 0.01 0.03 0.04 0.5 times 4 / rank: 0.04 0.06 0.0533 0.5, then minima from the right.
    assert benjamini_hochberg(p) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert holm(p) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert benjamini_hochberg(np.array([])).size == 0 and holm(np.array([])).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_adjusted_p_values_are_scipys(p):
    expected = stats.false_discovery_control(p, method="bh")
    assert benjamini_hochberg(np.array(p)) == pytest.approx(expected)
