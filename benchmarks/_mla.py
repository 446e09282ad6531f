"""Turns an MLA or KDA decode workload into an experiment: inputs, implementations, fp32 check.

What one call must move and compute goes into the record with the rates that follow. A point that
memory does not hold, or that the case refuses, is unavailable with the reason.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mla_rocm
from k3bench.measure import Candidate, Correctness, Experiment, Work, WorkloadRef, judge
from k3bench.measure.backends import torch_backend
from k3bench.measure.memory import does_not_fit
from k3bench.roofline.calls import (
    KernelCall,
    kda_decode_call,
    mla_decode_call,
    mla_prefill_call,
)
from workloads import Workload

REFERENCE = "the fp32 reference"


@dataclass(frozen=True)
class Family:
    """What the experiments of one operation share.

    Attributes:
        implementations: the table.
        make_inputs: (case, device=...) to inputs.
        reference: inputs to the oracle's outputs.
        check: (outputs, oracle's outputs, inputs, case) to a verdict.
        work: (implementation's name, case) to the work of one call, or None where the commit's
            kernels come without the formulas.
        memory_bytes: what a checked point takes.
    """

    implementations: Mapping[str, Any]
    make_inputs: Callable[..., Any]
    reference: Callable[[Any], Any]
    check: Callable[[Any, Any, Any, Any], Correctness]
    work: Callable[[str, Any], Work] | None
    memory_bytes: Callable[[Any], int] | None


def decode_experiment(
    workload: Workload, page_size: int = 64, table: str = "shuffled"
) -> Experiment:
    """One decode step over the workload's contexts; every sequence has pages of its own, unless
    the table is ``shared``."""
    return _experiment(workload, _decode_family(), decode_case(workload, page_size, table))


def decode_stage_experiment(workload: Workload, stage: str) -> Experiment:
    """Stage 1 or stage 2 of a decode step alone.

    Stage 1's partial results are merged by the oracle's merge before they are judged; stage 2
    merges what the same implementation's stage 1 left.
    """
    return _experiment(workload, _decode_family(), decode_case(workload), stage=stage)


def prefill_experiment(
    workload: Workload, page_size: int = 64, notes: Mapping[str, Any] | None = None
) -> Experiment:
    """One prefill of the workload's new tokens after its cached prefixes."""

    def case() -> Any:
        return mla_rocm.MlaPrefillCase(
            new_lengths=workload.call.new_tokens,
            prefix_lengths=workload.call.cached_tokens,
            heads=workload.geometry.heads,
            page_size=page_size,
            dtype=workload.geometry.dtype,
        )

    return _experiment(workload, _prefill_family(notes or {}), case)


def kda_decode_experiment(workload: Workload) -> Experiment:
    """One KDA decode step.

    A kernel that updates its states in place is judged by its first call; later ones do the same
    work on the states that the earlier ones left.
    """

    def case() -> Any:
        geometry = workload.geometry
        return mla_rocm.KdaDecodeCase(
            batch=workload.call.batch,
            heads=geometry.heads,
            head_dim_k=geometry.key_dim,
            head_dim_v=geometry.value_dim,
            dtype=geometry.dtype,
        )

    return _experiment(workload, _kda_decode_family(), case)


def decode_case(
    workload: Workload, page_size: int = 64, table: str = "shuffled"
) -> Callable[[], Any]:
    """The case of a decode workload, made when asked for: it may refuse the combination."""

    def case() -> Any:
        return mla_rocm.MlaDecodeCase(
            context_lengths=workload.call.kv_lengths,
            heads=workload.geometry.heads,
            page_size=page_size,
            dtype=workload.geometry.dtype,
            table=table,
        )

    return case


def check_outputs(outputs: Any, expected: Any, inputs: Any, case: Any) -> Correctness:
    """The verdict on MLA outputs: o, and the log-sum-exps where the kernel returns them."""
    del inputs
    described = "o and lse" if outputs.lse is not None else "o (no lse is returned)"
    return judge(
        mla_rocm.max_abs_error(outputs, expected),
        mla_rocm.tolerance_for(case.dtype).max_abs_error,
        reference=REFERENCE,
        outputs=described,
    )


def check_kda_decode(outputs: Any, expected: Any, inputs: Any, case: Any) -> Correctness:
    """The verdict on a KDA decode step: o and the new states, each with a tolerance of its own.

    The one nearer to its limit decides.
    """
    from mla_rocm.kda_torch import O_TOLERANCES, STATE_TOLERANCE

    o_error, state_error = mla_rocm.kda_decode_errors(outputs, expected, inputs.state_indices)
    error, tolerance, what = max(
        (o_error, O_TOLERANCES[case.dtype], "o"),
        (state_error, STATE_TOLERANCE, "new states"),
        key=lambda found: found[0] / found[1],
    )
    return judge(error, tolerance, reference="the fp32 recurrence", outputs=what)


def prefill_form(implementation: str, case: Any) -> str:
    """The form that an implementation attends a case in."""
    plan = importlib.import_module("mla_rocm.prefill_plan")
    if implementation == "sglang_extend":
        return str(plan.sglang_prefill_form(max(case.prefix_lengths)))
    return implementation.partition("_")[2]


def _decode_family() -> Family:
    formulas = _formulas()
    return Family(
        implementations=mla_rocm.DECODE_IMPLEMENTATIONS,
        make_inputs=mla_rocm.make_decode_inputs,
        reference=mla_rocm.reference_decode,
        check=check_outputs,
        work=formulas
        and (lambda name, case: _as_work(formulas.decode_work(case), _decode_call(case))),
        memory_bytes=formulas and formulas.decode_memory_bytes,
    )


def _prefill_family(notes: Mapping[str, Any]) -> Family:
    formulas = _formulas()

    def work(name: str, case: Any) -> Work:
        form = prefill_form(name, case)
        done = formulas.prefill_work(case, form)
        parts = {
            "form": form,
            "attention_flops": done.attention_flops,
            "projection_flops": done.projection_flops,
        }
        return Work(done.hbm_bytes, done.flops, {**parts, **notes}, _prefill_call(case))

    return Family(
        implementations=mla_rocm.PREFILL_IMPLEMENTATIONS,
        make_inputs=mla_rocm.make_prefill_inputs,
        reference=mla_rocm.reference_prefill,
        check=check_outputs,
        work=formulas and work,
        memory_bytes=formulas and formulas.prefill_memory_bytes,
    )


def _kda_decode_family() -> Family:
    formulas = _formulas()
    return Family(
        implementations=mla_rocm.KDA_DECODE_IMPLEMENTATIONS,
        make_inputs=mla_rocm.make_kda_decode_inputs,
        reference=mla_rocm.reference_kda_decode,
        check=check_kda_decode,
        work=formulas
        and (lambda name, case: _as_work(formulas.kda_decode_work(case), _kda_decode_call(case))),
        # Three pools (given, updated, the oracle's) of 786 KB a sequence: never the limit.
        memory_bytes=None,
    )


def _formulas() -> Any:
    """The commit's mla_rocm.work; None for a commit from before it."""
    try:
        return importlib.import_module("mla_rocm.work")
    except ModuleNotFoundError as error:
        if error.name != "mla_rocm.work":
            raise
        return None


def _as_work(step: Any, call: KernelCall | None = None) -> Work:
    """A stage alone has no call: what it leaves for the other one is the kernel's own choice."""
    return Work(step.hbm_bytes, step.flops, call=call)


def _decode_call(case: Any) -> KernelCall:
    geometry = case.geometry
    return mla_decode_call(
        case.context_lengths,
        heads=case.heads,
        latent=geometry.latent,
        rope=geometry.rope,
        dtype=case.dtype,
        distinct_tokens=_formulas().distinct_tokens(case) if case.table == "shared" else None,
    )


def _prefill_call(case: Any) -> KernelCall:
    geometry = case.geometry
    return mla_prefill_call(
        case.new_lengths,
        case.prefix_lengths,
        heads=case.heads,
        latent=geometry.latent,
        rope=geometry.rope,
        nope=geometry.nope,
        v_dim=geometry.v_head_dim,
        dtype=case.dtype,
    )


def _kda_decode_call(case: Any) -> KernelCall:
    return kda_decode_call(
        case.batch,
        heads=case.heads,
        k_dim=case.head_dim_k,
        v_dim=case.head_dim_v,
        dtype=case.dtype,
    )


def _experiment(
    workload: Workload, family: Family, make_case: Callable[[], Any], stage: str | None = None
) -> Experiment:
    backend = torch_backend()
    torch_device = "cpu" if backend.platform == "cpu" else "cuda"

    def refused(reason: str) -> Experiment:
        return Experiment(
            workload=WorkloadRef(workload.id, workload.sha256),
            tokens=workload.tokens,
            backend=backend,
            candidates={},
            unavailable=dict.fromkeys(family.implementations, reason),
        )

    try:
        case = make_case()
    except mla_rocm.MlaArgumentError as error:
        return refused(str(error))
    if family.memory_bytes is not None:
        reason = does_not_fit(family.memory_bytes(case), backend.platform)
        if reason is not None:
            return refused(reason)

    @functools.cache
    def inputs() -> Any:
        return family.make_inputs(case, device=torch_device)

    @functools.cache
    def expected() -> Any:
        return family.reference(inputs())

    def whole(name: str) -> Candidate:
        # The inputs are shared by all implementations and made before any is timed.
        bound = family.implementations[name].bind(inputs())
        work = family.work
        return Candidate(
            implementation=name,
            prepare=lambda: bound.fn,
            check=lambda outputs: family.check(outputs, expected(), inputs(), case),
            padded_tokens=workload.tokens,
            work=None if work is None else lambda: work(name, case),
        )

    def alone(name: str) -> Candidate:
        bound = family.implementations[name].bind(inputs())

        def prepare() -> Callable[[], Any]:
            bound.stages["stage1"]()
            return bound.stages[stage]  # type: ignore[no-any-return]

        def work() -> Work:
            written = int(bound.stages["stage1"]().lse.isfinite().sum())
            return _as_work(_formulas().decode_stage_work(case, stage, written))

        return Candidate(
            implementation=name,
            prepare=prepare,
            check=lambda outputs: family.check(_merged(outputs), expected(), inputs(), case),
            padded_tokens=workload.tokens,
            work=work,
        )

    def support(implementation: Any) -> Any:
        if stage is None:
            return implementation.can_run(backend.platform, case)
        if not hasattr(implementation, "can_run_stages"):
            return mla_rocm.Support(False, "this commit's kernels have no stages apart")
        return implementation.can_run_stages(backend.platform, case)

    supports = {name: support(each) for name, each in family.implementations.items()}
    candidate = whole if stage is None else alone
    return Experiment(
        workload=WorkloadRef(workload.id, workload.sha256),
        tokens=workload.tokens,
        backend=backend,
        candidates={
            name: functools.partial(candidate, name) for name, found in supports.items() if found.ok
        },
        unavailable={name: found.reason for name, found in supports.items() if not found.ok},
    )


def _merged(outputs: Any) -> Any:
    """Outputs of either stage: partial results are merged as the oracle's tests merge them."""
    from mla_rocm.numerics import merge_partials

    if hasattr(outputs, "dim"):
        return mla_rocm.Outputs(*merge_partials(outputs.o, outputs.lse, outputs.dim))
    return outputs
