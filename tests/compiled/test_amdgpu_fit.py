"""The fit of the latency model: its points, its halves, and that it finds what it was given."""

import json
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files

import pytest

from k3bench.compiled.amdgpu.fit import (
    POINTS_FILE,
    START,
    errors,
    fit,
    halves,
    load_points,
    report,
    wrong_orders,
)
from k3bench.compiled.amdgpu.model import LatencyModel, fit_document
from k3bench.compiled.errors import CompiledError

TEXT = files("k3bench.compiled.amdgpu").joinpath(POINTS_FILE).read_text()
POINTS = load_points(TEXT)
TRUE = LatencyModel(latency_s=500e-9, near_latency_s=150e-9, launch_s=4e-6)


def linear(model, number):
    """A launch with trips of its own number to memory and near it."""
    return model.launch_s + number * model.latency_s + (20 - number) * model.near_latency_s


@pytest.fixture
def predict():
    return {p.id: lambda model, n=n: linear(model, n) for n, p in enumerate(POINTS)}


@pytest.fixture
def points():
    return [replace(p, measured_s=linear(TRUE, n)) for n, p in enumerate(POINTS)]


def test_every_published_point_has_a_source_and_a_place_in_one_half():
    document = json.loads(TEXT)
    assert {point["source"] for point in document["points"]} <= document["sources"].keys()
    fitted, held_out = halves(POINTS)
    assert len(fitted) + len(held_out) == len(POINTS)
    assert not {p.id for p in fitted} & {p.id for p in held_out}
    assert [p.id for p in held_out] == fit_document()["held_out"]


def test_the_committed_constants_are_those_of_these_points():
    document = fit_document()
    assert document["points_sha256"] == sha256(TEXT.encode()).hexdigest()
    assert document["errors"].keys() == {p.id for p in POINTS}
    assert document["model"].keys() == {"latency_s", "near_latency_s", "launch_s"}


def test_the_goal_is_met_and_launches_of_one_kernel_are_in_order():
    assert fit_document()["judged"]["gfx950"]["mean"] <= 0.18
    assert fit_document()["wrong_orders"] == []


def test_the_fit_finds_the_constants_that_made_the_points(points, predict):
    assert errors(points, predict, START) != pytest.approx(dict.fromkeys(predict, 0.0), abs=0.01)
    found = fit(points, predict)
    assert max(map(abs, errors(points, predict, found).values())) < 0.05


def test_one_point_that_is_far_off_does_not_move_the_others(points, predict):
    wild = [replace(points[0], measured_s=9 * points[0].measured_s), *points[1:]]
    found = errors(points[1:], predict, fit(wild, predict))
    assert max(map(abs, found.values())) < 0.1


def test_a_report_judges_each_point_with_the_other_half(points, predict):
    found = report(points, predict)
    assert found["judged"]["gfx950"]["worst"] == max(map(abs, found["errors"].values()))
    assert found["wrong_orders"] == []
    assert len(found["held_out"]) == len(halves(points)[1])


def test_a_wrong_order_is_named(points, predict):
    low, high = (p for p in points if p.point.num_kv_splits in (21, 22))
    swapped = {**predict, low.id: lambda model: 2.0, high.id: lambda model: 1.0}
    measured = [replace(low, measured_s=1e-6), replace(high, measured_s=2e-6)]
    assert [(a.id, b.id) for a, b in wrong_orders(measured, swapped, START)] == [(low.id, high.id)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d["points"].append(d["points"][0]), "same id"),
        (lambda d: d["points"][0].pop("measured_us"), "measured_us"),
        (lambda d: d["points"][0].update(measured_us=0), "not above 0"),
        (lambda d: d.pop("points"), "points"),
    ],
    ids=["twice", "no time", "zero", "no points"],
)
def test_a_damaged_file_is_refused_in_one_line(damage, message):
    document = json.loads(TEXT)
    damage(document)
    with pytest.raises(CompiledError, match=message) as caught:
        load_points(json.dumps(document))
    assert "\n" not in str(caught.value)
