"""Turns a form that can be computed in several ways into experiments, checked in float64."""

import functools
from typing import Any

import torch

from k3bench.compiled import CompiledResult, get_target
from k3bench.compiled.aot import compile_for
from k3bench.compiled.evaluate import evaluate
from k3bench.measure import Candidate, Correctness, Experiment, Work, WorkloadRef, judge
from k3bench.measure.backends import torch_backend
from k3bench.roofline.reference.ways import (
    PROBLEMS,
    WAYS,
    expected_outputs,
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
            work=lambda: Work(problem.cost.hbm_bytes, problem.cost.flops, {"form": name}),
        )

    step = problem.step
    content = {"form": name, "new_tokens": step.new_tokens, "prefix_tokens": step.prefix_tokens}
    return Experiment(
        workload=WorkloadRef(f"forms/{name}", sha256_json(content)),
        tokens=step.tokens,
        backend=backend,
        candidates={way: functools.partial(candidate, way) for way in problem.ways},
        unavailable={way: f"{name} has no way {way}" for way in WAYS if way not in problem.ways},
    )


def xla_verdict(name: str, way: str) -> Correctness:
    """Whether the way as XLA is to compile it is right, run on jax's device; never timed."""
    import numpy as np

    from k3bench.roofline.reference.xla import build, xla_inputs

    outputs = build(name, way).function(xla_inputs(name))
    found = tuple(torch.from_numpy(np.array(output)) for output in outputs)
    error = max_abs_error(found, expected_outputs(name))
    return judge(error, TOLERANCE, reference="the first way in float64", outputs="all outputs")


def compiled_way(name: str, way: str, target: str = "v6e") -> CompiledResult | None:
    """What XLA makes of one way for a TPU; None where the form has no such way.

    Raises RuntimeError where the way is wrong (no time for that) or does not compile.
    """
    problem = PROBLEMS[name]
    if way not in problem.ways:
        return None
    verdict = xla_verdict(name, way)
    if verdict.status != "ok":
        raise RuntimeError(f"{name} {way} is {verdict.status}: {verdict.detail}")
    outcome = compile_for(
        "k3bench.roofline.reference.xla:build", {"form": name, "way": way}, get_target(target)
    )
    point = {"form": name, "implementation": way}
    result = evaluate(outcome, point, problem.cost.hbm_bytes, get_target(target))
    if result.status != "ok":
        raise RuntimeError(f"{name} {way} for {target}: {result.status}: {result.detail}")
    return result
