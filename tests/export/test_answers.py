"""Which records answer which of asv's benchmarks, above all the many figures of a compiled one."""

from datetime import UTC, datetime

import pytest

from k3bench.export.answers import Questions, Row
from k3bench.export.suite import positions, united


def benchmark(name: str, **axes):
    return {
        "name": name, "version": "1", "param_names": list(axes),
        "params": [[repr(value) for value in values] for values in axes.values()],
    }  # fmt: skip


SUITE = {
    each["name"]: each
    for each in (
        benchmark("kda.Grid.device_prefill", seqlen=[8, 1024], implementation=["a", "b"]),
        benchmark("compiled.Ladder.track_modelled_ms", implementation=["a", "b"]),
        benchmark("compiled.Ladder.track_cycles", implementation=["a", "b"]),
        benchmark("compiled.Other.track_cycles", implementation=["a", "b"]),
        benchmark("mla.Decode.track_modelled_us", implementation=["a"]),
        benchmark("plain.device_all"),
    )
}


def row(benchmark: str, kind: str = "measured", **changes) -> Row:
    values = {
        "benchmark": benchmark, "parameters": {}, "implementation": "b", "kind": kind,
        "status": "ok", "median_s": 0.0025, "figures": None,
        "started_at": datetime(2026, 8, 1, tzinfo=UTC), "manifest_id": "m", "commit": "c",
        "samples_s": (0.0025,) if kind == "measured" else None,
    }  # fmt: skip
    return Row(**{**values, **changes})


def values(*rows: Row):
    answers, strangers = Questions(SUITE).answered_by(rows)
    found = {
        name: {position: [each.value for each in history] for position, history in some.items()}
        for name, some in answers.items()
    }
    return found, strangers


def test_a_measured_record_answers_its_own_parameters():
    measured = row("kda.Grid.device_prefill", parameters={"seqlen": 1024})
    assert values(measured) == ({"kda.Grid.device_prefill": {3: [0.0025]}}, 0)
    assert positions(SUITE["kda.Grid.device_prefill"])["1024", "'b'"] == 3


def test_a_benchmark_without_parameters_has_one_answer():
    assert values(row("plain.device_all")) == ({"plain.device_all": {0: [0.0025]}}, 0)


@pytest.mark.parametrize(
    "parameters",
    [{"seqlen": 9}, {"seqlen": 8.0}, {"seqlen": "8"}, {}],
    ids=["a length that is gone", "a float", "a string", "no length"],
)
def test_other_parameters_answer_nothing(parameters):
    stranger = row("kda.Grid.device_prefill", parameters=parameters)
    assert values(stranger) == ({}, 1)


def test_a_compiled_record_answers_every_figure_of_its_class_and_of_no_other():
    compiled = row(
        "compiled.Ladder.track_modelled_ms", "compiled", figures={"cycles": 7, "share.x": 0.5}
    )
    modelled = row("compiled.Ladder.track_modelled_ms", "modelled", figures={"cycles": 9})
    assert values(compiled, modelled) == (
        {
            "compiled.Ladder.track_cycles": {1: [7.0]},
            "compiled.Ladder.track_modelled_ms": {1: [2.5]},
        },
        0,
    )


def test_a_modelled_time_is_in_the_unit_of_its_benchmark():
    modelled = row("mla.Decode.track_modelled_us", "modelled", implementation="a")
    assert values(modelled)[0] == {"mla.Decode.track_modelled_us": {0: [2500.0]}}


@pytest.mark.parametrize("status", ["failed", "wrong"])
def test_a_kernel_that_is_not_right_fails_every_figure(status):
    refused = row(
        "compiled.Ladder.track_modelled_ms", "compiled", status=status, median_s=None,
        figures={"wanted_vmem_bytes": 5},
    )  # fmt: skip
    assert values(refused)[0] == {
        "compiled.Ladder.track_cycles": {1: [None]},
        "compiled.Ladder.track_modelled_ms": {1: [None]},
    }


def test_a_figure_that_the_compiler_did_not_state_is_a_failure_as_in_asv():
    compiled = row("compiled.Ladder.track_modelled_ms", "compiled", figures={"other": 1})
    assert values(compiled)[0] == {"compiled.Ladder.track_cycles": {1: [None]}}


def test_a_second_clock_is_neither_an_answer_nor_a_stranger():
    further = row("plain.device_all", figures={"further_clock": "events"})
    assert values(further) == ({}, 0)


def test_several_answers_stay_in_the_order_given():
    first = row("plain.device_all", median_s=1.0)
    second = row("plain.device_all", status="failed", median_s=None)
    assert values(first, second)[0] == {"plain.device_all": {0: [1.0, None]}}


def test_presets_are_united_by_their_parameters():
    smoke = {"k": benchmark("k", s=[8], implementation=["a"])}
    full = {"k": benchmark("k", s=[8, 16], implementation=["a", "b"])}
    for order in ([smoke, full], [full, smoke]):
        assert united(order)["k"]["params"] == [["8", "16"], ["'a'", "'b'"]]


def test_of_two_versions_the_later_counts_alone():
    old = {"k": benchmark("k", s=[8, 32])}
    new = {"k": {**benchmark("k", s=[8, 16]), "version": "2"}}
    assert united([old, new]) == new
