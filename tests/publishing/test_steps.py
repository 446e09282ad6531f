"""Fast step detection finds asv's steps to the last bit, many series at once."""

import math
import random

import numpy as np
import pytest
from asv import step_detect
from hypothesis import given, settings
from hypothesis import strategies as st

from k3bench.publishing import steps
from k3bench.publishing.step_short import best_partitions, short_intervals
from k3bench.publishing.step_splits import likely_splits
from k3bench.publishing.steps import InfiniteSeries, detect_many, solve_many, solved_together

SIZES = [0, 1, 2, 3, 19, 20, 21, 41, 60, 150]


def series(draw: random.Random, size: int, form: int) -> tuple[list, list]:
    """Noise round a level that steps, of several forms, with missing values and weights."""
    level = 10 ** draw.uniform(-6, 3)
    step = draw.randrange(size + 1)
    noise = draw.choice([0.0, 1e-9, 0.02, 0.3])
    values = [
        level * (1.3 if at >= step else 1.0) * (1 + draw.gauss(0, noise)) for at in range(size)
    ]
    if form == 1:  # many equal values
        values = [round(value / level * 5) for value in values]
    weights = [1.0] * size if form == 2 else [draw.random() + 0.1 for _ in range(size)]
    for given_list in (values, weights):
        for at in range(size):
            if draw.random() < 0.03:
                given_list[at] = draw.choice([None, float("nan")])
    return values, weights


def many_series(draw: random.Random, count: int) -> list[tuple[list, list]]:
    return [series(draw, draw.choice(SIZES), draw.choice([0, 1, 2])) for _ in range(count)]


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_steps_are_asv_s_to_the_last_bit(seed: int) -> None:
    many = many_series(random.Random(seed), 6)
    found = detect_many(many)
    expected = [step_detect.detect_steps(*one) for one in many]
    assert repr(found) == repr(expected)  # -0.0 and the types as well


@pytest.mark.parametrize(
    "values, weights",
    [
        pytest.param([1.0, 2.0, 9.0, 9.5], [1e308, 1e308, 1e308, 1.0], id="weights-overflow"),
        pytest.param([1.0, 2.0, 9.0], [5e-324, 1e300, 1e300], id="weight-underflows"),
        pytest.param([1e300, -1e300, 1e300, 3e299] * 12, None, id="largest"),
        pytest.param([5e-324, 0.0, 1e-323, 0.0] * 8, None, id="smallest"),
        pytest.param([1, 2, 1, 2, 7, 8, 7], [1, 0, -1, 2, 2, 2, 2], id="integers-and-no-weight"),
        pytest.param([-0.0, 0.0, -0.0, 0.0] * 6, [None] * 24, id="signed-zeros"),
        pytest.param([2.0, 1.0], [math.nan, None], id="no-weight-known"),
        pytest.param([None, math.nan], [1.0, 1.0], id="nothing-there"),
    ],
)
def test_extreme_series_are_asv_s_too(values: list, weights: list | None) -> None:
    usual = series(random.Random(1), 60, 0)
    expected = [step_detect.detect_steps(*usual), step_detect.detect_steps(values, weights)]
    assert repr(detect_many([usual, (values, weights)])) == repr(expected)


@pytest.mark.parametrize(
    "values, weights",
    [([1.0, math.inf, 2.0], None), ([1.0, 2.0], [1.0, math.inf]), ([1e308, -1e308] * 9, None)],
    ids=["infinite", "infinite-weight", "distances-overflow"],
)
def test_series_on_which_asv_does_not_end_are_refused(values: list, weights: list | None) -> None:
    with pytest.raises(InfiniteSeries, match="series 1 holds infinite values"):
        detect_many([series(random.Random(1), 20, 0), (values, weights)])


def test_a_long_history_is_cut_into_parts_that_are_solved_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = many_series(random.Random(3), 12)
    whole = detect_many(many)
    monkeypatch.setattr(steps, "VALUES_AT_ONCE", 100)
    assert detect_many(many) == whole


def test_work_that_detects_steps_gets_them_solved_together() -> None:
    many = many_series(random.Random(4), 5)

    def work() -> list:
        return [step_detect.detect_steps(*one) for one in many]

    solver = step_detect.solve_potts_autogamma
    assert solved_together(work) == work()
    assert step_detect.solve_potts_autogamma is solver


def problems(seed: int) -> list[tuple[list[float], list[float]]]:
    draw = random.Random(seed)
    many = []
    for size in (1, 5, 20, 33, 70):
        values = [draw.choice([0.5, 1.0, draw.random()]) for _ in range(size)]
        many.append((values, [draw.choice([1.0, 0.5, draw.random() + 0.1]) for _ in range(size)]))
    return many


def test_solutions_are_asv_s_with_the_penalty() -> None:
    many = problems(2)
    assert solve_many(many) == [step_detect.solve_potts_autogamma(*one) for one in many]


def test_short_intervals_are_those_of_asv_s_compiled_code() -> None:
    many = problems(5)
    short = short_intervals(many)
    for number, one in enumerate(many):
        compiled = step_detect.get_mu_dist(*one)
        for right in range(len(one[0])):
            for left in range(max(0, right - 19), right + 1):
                at = right, left - right + 19, number
                assert short.distances[at] == compiled.dist(left, right)
                assert short.medians[at] == compiled.mu(left, right)
        assert np.isinf(short.distances[len(one[0]) :, :, number]).all()


@pytest.mark.parametrize("penalty", [0.0, 0.01, 1.0, 1e9])
def test_partitions_are_those_of_asv_s_compiled_code(penalty: float) -> None:
    many = problems(6)
    starts = best_partitions(short_intervals(many).distances, np.full(len(many), penalty))
    for row, one in zip(starts, many, strict=True):
        size = len(one[0])
        compiled = step_detect.get_mu_dist(*one)
        assert [start - 1 for start in row[:size]] == compiled.find_best_partition(
            penalty, 1, 20, 0, size
        )


@pytest.mark.parametrize("form", ["noise", "few-values", "one-value"])
def test_the_best_split_is_always_among_the_likely_ones_and_they_are_few(form: str) -> None:
    draw = random.Random(form)
    kinds = {"noise": draw.random, "few-values": lambda: draw.randrange(4), "one-value": lambda: 7}
    values = [float(kinds[form]()) for _ in range(130)]
    weights = [1.0 if form == "few-values" else draw.random() + 0.1 for _ in values]
    compiled = step_detect.get_mu_dist(values, weights)
    splits = [(0, 40, 1, 21), (0, 129, 50, 90), (30, 90, 31, 71), (60, 129, 109, 129)]
    start, end, low, high = (np.array(part) for part in zip(*splits, strict=True))
    number = np.zeros(len(splits), dtype=np.int64)
    likely = likely_splits(np.array([values]), np.array([weights]), number, start, low, high, end)
    for (first, last, lowest, highest), places in zip(splits, likely, strict=True):
        costs = {
            place: compiled.dist(first, place - 1) + compiled.dist(place, last)
            for place in range(lowest, highest + 1)
        }
        least = min(costs.values())
        assert {place for place, cost in costs.items() if cost == least} <= set(places)
        if form == "noise":
            assert len(places) == 1
