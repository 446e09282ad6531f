"""The simulation: deterministic, made of recorded blocks, honest about its own uncertainty."""

import json
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from k3bench.gate.distributions import wilson
from k3bench.gate.drawing import POINTS, Scenario, draw, measured
from k3bench.gate.recorded import FILE, Recording, load_recordings, recording_from
from k3bench.gate.simulate import asv_worse, scenarios, simulate, steps_of, to_lines


def made_up(runs=20, groups=10, n=30):
    random = np.random.default_rng(0)
    return Recording("made up", {}, 0.05 * random.standard_normal((runs, groups, 2, n)))


@pytest.fixture(scope="module")
def simulated():
    """Figures and the number of progress calls behind them."""
    steps = []
    return simulate(3, 10, lambda: steps.append(1), workers=1), len(steps)


def test_the_same_seed_gives_the_same_figures_on_any_number_of_cores(simulated):
    figures, steps = simulated
    assert steps == steps_of(10)
    assert figures.to_json() == simulate(3, 10, workers=2).to_json()
    assert json.loads(json.dumps(figures.to_json(), allow_nan=False))["runs"] == 10


def test_headline_figures_are_the_worst_of_their_scenarios(simulated):
    figures, _ = simulated
    still = [one.fails for one in figures.outcomes if one.slow == "nothing"]
    slow = [one.fails for one in figures.outcomes if one.slow == "one implementation"]
    assert figures.false_alarm_rate == max(still) and len(still) >= 4
    assert figures.power_3pct_single_runs == min(slow[0], slow[2])
    assert figures.power_3pct == slow[1] and len(slow) == 3
    apart, turns = [line for line in to_lines(figures) if line.startswith("| noise")]
    assert "asv 1.02 names" in apart and "slower by 5%" in turns


def test_runs_in_turns_have_headline_figures_of_their_own(simulated):
    figures, _ = simulated
    still = [one.fails for one in figures.in_turns if one.slow == "nothing"]
    single = [one.fails for one in figures.in_turns if one.slow == "everything" and one.runs == 1]
    assert figures.false_alarm_rate_in_turns == max(still) and len(still) == 8
    assert figures.power_5pct_in_turns == min(single) and len(single) == 2
    document = figures.to_json()
    assert document["false_alarm_rate_in_turns"] == max(still)
    assert document["power_5pct_in_turns"] == min(single)
    assert len(document["in_turns"]["scenarios"]) == len(figures.in_turns)
    assert document["in_turns"]["recording"]["between_sides"] > 0


def test_false_alarms_in_turns_break_the_promise(simulated):
    figures, _ = simulated
    assert figures.as_promised
    worse = [replace(one, fails_low=0.02) for one in figures.in_turns if one.slow == "nothing"]
    assert not replace(figures, in_turns=worse).as_promised


def test_blocks_stay_whole_and_both_sides_of_a_single_run_share_none():
    recording = Recording(
        "numbered",
        {},
        np.arange(20 * 10, dtype=float).reshape(20, 10, 1, 1) * np.ones((1, 1, 2, 30)) / 1e4,
    )
    scenario = Scenario(0, (1, 30), None, "nothing")
    base, head = draw(recording, scenario, np.random.default_rng(0))
    assert base.shape == head.shape == (1, POINTS, 30)
    blocks = [np.rint(np.log(side[0, :, 0]) * 1e4).astype(int) for side in (base, head)]
    for side in blocks:
        assert (side[::2] == side[1::2]).all(), "what took turns stays together"
        assert len(set(side[::2])) == POINTS // 2, "every block at most once"
    assert not set(blocks[0]) & set(blocks[1])


def test_noise_is_scaled_to_three_percent_and_slow_is_three_percent():
    scenario = Scenario(0, (1, 30), 0.03, "everything")
    base, head = draw(made_up(), scenario, np.random.default_rng(0))
    low, high = np.quantile(np.log(base[0]), [0.1, 0.9], axis=1)
    assert np.median((high - low) / 2.563) == pytest.approx(0.03, rel=0.1)
    assert np.median(head) / np.median(base) == pytest.approx(1.03, abs=0.005)


def test_several_runs_bring_their_own_repeats():
    base, head = draw(made_up(), Scenario(0, (5, 6), None, "nothing"), np.random.default_rng(0))
    item = measured(base, head)[0]
    assert [len(item.base), len(item.head)] == [5, 5] and len(item.base[0]) == 6
    assert [len(side) for side in item.repeats] == [5, 5]
    assert item.repeats[0][0] == pytest.approx(np.log(np.median(base[0, 0])))


def test_asv_sees_a_doubling_under_either_factor():
    base, _ = draw(made_up(), Scenario(0, (1, 30), None, "nothing"), np.random.default_rng(0))
    for worse in asv_worse(base[:, :4], base[:, :4] * 2):
        assert worse.all()
    for worse in asv_worse(base[:, :4], base[:, :4]):
        assert not worse.any()


def test_the_recordings_say_where_they_are_from_and_nothing_else():
    recordings = load_recordings()
    assert {one.provenance["clock"] for one in recordings} == {"wall"}
    for one in recordings:
        runs, groups, implementations, samples = one.residuals.shape
        assert (implementations, samples) == (2, 30) and groups == 10 and runs >= 9
        assert one.provenance["runs"] == runs
        assert np.abs(np.median(one.residuals, axis=(0, 3))).max() < 1e-3
    text = resources.files("k3bench.gate").joinpath(FILE).read_text()
    assert "/" not in text.replace('"/', "") or "home" not in text
    assert "hostname" not in text and len(text) < 300_000
    assert {scenario.recording for scenario in scenarios()} == set(range(len(recordings) + 1))


def test_a_recording_is_made_from_a_ledger(ledger, store):
    runs = [store(run=f"run-{index}", factor=1 + 0.1 * index) for index in range(3)]
    assert len(runs) == 3
    with ledger.session() as session:
        found = recording_from(session, "mine")
    residuals = np.array(found["residuals"]) * 1e-4
    assert residuals.shape == (3, 2, 2, 12) and found["provenance"]["runs"] == 3
    assert np.median(residuals[1] - residuals[0]) == pytest.approx(np.log(1.1), abs=1e-3)


def test_wilsons_interval_by_hand():
    assert wilson(0, 1000) == pytest.approx((0.0, 0.003827), abs=1e-5)
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(10, 10)[1] == pytest.approx(1.0)
