"""Turns a form that can be computed in several ways into experiments, checked in float64."""

import functools
from typing import Any

import torch

from k3bench.asv_compiled import CompiledCase
from k3bench.measure import Candidate, Correctness, Experiment, Work, WorkloadRef, judge
from k3bench.measure.backends import torch_backend
from k3bench.roofline.calls import form_call
from k3bench.roofline.form_points import FormPoint
from k3bench.roofline.reference.ways import (
    PROBLEMS,
    WAYS,
    expected_outputs,
    form_content,
    make_inputs,
    max_abs_error,
)
from workloads.model import sha256_json

# Eight times the largest error of any way on a CPU: float32 sums over 1024 tokens.
TOLERANCE = 1e-4


def form_experiment(name: str) -> Experiment:
    """All ways of one form over the same float32 inputs, on the device that torch finds."""
    problem = PROBLEMS[name]
    backend = torch_backend()
    torch_device = "cpu" if backend.platform == "cpu" else "cuda"

    @functools.cache
    def inputs() -> Any:
        return make_inputs(name, torch.float32, torch_device)

    def check(outputs: Any) -> Correctness:
        error = max_abs_error(outputs, expected_outputs(name))
        return judge(error, TOLERANCE, reference="the first way in float64", outputs="all outputs")

    def candidate(way: str) -> Candidate:
        run, made = problem.ways[way], inputs()
        return Candidate(
            implementation=way,
            prepare=lambda: lambda: run(made),
            check=check,
            padded_tokens=problem.step.tokens,
            # The form's work, the same for all ways: what a way does beyond it shows in its rates.
            work=lambda: Work(
                problem.cost.hbm_bytes, problem.cost.flops, {"form": name}, form_call(problem.cost)
            ),
        )

    return Experiment(
        workload=form_workload(name),
        tokens=problem.step.tokens,
        backend=backend,
        candidates={way: functools.partial(candidate, way) for way in problem.ways},
        unavailable={way: f"{name} has no way {way}" for way in WAYS if way not in problem.ways},
    )


def form_workload(name: str) -> WorkloadRef:
    """A form's name and the hash of its step: the same measured and compiled."""
    return WorkloadRef(f"forms/{name}", sha256_json(form_content(name)))


def xla_verdict(name: str, way: str) -> Correctness:
    """Whether the way as XLA is to compile it is right, run on jax's device; never timed."""
    import numpy as np

    from k3bench.roofline.reference.xla import build, xla_inputs

    outputs = build(name, way).function(xla_inputs(name))
    found = tuple(torch.from_numpy(np.array(output)) for output in outputs)
    error = max_abs_error(found, expected_outputs(name))
    return judge(error, TOLERANCE, reference="the first way in float64", outputs="all outputs")


def compiled_case(name: str, way: str, benchmark: str, version: str) -> CompiledCase:
    """One way as XLA compiles it for a TPU v6e, judged on the CPU before it gets a time."""
    return CompiledCase(
        benchmark=benchmark,
        version=version,
        parameters={"form": name},
        workload=form_workload(name),
        tokens=PROBLEMS[name].step.tokens,
        point=FormPoint(name, way),
        check=functools.partial(xla_verdict, name, way),
    )
