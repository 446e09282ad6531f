"""Two sides into a report: missing, wrong, incomparable, exact figures, kinds apart, exit codes."""

import json

import numpy as np
import pytest
from gate.points import lognormal, point, row

from k3bench.gate import Rules, Settings, compare
from k3bench.gate.comparability import names
from k3bench.gate.exact import changed_figures, changed_versions, direction, is_worse

MANIFEST = {
    "environment": {"libraries": {"distributions": {"jax": "0.10.2"}}, "cpu": {"model": "A"}}
}


def samples(seed=0, factor=1.0, n=30):
    return lognormal(np.random.default_rng(seed), n) * factor


def judge(base, head, *, manifests=None, **rules):
    loaded = {"1" * 64: MANIFEST, **(manifests or {})}
    return compare(("base", "head"), base, head, {}, loaded.__getitem__, Rules(**rules))


def outcomes(report):
    return {(f.point.implementation, f.metric): (f.outcome, f.weight) for f in report.findings}


def compiled(**figures):
    return row(figures=json.dumps(figures, sort_keys=True))


PLACE = {"kind": "compiled", "device": "tpu-v6e", "preset": None}


def test_equal_sides_pass():
    side = {point(): [row(samples())]}
    report = judge(side, {point(): [row(samples(1))]})
    assert report.exit_code == 0 and report.compared == 1
    assert outcomes(report) == {("first", "time_s"): ("unchanged", "informs")}


def test_a_slow_down_fails_and_a_speed_up_does_not():
    slow = judge({point(): [row(samples())]}, {point(): [row(samples(1, 1.5))]})
    assert slow.exit_code == 1
    (finding,) = slow.findings
    assert finding.outcome == "slower" and finding.statistics.ratio == pytest.approx(1.5, rel=0.05)
    assert finding.gain == pytest.approx(1 / 1.5, rel=0.05), "throughput goes the other way"
    fast = judge({point(): [row(samples())]}, {point(): [row(samples(1, 1 / 1.5))]})
    assert fast.exit_code == 0 and fast.findings[0].outcome == "faster"


def test_a_point_that_head_lacks_fails_and_a_new_one_is_reported():
    both = [row(samples())]
    report = judge({point(1): both, point(2): both}, {point(1): both, point(3): both})
    found = {f.point.parameters: (f.outcome, f.weight) for f in report.findings}
    assert found['{"S":2}'] == ("missing", "fails") and found['{"S":3}'] == ("new", "informs")
    assert report.exit_code == 1
    assert judge({point(1): both}, {point(1): both, point(3): both}).exit_code == 0


@pytest.mark.parametrize(
    ("before", "after", "outcome", "code"),
    [
        ("ok", "wrong", "wrong", 1),
        ("ok", "failed", "failed", 1),
        ("wrong", "wrong", "still wrong", 0),
        ("failed", "wrong", "wrong", 1),
        ("failed", "failed", "failed", 1),
        ("wrong", "ok", "mended", 0),
    ],
)
def test_correctness_decides_before_speed(before, after, outcome, code):
    other = {point(9): [row(samples())]}
    sides = [
        {point(): [row(samples() if status == "ok" else (), status=status)], **other}
        for status in (before, after)
    ]
    report = judge(*sides)
    assert outcomes(report)[("first", "correctness")][0] == outcome
    assert report.exit_code == code


def test_a_new_point_that_is_wrong_fails():
    right = {point(1): [row(samples())]}
    assert judge(right, {**right, point(2): [row((), status="wrong")]}).exit_code == 1


def test_one_wrong_run_among_several_fails():
    head = [row(samples(1)), row((), status="wrong", run_id="run-2")]
    assert judge({point(): [row(samples())]}, {point(): head}).exit_code == 1


def test_nothing_comparable_could_not_be_judged():
    base, head = {point(): [row(samples())]}, {point(device="mi355x"): [row(samples())]}
    report = judge(base, head)
    assert report.exit_code == 2 and report.compared == 0
    assert (
        "HEAD has no measured figures on cpu under preset ladder at all"
        in report.unjudged_strata[0]
    )


def test_kinds_and_presets_are_never_mixed():
    base = {point(): [row(samples())], point(preset="smoke"): [row(samples(2))]}
    head = {point(): [row(samples(1))], point(kind="modelled"): [row(median_s=1.0)]}
    report = judge(base, head)
    assert report.compared == 1 and report.exit_code == 2
    assert any("smoke" in line for line in report.unjudged_strata)
    assert any("modelled" in line for line in report.notes)


OTHER = {"environment": {"libraries": {"distributions": {"jax": "0.11.0"}}, "cpu": {"model": "A"}}}


def elsewhere(seed=1, factor=1.0):
    return row(samples(seed, factor), manifest_id="9" * 64, fingerprint="8" * 64)


def test_incomparable_manifests_are_refused_with_the_fields():
    report = judge(
        {point(): [row(samples())]}, {point(): [elsewhere()]}, manifests={"9" * 64: OTHER}
    )
    assert report.exit_code == 2 and report.compared == 0
    (finding,) = report.findings
    assert finding.outcome == "incomparable"
    assert finding.detail == "environment.libraries.distributions.jax"
    (unlike,) = report.differences
    assert (unlike.base, unlike.head, unlike.allowed) == ("0.10.2", "0.11.0", False)


@pytest.mark.parametrize("name", ["jax_version", "jax", "distributions.jax", "libraries"])
def test_a_difference_allowed_by_name_is_compared_and_shown(name):
    report = judge(
        {point(): [row(samples())]},
        {point(): [elsewhere(factor=1.5)]},
        manifests={"9" * 64: OTHER},
        allowed=[name],
    )
    assert report.exit_code == 1 and report.differences[0].allowed


def test_allowing_another_field_does_not_help():
    assert not names("environment.libraries.distributions.jaxlib", "jax")
    assert not names("environment.cpu.model", "jax_version")
    report = judge(
        {point(): [row(samples())]},
        {point(): [elsewhere()]},
        manifests={"9" * 64: OTHER},
        allowed=["numpy"],
    )
    assert report.exit_code == 2


def test_runs_of_a_common_environment_are_chosen_where_there_are_some():
    base = {point(): [row(samples()), elsewhere(3, 10.0)]}
    report = judge(base, {point(): [row(samples(1))]})
    assert report.exit_code == 0 and report.findings[0].statistics.runs == (1, 1)


@pytest.mark.parametrize("changes", [{"workload": ("w", "f" * 64)}, {"clock": "device"}], ids=str)
def test_other_work_or_another_clock_is_incomparable(changes):
    (field,) = changes
    head = {point(): [row(samples(1), **changes)]}
    assert judge({point(): [row(samples())]}, head).exit_code == 2
    assert judge({point(): [row(samples())]}, head, allowed=[field]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("kernel_cycles", "lower"),
        ("stage1.vgpr", "lower"),
        ("hbm_bytes", "lower"),
        ("tokens_per_s", "higher"),
        ("stage1.occupancy", "higher"),
        ("slot.MXU", None),
        ("share.stall", None),
        ("assumed.dmas", None),
        ("xla_ops.estimated", None),
        ("code_sha256", None),
    ],
)
def test_every_figure_has_its_direction(name, way):
    assert direction(name) == way
    expected = None if way is None else way == "lower"
    assert is_worse(name, 1.0, 2.0) == expected
    assert is_worse(name, 2.0, 1.0) == (None if expected is None else not expected)
    assert is_worse(name, 1.0, 1.0) is None


@pytest.mark.parametrize(
    ("before", "after", "outcome", "code"),
    [
        ({"hbm_bytes": 100}, {"hbm_bytes": 101}, "worse", 1),
        ({"hbm_bytes": 101}, {"hbm_bytes": 100}, "better", 0),
        ({"occupancy": 3}, {"occupancy": 2}, "worse", 1),
        ({"slot.MXU": 0.5}, {"slot.MXU": 0.4}, "changed", 0),
        ({"fingerprint": "a"}, {"fingerprint": "b"}, "changed", 0),
        ({"spill_stores": 0}, {"spill_stores": 1}, "worse", 1),
        ({"vgpr": 8}, {}, "worse", 1),
        ({}, {"vgpr": 8}, "changed", 0),
    ],
    ids=str,
)
def test_compiled_figures_are_judged_exactly(before, after, outcome, code):
    report = judge({point(**PLACE): [compiled(**before)]}, {point(**PLACE): [compiled(**after)]})
    (name,) = before.keys() | after.keys()
    assert outcomes(report)[("first", name)][0] == outcome
    assert report.exit_code == code


@pytest.mark.parametrize(
    ("before", "after", "explained", "code"),
    [
        (
            {"kernel_cycles": 100, "stall_cycles": 10},
            {"kernel_cycles": 90, "stall_cycles": 20},
            "stall_cycles",
            0,
        ),
        ({"stall_cycles": 10}, {"stall_cycles": 20}, None, 1),
        (
            {"kernel_cycles": 100, "stall_cycles": 10},
            {"kernel_cycles": 101, "stall_cycles": 20},
            "stall_cycles",
            1,
        ),
        ({"stall_cycles": 10, "kernel_cycles": 100}, {"stall_cycles": 20}, None, 1),
        ({"occupancy": 4, "vgpr": 96}, {"occupancy": 4, "vgpr": 104}, "vgpr", 0),
        ({"occupancy": 4, "vgpr": 96}, {"occupancy": 3, "vgpr": 160}, "vgpr", 1),
        (
            {"k.resident_workgroups": 4, "k.vgpr": 96},
            {"k.resident_workgroups": 4, "k.vgpr": 104},
            "k.vgpr",
            0,
        ),
        ({"occupancy": 4, "k.vgpr": 96}, {"occupancy": 4, "k.vgpr": 104}, None, 1),
        (
            {"occupancy": 4, "vgpr": 96, "scratch_bytes": 0},
            {"occupancy": 4, "vgpr": 104, "scratch_bytes": 8},
            "vgpr",
            1,
        ),
    ],
    ids=str,
)
def test_a_part_explains_where_its_whole_is_stated_and_decides_where_it_is_not(
    before, after, explained, code
):
    report = judge({point(**PLACE): [compiled(**before)]}, {point(**PLACE): [compiled(**after)]})
    assert report.exit_code == code
    found = [finding.metric for of in report.explanations().values() for finding in of]
    assert found == ([explained] if explained else [])


@pytest.mark.parametrize(
    "figure",
    [
        *("kernel_cycles", "hbm_bytes", "vmem_bytes", "lds_bytes", "scratch_bytes", "round_trips"),
        *("rounds", "spill_stores", "spill_fills", "scratch_operations_in_loops", "flops"),
    ],
)
def test_time_bytes_memory_scratch_and_round_trips_decide_whatever_else_got_better(figure):
    better = {"kernel_cycles": 100, "hbm_bytes": 100, "occupancy": 1, "round_trips": 9}
    gains = {"kernel_cycles": 90, "hbm_bytes": 90, "occupancy": 2, "round_trips": 8}
    report = judge(
        {point(**PLACE): [compiled(**{**better, figure: 100})]},
        {point(**PLACE): [compiled(**{**gains, figure: 101})]},
    )
    assert report.exit_code == 1
    assert outcomes(report)[("first", figure)] == ("worse", "fails")


def test_a_figure_may_get_worse_where_it_is_accepted_by_name():
    sides = [{point(**PLACE): [compiled(**{"stage1.vgpr": value})]} for value in (8, 9)]
    assert judge(*sides).exit_code == 1
    assert judge(*sides, accepted=["vgpr"]).exit_code == 0
    assert judge(*sides, accepted=["agpr"]).exit_code == 1


def test_compiled_figures_of_other_compilers_are_incomparable_but_other_machines_are_not():
    base = {point(**PLACE): [compiled(jax="0.10.2", hbm_bytes=1)]}
    elsewhere = row(figures='{"hbm_bytes":2,"jax":"0.11.0"}', fingerprint="7" * 64)
    report = judge(base, {point(**PLACE): [elsewhere]})
    assert report.exit_code == 2 and report.differences[0].field == "jax"
    assert judge(base, {point(**PLACE): [elsewhere]}, allowed=["jax"]).exit_code == 1
    same = row(figures='{"hbm_bytes":1,"jax":"0.10.2"}', fingerprint="7" * 64)
    assert judge(base, {point(**PLACE): [same]}).exit_code == 0
    assert changed_versions('{"jax":"1","x":1}', '{"jax":"2","x":2}') == {"jax": ("1", "2")}
    assert changed_figures('{"jax":"1","x":1}', '{"jax":"2","x":2}') == {"x": (1, 2)}


def test_modelled_times_inform_unless_asked_by_name():
    place = {**PLACE, "kind": "modelled"}
    sides = [{point(**place): [row(median_s=value)]} for value in (1.0, 1.2)]
    report = judge(*sides)
    assert outcomes(report)[("first", "median_s")] == ("worse", "informs")
    assert report.exit_code == 0
    assert judge(*sides, fail_modelled=True).exit_code == 1


def test_accuracy_and_padding_are_judged_beside_time():
    def sides(**changes):
        return {point(): [row(samples())]}, {point(): [row(samples(1), **changes)]}

    assert judge(*sides(max_abs_error=1.9e-4)).exit_code == 0, "within a factor of 2"
    assert judge(*sides(max_abs_error=2.1e-4)).exit_code == 1
    strict = Settings(accuracy_factor=1.0)
    assert judge(*sides(max_abs_error=1.1e-4), settings=strict).exit_code == 1
    assert judge(*sides(padded_tokens=256)).exit_code == 1
    assert judge(*sides(padded_tokens=256), accepted=["padded_tokens"]).exit_code == 0
    better = judge(*sides(padded_tokens=64, max_abs_error=1e-5))
    assert better.exit_code == 0
    assert outcomes(better)[("first", "padded_tokens")] == ("better", "informs")


def test_a_failure_outweighs_what_could_not_be_judged():
    base = {point(1): [row(samples())], point(2): [row(samples(n=5))]}
    head = {point(1): [row(samples(1, 2.0))], point(2): [row(samples(1, n=5))]}
    report = judge(base, head)
    assert {f.outcome for f in report.findings} == {"slower", "too few samples"}
    assert report.exit_code == 1
    assert judge({point(2): base[point(2)]}, {point(2): head[point(2)]}).exit_code == 2


def test_the_report_is_plain_json_and_says_what_it_would_have_seen():
    report = judge({point(): [row(samples())]}, {point(): [row(samples(1))]})
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert document["exit_code"] == 0 and document["verdict"] == "passed"
    assert document["would_show_3pct_alone"] == {"points": 0, "of": 1}
    assert document["half_would_show_alone"] == document["findings"][0]["statistics"]["sees"] > 0.03
    assert document["findings"][0]["statistics"]["samples"] == [30, 30]
