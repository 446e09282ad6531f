"""The simulation of runs in turns: recorded processes stay whole, and base stays base."""

import json
from importlib import resources

import numpy as np
import pytest

from k3bench.gate.errors import GateError
from k3bench.gate.recorded_turns import FILE, TurnsRecording, load_turns, main, turns_from
from k3bench.gate.simulate_turns import (
    SLOW_DOWN,
    TurnsScenario,
    count_turns,
    draw_turns,
    turns_outcomes,
    turns_scenarios,
    turns_steps,
    turns_tasks,
)

BASE, HEAD = "a" * 40, "b" * 40
GROUPS = [
    {"benchmark": "m.C.x", "parameters": {"S": 1}, "implementations": ["first", "second"]},
    {"benchmark": "m.C.x", "parameters": {"S": 2}, "implementations": ["first"]},
    {"benchmark": "m.C.x", "parameters": {"S": 3}, "implementations": ["first", "second"]},
]
PROVENANCE = {"device": "cpu", "preset": "ladder", "groups": GROUPS}


def numbered(runs=8, n=20):
    """A recording whose samples say which run, point and side they are of."""
    run, point, side = np.meshgrid(range(runs), range(5), range(2), indexing="ij")
    logs = (run * 100 + point * 10 + side)[..., None] * np.ones(n) / 1e4
    return TurnsRecording(PROVENANCE, logs)


def numbers(samples):
    return int(np.rint(np.log(samples[0]) * 1e4))


def noisy(spread=0.05):
    random = np.random.default_rng(0)
    return TurnsRecording(PROVENANCE, spread * random.standard_normal((8, 5, 2, 30)))


def test_what_one_process_measured_is_of_one_recorded_run_and_sides_stay_what_they_were():
    random = np.random.default_rng(1)
    seen = set()
    for _ in range(30):
        items, slowed = draw_turns(numbered(), TurnsScenario(3, None, "nothing"), random)
        assert not slowed.any() and all(item.in_turns for item in items)
        runs = []
        for at, item in enumerate(items):
            base, head = ([numbers(run) for run in side] for side in (item.base, item.head))
            assert {one % 100 for one in base} == {10 * at}
            assert head == [one + 1 for one in base]
            runs.append(tuple(one // 100 for one in base))
            assert len(set(runs[-1])) == 3, "no run is its own repetition"
        assert runs[0] == runs[1] and runs[3] == runs[4]
        seen.add((runs[0], runs[2]))
    assert len(seen) == 30, "processes are drawn one by one"
    named = [(item.point.parameters, item.point.implementation) for item in items]
    assert named[1:3] == [('{"S": 1}', "second"), ('{"S": 2}', "first")]


@pytest.mark.parametrize(("slow", "count"), [("one point", 1), ("everything", 5)])
def test_a_slow_down_multiplies_head_alone(slow, count):
    scenario = TurnsScenario(1, None, slow)
    items, slowed = draw_turns(numbered(), scenario, np.random.default_rng(0))
    assert slowed.sum() == count
    for item, slower in zip(items, slowed, strict=True):
        ratio = np.log(item.head[0] / item.base[0]) - 1e-4
        assert ratio == pytest.approx(np.log1p(SLOW_DOWN) if slower else 0.0, abs=1e-9)


def test_noise_is_scaled_to_three_percent():
    items, _ = draw_turns(noisy(), TurnsScenario(1, 0.03, "nothing"), np.random.default_rng(0))
    logs = np.log([side for item in items for side in (*item.base, *item.head)])
    low, high = np.quantile(logs, [0.1, 0.9], axis=1)
    assert np.median((high - low) / 2.563) == pytest.approx(0.03, rel=0.1)


def test_what_lies_between_the_sides_is_kept():
    logs = np.zeros((4, 5, 2, 20))
    logs[2, :, 1] = 0.07
    between = TurnsRecording(PROVENANCE, logs).between_sides
    assert between == pytest.approx(np.array([[0.0], [0.0], [0.07], [0.0]]) * np.ones(5))


def test_a_side_that_recorded_slower_makes_the_gate_fail_without_a_change(monkeypatch):
    random = np.random.default_rng(2)
    logs = 0.01 * random.standard_normal((8, 5, 2, 30))
    still = TurnsScenario(1, None, "nothing")
    for bias, fails in ((0.0, 0), (0.1, 20)):
        one = TurnsRecording(PROVENANCE, logs + np.array([0.0, bias])[:, None])
        monkeypatch.setattr("k3bench.gate.simulate_turns._recording", lambda one=one: one)
        assert count_turns(still, (0, 0, 0), 20).fails == fails


def test_every_comparison_is_counted_once_and_a_fifth_of_those_with_a_change():
    tasks, done = turns_tasks(5, 120), []
    assert len(tasks) == turns_steps(120) and len({key for _, key, _ in tasks}) == len(tasks)
    counted = [count_turns(scenario, key, size) for scenario, key, size in tasks[:1]]
    assert counted == [count_turns(*tasks[0])], "the same key, the same comparisons"
    for scenario in turns_scenarios():
        sizes = [size for one, _, size in tasks if one == scenario]
        assert sum(sizes) == (120 if scenario.slow == "nothing" else 24)
    small = turns_tasks(5, 5)
    outcomes = turns_outcomes(small, [count_turns(*task) for task in small], lambda: done.append(1))
    assert len(done) == len(small) and len(outcomes) == len(turns_scenarios())
    assert [one.named is None for one in outcomes] == [one.slow == "nothing" for one in outcomes]


def test_the_packaged_recording_says_where_it_is_from_and_nothing_else():
    recording = load_turns()
    runs, points, sides, samples = recording.residuals.shape
    given = recording.provenance
    assert sides == 2 and runs == given["runs"] >= 8 and samples == given["samples"] >= 20
    assert len(recording.points) == points == len(set(recording.points))
    assert np.concatenate(recording.processes).tolist() == list(range(points))
    assert given["commit"] != given["in_turns_with"]
    assert np.abs(np.median(recording.residuals, axis=(0, 2, 3))).max() < 1e-3
    text = resources.files("k3bench.gate").joinpath(FILE).read_text()
    assert "/" not in text and "home" not in text and "hostname" not in text
    assert len(text) < 100_000


def in_turns(store, run, factor=1.0):
    store(run, BASE, figures={"in_turns_with": HEAD})
    store(run, HEAD, factor, figures={"in_turns_with": BASE})


def test_a_recording_is_made_from_runs_in_turns_and_from_no_others(ledger, store, tmp_path):
    with ledger.session() as session, pytest.raises(GateError, match="no results"):
        turns_from(session)
    store("apart", BASE)
    with ledger.session() as session, pytest.raises(GateError, match="holds no run in turns"):
        turns_from(session)
    for number in range(3):
        in_turns(store, f"run-{number}", 1.1)
    with ledger.session() as session:
        document = turns_from(session)
    made = TurnsRecording(document["provenance"], np.array(document["residuals"]) * 1e-4)
    assert made.residuals.shape == (3, 4, 2, 12)
    assert (made.provenance["commit"], made.provenance["in_turns_with"]) == (BASE, HEAD)
    assert made.between_sides == pytest.approx(np.log(1.1) * np.ones((3, 4)), abs=2e-4)
    assert [len(members) for members in made.processes] == [2, 2]

    out = tmp_path / "turns.json"
    assert main([str(tmp_path / "gate.sqlite"), "--out", str(out)]) == 0
    assert json.loads(out.read_text()) == document
    assert main([str(tmp_path / "none.sqlite"), "--out", str(out)]) == 1
