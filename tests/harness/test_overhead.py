"""The harness's own benchmark: it runs both suites, and its figures are of the right things."""

from k3bench.overhead import Overhead, measure_overhead, to_json


def test_both_harnesses_are_measured_on_every_point() -> None:
    found = measure_overhead(points=3, launch_methods=("forkserver",))
    assert [(o.harness, o.launch_method, o.points) for o in found] == [
        ("asv", "forkserver", 3),
        ("k3bench", "forkserver", 3),
    ]
    plain, ours = found
    assert plain.start_to_first_call_s is plain.bookkeeping_s is None
    assert ours.start_to_first_call_s is not None and ours.bookkeeping_s is not None
    # A point's bookkeeping lies between its call and the next one's.
    assert 0 < ours.bookkeeping_s < ours.per_point_s


def test_the_budget_is_held_against_the_suite_s_own_launch_method() -> None:
    cheap = Overhead("k3bench", "forkserver", 0.1, 3)
    dear = Overhead("k3bench", "spawn", 4.0, 3)
    assert to_json([dear, cheap], budget_s=0.3)["within_budget"] is True
    assert to_json([dear, cheap], budget_s=0.05)["within_budget"] is False
