"""The verdicts on measured points: power, false alarms, guards, and what is never claimed."""

import numpy as np
import pytest
from gate.points import comparison, lognormal, point
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from k3bench.gate import GateError, Measured, Settings, judge_measured


def random(seed=0):
    return np.random.default_rng(seed)


def verdicts(points, **changes):
    return judge_measured(points, Settings(**changes))


def words(found):
    return [verdict.verdict for verdict in found.points]


def test_the_same_code_twice_passes():
    found = verdicts(comparison(random()))
    assert not found.fails and not found.cannot_judge
    assert set(words(found)) == {"unchanged"}


def test_an_implementation_that_slows_by_3_percent_fails_as_a_whole():
    found = verdicts(comparison(random(), slow={"second": 1.03}))
    moved = {family.implementation: family for family in found.families}
    assert found.fails and not found.cannot_judge
    assert moved["second"].verdict == "slower" and moved["first"].verdict == "unchanged"
    assert moved["second"].low < 1.03 < moved["second"].high
    named = [v.verdict == "slower" for v in found.points[1::2]]
    assert np.mean(named) > 0.8 and not any(v.verdict == "slower" for v in found.points[::2])


def test_an_implementation_that_gets_faster_does_not_make_its_neighbour_slower():
    found = verdicts(comparison(random(), slow={"second": 1 / 1.2}))
    moved = {family.implementation: family.verdict for family in found.families}
    assert moved == {"first": "unchanged", "second": "faster"} and not found.fails


def verdict_on(found, implementation):
    (family,) = [one for one in found.families if one.implementation == implementation]
    return family


def test_an_implementation_that_suffers_more_from_a_busier_machine_is_only_suspected():
    both = verdicts(comparison(random(), slow={"first": 1.06, "second": 1.09}))
    assert not both.fails and both.cannot_judge
    assert verdict_on(both, "second").verdict == "suspected"
    assert "neighbours moved, too: +6" in verdict_on(both, "second").detail


def test_a_run_whose_samples_spread_wider_makes_a_slow_down_only_suspected():
    source = random()
    points = [
        Measured(
            point(group, name),
            [lognormal(source, noise=0.02)],
            [lognormal(source, noise=0.04) * (1.025 if name == "second" else 1.0)],
        )
        for group in range(30)
        for name in ("first", "second")
    ]
    found = verdicts(points)
    assert found.cannot_judge and verdict_on(found, "second").verdict == "suspected"
    assert "times as wide" in verdict_on(found, "second").detail


def test_a_slow_down_that_only_one_of_several_runs_shows_is_only_suspected():
    source = random()
    points = []
    for group in range(30):
        for name in ("first", "second"):
            sides = [[lognormal(source, 12) for _ in range(4)] for _ in range(2)]
            if name == "second":
                sides[1][2] *= 1.5
            levels = [[float(np.log(np.median(run))) for run in side] for side in sides]
            points.append(Measured(point(group, name), *sides, levels))
    found = verdicts(points)
    assert not found.fails and verdict_on(found, "second").detail == "its runs do not agree"


def test_who_falls_behind_because_others_may_have_gained_is_only_suspected():
    found = verdicts(comparison(random(), slow={"first": 0.98, "second": 1.005}))
    assert not found.fails and verdict_on(found, "second").verdict == "suspected"


def test_points_with_different_numbers_of_runs_and_samples_are_judged_together():
    few = comparison(random(), groups=10, runs=2, n=12, slow={"second": 1.5})
    many = comparison(random(1), groups=10, runs=3, n=15, slow={"second": 1.5})
    renamed = [
        Measured(point(f"more {i // 2}", p.point.implementation), p.base, p.head[:2], p.repeats)
        for i, p in enumerate(many)
    ]
    found = verdicts([*few, *renamed])
    assert found.fails and {v.runs for v in found.points} == {(2, 2), (3, 2)}


def test_one_slow_point_is_found_by_itself():
    found = verdicts(comparison(random(), slow_points={(3, "second"): 1.3}))
    assert [index for index, word in enumerate(words(found)) if word == "slower"] == [7]
    assert found.points[7].low < 1.3 < found.points[7].high and found.fails


def test_when_everything_moves_between_two_runs_it_cannot_be_said_why():
    found = verdicts(comparison(random(), slow={"first": 1.04, "second": 1.04}))
    assert found.cannot_judge and not found.fails
    assert found.together[0].cannot_tell and found.together[0].ratio == pytest.approx(
        1.04, abs=0.01
    )


def test_when_everything_moves_over_several_runs_it_fails():
    found = verdicts(comparison(random(), runs=5, n=10, slow={"first": 1.04, "second": 1.04}))
    assert found.fails and found.together[0].slower
    assert {verdict.basis for verdict in found.points} == {"repeats"}


def test_runs_that_differ_by_themselves_are_not_taken_for_a_change():
    # Every run has a level of its own, 10% apart; within a run the noise is 1%.
    source = random(5)
    points = []
    for group in range(30):
        sides = [
            [
                lognormal(source, 30, noise=0.01) * np.exp(0.1 * source.standard_normal())
                for _ in range(4)
            ]
            for _ in range(2)
        ]
        medians = [[float(np.log(np.median(run))) for run in side] for side in sides]
        points.append(Measured(point(group), *sides, medians))
    assert not verdicts(points).fails
    # Samples alone would have called most of them changed.
    alone = [Measured(item.point, item.base, item.head) for item in points]
    naive = judge_measured(
        [Measured(p.point, [np.concatenate(p.base)], [np.concatenate(p.head)]) for p in alone[:5]],
        Settings(assumed_run_noise=0.0),
    )
    assert {v.verdict for v in naive.points} & {"slower", "faster"}


def test_a_burst_that_hits_all_implementations_of_a_point_alike_is_noise():
    both = {(3, "first"): 10.0, (3, "second"): 10.0}
    found = verdicts(comparison(random(), slow_points=both))
    assert not found.fails


@pytest.mark.parametrize(
    ("factor", "word"),
    [(1.0, "unchanged"), (1.06, "suspected"), (1.5, "slower"), (1 / 1.5, "faster")],
)
def test_few_points_with_one_run_a_side_are_judged_by_the_assumed_noise(factor, word):
    found = verdicts(
        comparison(random(), groups=2, implementations=["only"], slow={"only": factor})
    )
    assert words(found) == [word] * 2
    assert {verdict.basis for verdict in found.points} == {"assumed"}
    assert found.cannot_judge == (word == "suspected") and found.fails == (word == "slower")


def test_who_knows_that_runs_do_not_differ_sees_3_percent_in_a_single_point():
    seen = 0
    for seed in range(200):
        points = comparison(random(seed), 1, ["only"], slow={"only": 1.03})
        seen += verdicts(points, assumed_run_noise=0.0, false_alarms=0.05).fails
    assert seen >= 0.95 * 200


def test_too_few_samples_are_never_called_unchanged():
    found = verdicts(comparison(random(), groups=1, n=6, slow={"first": 10.0}), min_samples=1)
    # Two points: a lone discovery needs p <= 0.005, and 6 against 6 reach 0.0022.
    assert words(found)[0] == "slower"
    found = verdicts(comparison(random(), groups=50, n=6, slow={"first": 10.0}), min_samples=1)
    assert set(words(found)) == {"too few samples"} and found.cannot_judge and not found.fails
    assert "needs 9 a side" in found.points[0].detail
    found = verdicts(comparison(random(), groups=1, n=9))
    assert set(words(found)) == {"too few samples"}, "the minimum is 10"


@pytest.mark.parametrize("groups", [6, 10, 12])
def test_everything_twice_as_slow_in_single_runs_never_passes(groups):
    names = [f"i{number}" for number in range(6)]
    slow = dict.fromkeys(names, 2.0)
    found = verdicts(comparison(random(), groups=groups, implementations=names, slow=slow))
    assert found.fails or found.cannot_judge


def test_changes_below_the_threshold_do_not_matter():
    points = comparison(random(), groups=40, n=100, slow={"second": 1.02})
    assert verdicts(points).fails
    assert not verdicts(points, threshold=0.05).fails


def test_two_runs_a_side_of_one_point_bound_nothing_and_say_so_in_plain_json():
    source = random()
    sides = [[lognormal(source) * level for level in (1.0, 1.5)] for _ in range(2)]
    levels = [[float(np.log(np.median(run))) for run in sides[0]]]
    found = verdicts([Measured(point(), sides[0], sides[1], levels)] * 2)
    assert all(v.sees is None or np.isfinite(v.sees) for v in found.points)
    assert not found.fails


def test_no_points_give_no_verdicts():
    found = verdicts([])
    assert not found.points and not found.fails and not found.cannot_judge


@pytest.mark.parametrize(
    "changes",
    [{"false_alarms": 0.0}, {"threshold": -1.0}, {"min_samples": 0}, {"accuracy_factor": 0.5}],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(GateError, match=next(iter(changes))):
        Settings(**changes)


@given(st.integers(0, 1000), st.sampled_from([1.0, 1.03, 1.2]), st.sampled_from([1, 3]))
@hypothesis_settings(max_examples=15, deadline=None)
def test_swapping_base_and_head_turns_every_verdict(seed, factor, runs):
    points = comparison(random(seed), groups=12, runs=runs, slow={"second": factor})
    turned = [Measured(p.point, p.head, p.base, p.repeats) for p in points]
    # Suspected is a slow-down that cannot be told from noise; a speed-up of that kind is no news.
    opposite = {"slower": "faster", "faster": "slower", "suspected": "unchanged"}
    there, back = verdicts(points), verdicts(turned)
    turned_back = [word if word != "suspected" else "unchanged" for word in words(back)]
    assert [opposite.get(word, word) for word in words(there)] == turned_back
    for one, other in zip(there.points, back.points, strict=True):
        assert one.ratio == pytest.approx(1 / other.ratio) and one.p == pytest.approx(other.p)
        assert one.low == pytest.approx(1 / other.high)


@given(st.integers(0, 1000), st.integers(-20, 20))
@hypothesis_settings(max_examples=15, deadline=None)
def test_the_unit_of_time_does_not_matter(seed, power):
    points = comparison(random(seed), groups=12, slow={"second": 1.03})
    scaled = [
        Measured(p.point, [s * 2.0**power for s in p.base], [s * 2.0**power for s in p.head])
        for p in points
    ]
    assert words(verdicts(points)) == words(verdicts(scaled))


@given(st.integers(0, 1000))
@hypothesis_settings(max_examples=15, deadline=None)
def test_more_unchanged_points_do_not_hide_a_plain_slow_down(seed):
    slow = comparison(random(seed), groups=15, slow_points={(2, "second"): 1.5})
    assert verdicts(slow).fails
    more = comparison(random(seed + 1), groups=200)
    renamed = [
        Measured(point(f"extra {i}", p.point.implementation), p.base, p.head)
        for i, p in enumerate(more)
    ]
    assert verdicts([*slow, *renamed]).fails


@given(st.integers(0, 1000), st.randoms())
@hypothesis_settings(max_examples=10, deadline=None)
def test_the_order_of_the_points_does_not_matter(seed, shuffler):
    points = comparison(random(seed), groups=15, slow={"second": 1.02})
    order = list(range(len(points)))
    shuffler.shuffle(order)
    shuffled = words(verdicts([points[index] for index in order]))
    assert [shuffled[order.index(index)] for index in range(len(points))] == words(verdicts(points))
