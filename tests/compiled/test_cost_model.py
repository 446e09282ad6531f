"""The cost model: its arithmetic, its fit, and what it is worth on published points."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from shared_data import shared_file

from k3bench.compiled.errors import CompiledError
from k3bench.compiled.tpu.cost_model import CostModel, Work, fitted_model, judged_errors
from k3bench.compiled.tpu.fit import (
    PublishedPoint,
    fit,
    halves,
    judged_model,
    load_points,
    main,
    predict,
    relative_errors,
    wrong_orders,
)
from k3bench.compiled.tpu.targets import V6E

MODEL = CostModel(100e-6, 0.5e-6, 0.04, 0.1, 1, 1)


def made_up(count=40, launch_s=90e-6, op_s=0.7e-6, noise=0.0):
    """Points that obey the model exactly, but for noise."""
    random = np.random.default_rng(3)
    truth = CostModel(launch_s, op_s, 0, 0, 0, 0)
    points = []
    for number in range(count):
        point = PublishedPoint(
            f"kernel{number % 3}", f"S{number}", 24, 1.0, int(random.integers(1e4, 1e7)),
            int(random.integers(1e3, 1e6)), int(random.integers(20, 900)),
            int(random.integers(1e5, 1e8)),
        )  # fmt: skip
        factor = 1 + noise * random.standard_normal()
        points.append(replace(point, measured_s=predict(point, truth) * factor))
    return points


def test_a_kernel_overlaps_its_transfers_and_an_xla_op_adds_them():
    cycles, moved = 1_750_000, int(1.64e9)  # a millisecond each
    assert MODEL.seconds([Work(cycles, moved)], [], V6E) == pytest.approx(1.1e-3)
    assert MODEL.seconds([], [Work(cycles, moved)], V6E) == pytest.approx(2.1005e-3)
    assert MODEL.seconds([Work(cycles, 0, runs=3)], [], V6E) == pytest.approx(3.1e-3)


def test_the_fit_finds_the_constants_that_made_the_points():
    model = fit(made_up())
    assert model.launch_s == pytest.approx(90e-6)
    assert model.op_s == pytest.approx(0.7e-6)


def test_the_fit_stands_noise():
    model = judged_model(made_up(noise=0.02))
    assert model.op_s == pytest.approx(0.7e-6, rel=0.2)
    assert 0.005 < model.mean_error < 0.04


def test_costs_below_zero_are_refused():
    with pytest.raises(CompiledError, match="both are costs"):
        fit(made_up(launch_s=-50e-6))


def test_the_halves_do_not_depend_on_the_order_and_share_nothing():
    points = made_up()
    first, second = halves(points)
    assert {p.id for p in first} == {p.id for p in halves(points[::-1])[0]}
    assert not {p.id for p in first} & {p.id for p in second}
    assert len(first) + len(second) == len(points)


def test_wrong_orders_are_found_and_near_ties_are_not_judged():
    base = made_up(3)[0]
    slow_but_small = replace(base, implementation="a", measured_s=2.0)
    fast_but_large = replace(
        base, implementation="b", measured_s=1.0, kernel_cycles=2 * base.kernel_cycles
    )
    assert [(a.implementation, b.implementation) for a, b in wrong_orders(
        [slow_but_small, fast_but_large], MODEL
    )] == [("b", "a")]  # fmt: skip
    near = replace(fast_but_large, measured_s=1.9)
    assert list(wrong_orders([slow_but_small, near], MODEL)) == []
    elsewhere = replace(fast_but_large, shape="other")
    assert list(wrong_orders([slow_but_small, elsewhere], MODEL)) == []


@pytest.fixture(scope="module")
def published():
    return load_points(shared_file("published/v6e_compiled.json"))


def test_points_that_were_not_fitted_are_within_the_goal(published):
    fitted, judged = halves(published)
    errors = np.abs(list(relative_errors(judged, fit(fitted)).values()))
    assert errors.mean() <= 0.04
    assert errors.max() <= 0.12
    assert list(wrong_orders(published, fit(fitted))) == []


def test_the_committed_constants_are_what_the_fit_gives(published):
    again = judged_model(published)
    committed = fitted_model()
    assert committed.launch_s == pytest.approx(again.launch_s, rel=1e-6)
    assert committed.op_s == pytest.approx(again.op_s, rel=1e-6)
    assert committed.mean_error == pytest.approx(again.mean_error, rel=1e-6)
    assert committed.worst_error == pytest.approx(again.worst_error, rel=1e-6)


def test_the_committed_errors_are_those_that_the_stated_ones_summarise(published):
    errors = judged_errors()
    assert errors.keys() == {point.id for point in published}
    sizes = np.abs(list(errors.values()))
    assert fitted_model().mean_error == pytest.approx(sizes.mean())
    assert fitted_model().worst_error == pytest.approx(sizes.max())


def test_the_stated_error_is_no_better_than_that_of_the_half_not_fitted(published):
    fitted, judged = halves(published)
    errors = np.abs(list(relative_errors(judged, fitted_model()).values()))
    assert fitted_model().mean_error >= errors.mean()
    assert fitted_model().worst_error >= errors.max()
    assert fitted_model().judged_on == len(published) == len(fitted) + len(judged)


def test_a_file_that_is_none_ends_in_one_line(tmp_path):
    bad = tmp_path / "points.json"
    bad.write_text(json.dumps({"points": [{"implementation": "x"}]}))
    result = CliRunner().invoke(main, [str(bad)])
    assert result.exit_code == 65
    assert "not a file of compiled points" in result.output
