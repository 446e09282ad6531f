"""Turns an MLA workload into an experiment: inputs, every implementation, and the fp32 check."""

import functools
from collections.abc import Callable
from typing import Any

import mla_rocm
from k3bench.measure import Candidate, Correctness, Experiment, WorkloadRef, judge
from k3bench.measure.backends import torch_backend
from workloads import Workload


def decode_experiment(workload: Workload, page_size: int = 64) -> Experiment:
    """One decode step over the workload's contexts, on pages in random order."""
    case = mla_rocm.MlaDecodeCase(
        context_lengths=workload.call.kv_lengths,
        heads=workload.geometry.heads,
        page_size=page_size,
        dtype=workload.geometry.dtype,
    )
    return _experiment(
        workload,
        case,
        mla_rocm.DECODE_IMPLEMENTATIONS,
        mla_rocm.make_decode_inputs,
        mla_rocm.reference_decode,
    )


def prefill_experiment(workload: Workload, page_size: int = 64) -> Experiment:
    """One prefill of the workload's new tokens after its cached prefixes."""
    case = mla_rocm.MlaPrefillCase(
        new_lengths=workload.call.new_tokens,
        prefix_lengths=workload.call.cached_tokens,
        heads=workload.geometry.heads,
        page_size=page_size,
        dtype=workload.geometry.dtype,
    )
    return _experiment(
        workload,
        case,
        mla_rocm.PREFILL_IMPLEMENTATIONS,
        mla_rocm.make_prefill_inputs,
        mla_rocm.reference_prefill,
    )


def _experiment(
    workload: Workload,
    case: Any,
    implementations: dict[str, Any],
    make_inputs: Callable[..., Any],
    reference: Callable[[Any], Any],
) -> Experiment:
    backend = torch_backend()
    torch_device = "cpu" if backend.platform == "cpu" else "cuda"

    @functools.cache
    def inputs() -> Any:
        return make_inputs(case, device=torch_device)

    @functools.cache
    def expected() -> Any:
        return reference(inputs())

    tolerance = mla_rocm.tolerance_for(case.dtype).max_abs_error

    def check(outputs: Any) -> Correctness:
        error = mla_rocm.max_abs_error(outputs, expected())
        return judge(error, tolerance, reference="the fp32 reference", outputs="o and lse")

    def candidate(name: str) -> Candidate:
        # The inputs are shared by all implementations and made before any is timed.
        bound = implementations[name].bind(inputs())
        return Candidate(
            implementation=name,
            prepare=lambda: bound.fn,
            check=check,
            padded_tokens=workload.tokens,
        )

    support = {name: impl.can_run(backend.platform, case) for name, impl in implementations.items()}
    return Experiment(
        workload=WorkloadRef(workload.id, workload.sha256),
        tokens=workload.tokens,
        backend=backend,
        candidates={
            name: functools.partial(candidate, name) for name, found in support.items() if found.ok
        },
        unavailable={name: found.reason for name, found in support.items() if not found.ok},
    )
