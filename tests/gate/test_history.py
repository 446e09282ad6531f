"""Steps in a series, with the right commits around them; and none that fail from noise alone."""

import json

import numpy as np
import pytest
from gate.points import point

from k3bench.gate.history import Value, find_changes
from k3bench.gate.markdown import history_to_markdown

COMMITS = [f"{index:040x}" for index in range(40)]


def series(levels, noise=0.01, seed=0, commits=COMMITS):
    random = np.random.default_rng(seed)
    return [
        Value(
            commit,
            1e-3 * level * float(np.exp(noise * random.standard_normal())),
            None,
            noise,
            "same",
        )
        for commit, level in zip(commits, levels, strict=False)
        if level is not None
    ]


def changes_of(levels, **options):
    return find_changes({point(): series(levels, **options)}, COMMITS, 0.02)


def test_a_step_is_found_between_the_right_commits_and_fails():
    found = changes_of([1.0] * 25 + [1.1] * 15)
    (change,) = found.changes
    assert (change.before, change.after, change.commits) == (COMMITS[24], COMMITS[25], 1)
    assert change.ratio == pytest.approx(1.1, rel=0.01) and change.worse and change.lasting
    assert found.exit_code == 1


def test_commits_that_were_not_measured_widen_the_range():
    found = changes_of([1.0] * 20 + [None] * 5 + [1.1] * 15)
    (change,) = found.changes
    assert (change.before, change.after, change.commits) == (COMMITS[19], COMMITS[25], 6)


def test_an_improvement_and_an_undone_regression_do_not_fail():
    assert changes_of([1.0] * 20 + [0.9] * 20).exit_code == 0
    found = changes_of([1.0] * 15 + [1.2] * 10 + [1.0] * 15)
    assert [change.worse for change in found.changes] == [False, True]
    assert not found.changes[1].lasting and found.exit_code == 0


def test_one_slow_commit_at_the_end_is_shown_but_not_settled():
    found = changes_of([1.0] * 39 + [1.5])
    assert found.exit_code == 0
    assert all(not change.settled for change in found.changes)


def test_noise_alone_seldom_fails():
    failing = sum(
        find_changes({point(): series([1.0] * 40, 0.02, seed)}, COMMITS, 0.01).exit_code
        for seed in range(50)
    )
    assert failing <= 2


def test_a_change_of_environment_is_said_and_does_not_fail():
    values = series([1.0] * 20 + [1.2] * 20)
    moved = [
        Value(v.commit, v.median_s, None, v.spread, "same" if index < 20 else "other")
        for index, v in enumerate(values)
    ]
    found = find_changes({point(): moved}, COMMITS, 0.02)
    assert found.changes[0].other_environment and found.exit_code == 0


def test_short_series_could_not_be_judged():
    found = changes_of([1.0, 1.0, 2.0])
    assert (found.series, found.too_short, found.exit_code) == (1, 1, 2)


def test_compiled_figures_change_exactly():
    place = point(kind="compiled", preset=None)
    cycles = [100] * 10 + [101] * 10 + [99] * 5
    values = [
        Value(commit, None, json.dumps({"fingerprint": str(n), "kernel_cycles": n}), None, None)
        for commit, n in zip(COMMITS, cycles, strict=False)
    ]
    found = find_changes({place: values}, COMMITS, 0.02)
    assert [(c.metric, c.after, c.worse, c.lasting) for c in found.changes] == [
        ("kernel_cycles", COMMITS[20], False, True),
        ("kernel_cycles", COMMITS[10], True, False),
    ]
    assert found.exit_code == 0
    assert find_changes({place: values[:20]}, COMMITS, 0.02).exit_code == 1


def test_a_figure_that_was_zero_has_no_ratio():
    place = point(kind="compiled", preset=None)
    values = [
        Value(commit, None, json.dumps({"spill_stores": n}), None, None)
        for commit, n in zip(COMMITS, [0, 0, 7], strict=False)
    ]
    found = find_changes({place: values}, COMMITS, 0.02)
    assert found.exit_code == 1 and found.changes[0].ratio is None
    json.dumps(found.to_json(), allow_nan=False)
    assert "from 0 worse" in history_to_markdown(found)


def test_history_in_markdown_is_escaped():
    hostile = point(benchmark="<b>|x|</b>")
    text = history_to_markdown(
        find_changes({hostile: series([1.0] * 20 + [1.2] * 20)}, COMMITS, 0.02)
    )
    assert "<b>" not in text and f"`{COMMITS[19][:10]}..{COMMITS[20][:10]}`" in text
