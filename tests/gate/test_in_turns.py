"""Commits that took turns in one process (`k3bench ab`): compared sample by sample."""

import json
from math import comb

import numpy as np
import pytest
from gate.points import comparison, lognormal, point, row
from hypothesis import given, settings
from hypothesis import strategies as st

from k3bench.gate import Measured, Rules, Settings, compare, judge_measured
from k3bench.gate.ranks import paired_test, smallest_paired_p
from k3bench.gate.words import closing_lines

BASE, HEAD = "a" * 40, "b" * 40


def drifting(random, n=20, factor=1.0, noise=0.02):
    """Two sides of one process that wander together by a factor of three, as a shared host does."""
    common = np.exp(0.8 * np.sin(np.linspace(0, 5, n)) + 0.2 * random.standard_normal(n))
    base = 1e-3 * common * np.exp(noise * random.standard_normal(n))
    return base, 1e-3 * factor * common * np.exp(noise * random.standard_normal(n))


def in_turns(random, groups=1, implementations=("first", "second"), runs=1, slow=None, n=20):
    made = []
    for group in range(groups):
        for name in implementations:
            factor = (slow or {}).get((group, name), (slow or {}).get(name, 1.0))
            pairs = [drifting(random, n, factor) for _ in range(runs)]
            base, head = ([pair[side] for pair in pairs] for side in (0, 1))
            made.append(Measured(point(group, name), base, head, in_turns=True))
    return made


def apart(items):
    """The same samples, as if each side had been a run of its own."""
    return [Measured(item.point, item.base, item.head) for item in items]


def words(found):
    return [verdict.verdict for verdict in found.points]


def judge(items, **changes):
    return judge_measured(items, Settings(**changes))


def test_a_slow_down_under_a_drift_is_seen_in_turns_and_not_apart():
    items = in_turns(np.random.default_rng(1), slow={"second": 1.08})
    found = judge(items)
    assert words(found) == ["unchanged", "slower"] and found.fails
    assert found.points[1].ratio == pytest.approx(1.08, rel=0.02)
    assert found.points[1].in_turns and found.points[1].low > 1.03
    assert not judge(apart(items)).fails


def test_a_slow_down_of_everything_at_few_points_is_the_code_s():
    items = in_turns(np.random.default_rng(2), groups=2, slow={"first": 1.1, "second": 1.1})
    found = judge(items)
    assert words(found) == ["slower"] * 4 and not found.cannot_judge


def test_a_slow_down_of_everything_by_little_shows_over_many_points():
    slow = {"first": 1.02, "second": 1.02}
    items = in_turns(np.random.default_rng(3), groups=30, slow=slow)
    found = judge(items)
    assert found.fails
    assert {family.verdict for family in found.families} == {"slower"}

    # As many implementations as points: none is tested as a whole, all together are.
    random = np.random.default_rng(3)
    alone = [
        item
        for number in range(12)
        for item in in_turns(random, implementations=(f"i{number}",), slow={f"i{number}": 1.02})
    ]
    for number, item in enumerate(alone):
        alone[number] = Measured(point(number, f"i{number}"), item.base, item.head, in_turns=True)
    found = judge(alone)
    assert not found.families and [whole.slower for whole in found.together] == [True]
    assert found.fails


def test_without_a_change_it_fails_no_more_often_than_it_may():
    random = np.random.default_rng(4)
    fails = sum(judge(in_turns(random, groups=20)).fails for _ in range(150))
    assert fails <= 5, "150 comparisons at 1%: more than 5 has a chance of 0.2%"


def test_a_small_slow_down_of_one_point_in_one_run_is_suspected_and_further_runs_settle_it():
    random = np.random.default_rng(5)
    one = judge(in_turns(random, slow={"second": 1.025}, n=100))
    assert words(one) == ["unchanged", "suspected"] and one.cannot_judge and not one.fails
    five = judge(in_turns(random, slow={"second": 1.025}, runs=5))
    assert words(five) == ["unchanged", "slower"]
    assert five.points[1].basis == "repeats" and five.points[1].runs == (5, 5)


def test_runs_that_disagree_are_not_a_slow_down():
    random = np.random.default_rng(6)
    pairs = [drifting(random, factor=factor) for factor in (1.2, 0.85, 1.25, 0.9, 1.0)]
    base, head = ([pair[side] for pair in pairs] for side in (0, 1))
    assert words(judge([Measured(point(), base, head, in_turns=True)])) == ["unchanged"]


def test_the_report_says_what_half_of_the_points_would_have_shown():
    random = np.random.default_rng(11)
    sides = [{}, {}]
    for number, noise in enumerate((0.001, 0.1, 0.2, 0.4)):
        pair = rows(drifting(random, noise=noise))
        for side, one in zip(sides, pair, strict=True):
            side[point(number)] = [one]
    report = compare((BASE, HEAD), *sides, {}, lambda _: {}, Rules())
    sees = sorted(finding.statistics.sees for finding in report.findings)
    assert report.half_would_see() == sees[1]
    lines = closing_lines(report)
    assert lines[0].startswith("4 of 4 measured points compared sample by sample")
    assert f"half of them one of {sees[1]:.0%};" in lines[1]


def test_points_in_turns_and_others_are_judged_apart_in_one_comparison():
    random = np.random.default_rng(7)
    mixed = [
        *in_turns(random, implementations=("first",), slow={"first": 1.3}),
        *comparison(random, groups=1, implementations=("second",)),
    ]
    found = judge(mixed)
    assert words(found) == ["slower", "unchanged"]
    assert [verdict.in_turns for verdict in found.points] == [True, False]


def test_the_smallest_p_of_pairs_is_reached_by_hand():
    base = np.array([np.linspace(1.0, 1.4, 5)])
    head = base * np.array([1.1, 1.2, 1.3, 1.4, 1.5])
    assert paired_test(base, head, 0.5).p == pytest.approx([2 / 2**5])
    assert smallest_paired_p(5) == 2 / 2**5
    # Five pairs never reach 1% by signed ranks: Mann-Whitney, and only where sides do not overlap.
    apart = paired_test(base, base * np.linspace(2.0, 2.1, 5), 0.01).p
    assert apart == pytest.approx([2 / comb(10, 5)])
    assert paired_test(base, base, 0.5).p == pytest.approx([1.0])


def test_the_shift_is_the_median_of_pairwise_means():
    differences = np.array([[0.0, 0.1, 0.5]])
    found = paired_test(np.ones((1, 3)), np.exp(differences), 1.0)
    # 0, 0.05, 0.1, 0.25, 0.3, 0.5
    assert found.shift == pytest.approx([0.175])


@given(st.integers(0, 1000), st.sampled_from([1.0, 1.05]), st.sampled_from([1, 3]))
@settings(max_examples=15, deadline=None)
def test_swapping_the_sides_turns_every_verdict(seed, factor, runs):
    items = in_turns(np.random.default_rng(seed), groups=3, runs=runs, slow={"second": factor})
    turned = [Measured(i.point, i.head, i.base, in_turns=True) for i in items]
    opposite = {"slower": "faster", "faster": "slower", "suspected": "unchanged"}
    there, back = words(judge(items)), words(judge(turned))
    quiet = [word if word != "suspected" else "unchanged" for word in back]
    assert [opposite.get(word, word) for word in there] == quiet


def rows(sides, run="ab-1"):
    """A point's rows as `k3bench ab` stores them: one run, each with the other's commit."""
    return tuple(
        row(
            samples,
            run_id=run,
            commit=commit,
            figures=json.dumps({"dispatch_floor_s": 1e-5, "in_turns_with": other}),
        )
        for samples, commit, other in zip(sides, (BASE, HEAD), (HEAD, BASE), strict=True)
    )


def report_of(base, head):
    return compare((BASE, HEAD), {point(): base}, {point(): head}, {}, lambda _: {}, Rules())


def test_rows_of_one_ab_run_are_paired_and_others_of_the_point_left_out():
    random = np.random.default_rng(8)
    base, head = rows(drifting(random, factor=1.1))
    nightly = row(lognormal(random) * 9, run_id="nightly", commit=BASE)
    report = report_of([nightly, base], [head])
    (finding,) = report.findings
    assert finding.statistics.in_turns and finding.statistics.runs == (1, 1)
    assert finding.outcome == "slower" and report.exit_code == 1
    assert (finding.base, finding.head) == (base.median_s, head.median_s)
    same = rows(drifting(random))
    assert report_of([same[0]], [same[1]]).exit_code == 0


def test_a_run_of_asv_over_several_commits_is_no_pairing():
    random = np.random.default_rng(9)
    base, head = (row(lognormal(random), run_id="r", commit=commit) for commit in (BASE, HEAD))
    (finding,) = report_of([base], [head]).findings
    assert not finding.statistics.in_turns


def test_turns_with_a_third_commit_are_no_pairing():
    random = np.random.default_rng(10)
    other = json.dumps({"in_turns_with": "c" * 40})
    base, head = (
        row(lognormal(random), run_id="r", commit=commit, figures=other) for commit in (BASE, HEAD)
    )
    (finding,) = report_of([base], [head]).findings
    assert not finding.statistics.in_turns
