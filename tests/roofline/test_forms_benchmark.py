"""The ``forms`` benchmark: all ways of a form agree, and are measured as one experiment."""

import pytest
import torch

from benchmarks._forms import TOLERANCE, compiled_case, form_experiment, xla_verdict
from benchmarks.forms import Ways
from k3bench.asv_compiled import records_of
from k3bench.asv_compiled_families import verdict_key
from k3bench.compiled.built import UnsupportedError
from k3bench.compiled.errors import CompilerUnavailableError
from k3bench.compiled.tpu import get_target
from k3bench.compiled.tpu.aot import PINNED, Outcome, compiler_versions
from k3bench.compiled.tpu.evaluate import evaluate
from k3bench.measure import judge
from k3bench.roofline import form_points
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.form_points import FormPoint, compile_form_points
from k3bench.roofline.reference.ways import (
    PROBLEMS,
    WAYS,
    expected_outputs,
    make_inputs,
    max_abs_error,
)
from k3bench.roofline.reference.xla import XLA_WAYS, build

VERSIONS = dict(PINNED)
POINTS = [(name, way) for name, problem in PROBLEMS.items() for way in problem.ways]


def _never(*_):
    raise AssertionError("nothing is to be compiled")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small tensors: threads that wait for each other on a busy machine take longer than work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("name", "way"), POINTS)
def test_every_way_gives_the_numbers_of_the_first_in_float64(name, way):
    run = PROBLEMS[name].ways[way]
    expected = expected_outputs(name)
    assert max_abs_error(run(make_inputs(name, torch.float64)), expected) < 1e-12
    error = max_abs_error(run(make_inputs(name)), expected)
    assert judge(error, TOLERANCE, reference="float64", outputs="o").status == "ok"


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_wrong_output_is_judged_wrong(name):
    experiment = form_experiment(name)
    way = next(iter(experiment.candidates))
    candidate = experiment.candidates[way]()
    outputs = candidate.prepare()()
    assert candidate.check(outputs).status == "ok"
    for changed in (outputs[0] + 1e-3, outputs[0] * float("nan")):
        assert candidate.check((changed, *outputs[1:])).status == "wrong"
    last = outputs[-1] * float("nan")
    assert candidate.check((*outputs[:-1], last)).status == "wrong"


def test_ways_that_a_form_does_not_have_are_unavailable_with_a_reason():
    experiment = form_experiment("mla-decode")
    assert set(experiment.candidates) == {"decompressed", "absorbed"}
    assert set(experiment.candidates) | set(experiment.unavailable) == set(WAYS)
    assert experiment.unavailable["chunked"] == "mla-decode has no way chunked"


def test_the_work_beside_a_time_is_the_forms():
    work = form_experiment("mla-decode").candidates["absorbed"]().work()
    assert (work.hbm_bytes, work.flops) == (
        PROBLEMS["mla-decode"].cost.hbm_bytes,
        PROBLEMS["mla-decode"].cost.flops,
    )
    assert work.notes == {"form": "mla-decode"}


@pytest.mark.parametrize(("name", "way"), POINTS)
def test_every_way_as_xla_compiles_it_is_right(name, way):
    assert xla_verdict(name, way).status == "ok"


def test_the_ways_of_xla_are_those_of_torch_and_no_others():
    assert {name: set(ways) for name, ways in XLA_WAYS.items()} == {
        name: set(problem.ways) for name, problem in PROBLEMS.items()
    }
    with pytest.raises(UnsupportedError, match="mla-decode has no way chunked"):
        build("mla-decode", "chunked")


def test_a_way_that_a_form_does_not_have_is_unsupported_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(form_points, "compiler_versions", lambda: VERSIONS)
    monkeypatch.setattr(form_points, "compile_for", _never)
    point = FormPoint("mla-decode", "chunked")
    [result] = compile_form_points([point], get_target("v6e"), directory=tmp_path)
    assert (result.status, result.detail) == ("unsupported", "mla-decode has no way chunked")
    with pytest.raises(RooflineError, match="form 'mla': use one of gqa-decode"):
        FormPoint("mla", "absorbed")


def test_equal_form_points_are_compiled_once_and_kept(tmp_path, monkeypatch):
    asked = []

    def compile_for(factory, arguments, target):
        asked.append((factory, arguments, target.name))
        return Outcome("oom", VERSIONS, "too large", wanted_bytes=2, limit_bytes=1)

    monkeypatch.setattr(form_points, "compiler_versions", lambda: VERSIONS)
    monkeypatch.setattr(form_points, "compile_for", compile_for)
    point = FormPoint("mla-decode", "absorbed")
    for _ in range(2):
        results = compile_form_points([point, point], get_target("v6e"), directory=tmp_path)
        assert [result.status for result in results] == ["oom", "oom"]
    arguments = {"form": "mla-decode", "way": "absorbed"}
    assert asked == [("k3bench.roofline.reference.xla:build", arguments, "v6e")]
    compile_form_points([point], get_target("tpu7x"), directory=tmp_path)
    assert len(asked) == 2


def test_a_compiled_form_is_the_measured_ones_workload_and_is_judged_by_its_own_definition():
    case = compiled_case("mla-chunk", "absorbed", "forms.X.track_modelled_ms", "1")
    measured = form_experiment("mla-chunk")
    assert (case.workload, case.tokens) == (measured.workload, measured.tokens)
    assert case.parameters == {"form": "mla-chunk"}
    assert case.check().status == "ok"
    result = evaluate(Outcome("oom", VERSIONS), case.point.to_json(), 1, get_target("v6e"))
    assert verdict_key(result) == ("mla-chunk/absorbed", "k3bench.roofline.reference")


@pytest.mark.slow
def test_a_way_compiles_for_v6e_and_its_time_is_above_its_bounds(tmp_path):
    try:
        compiler_versions()
    except CompilerUnavailableError as error:
        pytest.skip(str(error))
    case = compiled_case("mla-decode", "absorbed", "forms.X.track_modelled_ms", "1")
    [found] = compile_form_points([case.point], get_target("v6e"), directory=tmp_path)
    assert found.status == "ok"
    assert found.modelled_ms > max(found.lower_bounds_ms.values())
    compiled, modelled = records_of(
        case, found, case.check(), manifest_id=None, commit=None, run_id=None
    )
    assert compiled["kind"] == "compiled" and compiled["figures"]["hbm_bytes"] > 0
    assert modelled["kind"] == "modelled" and modelled["median_s"] == found.modelled_ms / 1e3
    figures = modelled["figures"]
    assert figures["roofline.times_bound"] > 1
    assert figures["roofline.limited_by"] == "hbm"
    assert "fp32 matrix" in figures["peak_source"]


def test_the_first_run_is_small(monkeypatch):
    import importlib

    import benchmarks.forms as module
    from k3bench.measure.protocol import PRESET_VARIABLE

    monkeypatch.setenv(PRESET_VARIABLE, "smoke")
    reloaded = importlib.reload(module)
    points = [
        len(forms) * len(ways) for forms, ways in (reloaded.Ways.params, reloaded.WaysOnV6e.params)
    ]
    assert points == [2, 1]
    monkeypatch.delenv(PRESET_VARIABLE)
    importlib.reload(module)
    assert set(Ways.param_names) == {"form", "implementation"}
