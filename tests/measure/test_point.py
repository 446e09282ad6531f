"""One point: checked before timed, and what is wrong never gets a speed."""

import math

import pytest
from measure.fakes import ScriptedBackend, experiment

from k3bench.measure import Correctness, Protocol, Result, judge, measure_group, summarise
from k3bench.measure.point import Provenance

PROTOCOL = Protocol("smoke", warmup=1, repeat=4)
PROVENANCE = Provenance("b.device_x", {"S": 8}, "f" * 64, "c" * 40, "run-1")


def test_a_wrong_kernel_is_recorded_as_wrong_without_a_speed_and_the_others_are_timed() -> None:
    backend = ScriptedBackend()
    point = experiment(backend, seconds={"good": 2.0, "bad": 1.0}, wrong=frozenset({"bad"}))
    good, bad = measure_group(point, ["good", "bad"], PROTOCOL, PROVENANCE)
    assert good.samples_s == (2.0,) * 4
    assert bad.samples_s == ()
    assert bad.correctness.status == "wrong"
    assert "time bad" not in backend.order
    record = bad.to_record()
    assert record["median_s"] is record["tokens_per_s"] is None
    assert record["n"] == 0


def test_a_kernel_that_raises_is_recorded_as_failed_with_one_line() -> None:
    point = experiment(
        ScriptedBackend(), seconds={"good": 2.0, "ugly": 1.0}, raising=frozenset({"ugly"})
    )
    good, ugly = measure_group(point, ["good", "ugly"], PROTOCOL, PROVENANCE)
    assert good.correctness.status == "ok"
    assert ugly.correctness.status == "failed"
    assert ugly.correctness.detail == "RuntimeError: scoped VMEM exceeded"
    assert ugly.compile_s is None


def test_throughput_is_actual_tokens_over_the_median() -> None:
    point = experiment(ScriptedBackend(), seconds={"a": 0.25})
    (result,) = measure_group(point, ["a"], PROTOCOL, PROVENANCE)
    record = result.to_record()
    assert record["tokens_per_s"] == record["tokens"] / record["median_s"] == 400.0
    assert record["padded_tokens"] == 128


def test_results_reach_the_callback_one_by_one() -> None:
    seen: list[str] = []
    point = experiment(ScriptedBackend(), seconds={"a": 1.0, "b": 1.0})
    measure_group(
        point, ["a", "b"], PROTOCOL, PROVENANCE, on_result=lambda r: seen.append(r.implementation)
    )
    assert seen == ["a", "b"]


def test_a_wrong_result_with_samples_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="must not carry samples"):
        Result(
            "b", {}, "i", "measured", "cpu", "wall", "smoke", 1, (1.0,), None, 1, 1,
            Correctness("wrong"), "w", "0" * 64, None, None, "now", None,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "status", "recorded"),
    [
        (0.0, "ok", 0.0),
        (5e-4, "ok", 5e-4),
        (5.1e-4, "wrong", 5.1e-4),
        (math.inf, "wrong", None),
        (math.nan, "wrong", None),
    ],
)
def test_only_a_finite_error_within_the_tolerance_is_right(
    error: float, status: str, recorded: float | None
) -> None:
    verdict = judge(error, 5e-4, reference="oracle", outputs="o")
    assert (verdict.status, verdict.max_abs_error) == (status, recorded)


def test_percentiles_interpolate_linearly() -> None:
    summary = summarise([4.0, 1.0, 3.0, 2.0])
    assert (summary.p10_s, summary.median_s, summary.p90_s) == pytest.approx((1.3, 2.5, 3.7))
