"""The ``forms`` benchmark: all ways of a form agree, and are measured as one experiment."""

import pytest
import torch

from benchmarks._forms import TOLERANCE, compiled_way, form_experiment, xla_verdict
from benchmarks.forms import Ways
from k3bench.compiled.aot import compiler_versions
from k3bench.compiled.built import UnsupportedError
from k3bench.compiled.errors import CompilerUnavailableError
from k3bench.measure import judge
from k3bench.roofline.reference.ways import (
    PROBLEMS,
    WAYS,
    expected_outputs,
    make_inputs,
    max_abs_error,
)
from k3bench.roofline.reference.xla import XLA_WAYS, build

POINTS = [(name, way) for name, problem in PROBLEMS.items() for way in problem.ways]


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
    assert compiled_way("mla-decode", "chunked") is None
    with pytest.raises(UnsupportedError, match="mla-decode has no way chunked"):
        build("mla-decode", "chunked")


@pytest.mark.slow
def test_a_way_compiles_for_v6e_and_its_time_is_above_its_bound():
    try:
        compiler_versions()
    except CompilerUnavailableError as error:
        pytest.skip(str(error))
    found = compiled_way("mla-decode", "absorbed")
    assert found is not None
    assert found.implementation == "absorbed"
    assert found.modelled_ms > max(found.lower_bounds_ms.values())


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
