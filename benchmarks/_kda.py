"""Turns a KDA workload into an experiment: inputs, compiled implementations, the fp32 check."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kda_tpu
from k3bench.measure import Candidate, Correctness, Experiment, Work, WorkloadRef, judge
from k3bench.measure.backends import jax_backend
from k3bench.roofline.calls import kda_prefill_call
from workloads import Call, Workload
from workloads.padding import serving_bucket


@dataclass(frozen=True)
class _Problem:
    """One kernel call's inputs and its expected outputs, shared by all implementations."""

    lengths: tuple[int, ...]
    inputs: Any
    expected: Any


def prefill_experiment(
    workload: Workload, gate: kda_tpu.Gate | None = None, initial_state: str = "random"
) -> Experiment:
    """The workload's calls, one after another, under K3's bounded gate unless told otherwise.

    initial_state: ``random`` (as a serving step finds it) or ``zero``.
    """
    gate = gate or kda_tpu.Gate()
    backend = jax_backend()
    geometry = workload.geometry
    packings = [packing(call, workload.is_replay) for call in workload.calls]
    cases = {lengths: _case(lengths, workload, gate, initial_state) for lengths in packings}
    tolerance = kda_tpu.tolerance(geometry.dtype)

    def work() -> Work:
        # Of the lengths that the workload holds: a replay's padding is no work.
        call = kda_prefill_call(
            (call.new_tokens for call in workload.calls),
            heads=geometry.heads,
            k_dim=geometry.key_dim,
            v_dim=geometry.value_dim,
            dtype=geometry.dtype,
        )
        return Work.of_call(call)

    @functools.cache
    def problem(lengths: tuple[int, ...]) -> _Problem:
        inputs = kda_tpu.make_inputs(cases[lengths])
        return _Problem(lengths, inputs, kda_tpu.kda_reference(inputs, lengths, gate))

    def check(outputs: Sequence[Any]) -> Correctness:
        # Equal packings repeat in a replay with equal inputs: each is checked once.
        distinct = dict(zip(packings, outputs, strict=True))
        error = max(
            kda_tpu.max_abs_error(output, problem(lengths).expected)
            for lengths, output in distinct.items()
        )
        return judge(error, tolerance, reference="the fp32 recurrence", outputs="o and final state")

    def candidate(name: str) -> Candidate:
        implementation = kda_tpu.IMPLEMENTATIONS[name]
        bounds = {
            lengths: implementation.bind(
                lengths,
                gate,
                heads=geometry.heads,
                head_dim_k=geometry.key_dim,
                head_dim_v=geometry.value_dim,
            )
            for lengths in cases
        }
        for lengths in cases:
            problem(lengths)

        def prepare() -> Any:
            calls = {}
            for lengths, bound in bounds.items():
                inputs = problem(lengths).inputs
                calls[lengths] = _compiled(bound, inputs)
            steps = [calls[lengths] for lengths in packings]
            return lambda: [step() for step in steps]

        return Candidate(
            implementation=name,
            prepare=prepare,
            check=check,
            padded_tokens=sum(bounds[lengths].padded_tokens for lengths in packings),
            work=work,
        )

    support = {
        name: [implementation.can_run(backend.platform, case) for case in cases.values()]
        for name, implementation in kda_tpu.IMPLEMENTATIONS.items()
    }
    reasons = {
        name: next((found.reason for found in answers if not found.ok), None)
        for name, answers in support.items()
    }
    return Experiment(
        workload=WorkloadRef(workload.id, workload.sha256),
        tokens=workload.tokens,
        backend=backend,
        candidates={
            name: functools.partial(candidate, name)
            for name, reason in reasons.items()
            if reason is None
        },
        unavailable={name: reason for name, reason in reasons.items() if reason is not None},
    )


# The interpreter's case: chunk edges, an empty sequence, and heads that every rung takes.
INTERPRETED = kda_tpu.KdaCase(lengths=(30, 0, 130), heads=8)


def interpreted_verdict(name: str) -> Correctness:
    """Whether a Pallas kernel is right, in interpret mode on small inputs; never timed."""
    import jax

    case = INTERPRETED
    inputs = kda_tpu.make_inputs(case)
    bound = kda_tpu.IMPLEMENTATIONS[name].bind(
        case.lengths,
        case.gate,
        heads=case.heads,
        head_dim_k=case.head_dim_k,
        head_dim_v=case.head_dim_v,
        interpret=True,
    )
    # It runs once and is not timed: compiling it quickly is worth more than running it fast.
    quickly = {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    }
    outputs = jax.jit(bound.fn, compiler_options=quickly)(inputs, bound.plan)
    return judge(
        kda_tpu.max_abs_error(outputs, kda_tpu.kda_reference(inputs, case.lengths, case.gate)),
        kda_tpu.tolerance(case.dtype),
        reference="the fp32 recurrence",
        outputs=f"o and final state, interpreted on {sum(case.lengths)} tokens",
    )


def packing(call: Call, replay: bool) -> tuple[int, ...]:
    """The sequences of one kernel call.

    A replay pads the packed axis to a serving bucket with one trailing dummy sequence, as the
    published replay did, so that lengths share compiled programs. The dummy's tokens count as
    executed, never as held.
    """
    missing = serving_bucket(call.tokens) - call.tokens if replay else 0
    return (*call.new_tokens, missing) if missing else call.new_tokens


def _case(
    lengths: tuple[int, ...], workload: Workload, gate: kda_tpu.Gate, initial_state: str
) -> kda_tpu.KdaCase:
    geometry = workload.geometry
    return kda_tpu.KdaCase(
        lengths=lengths,
        heads=geometry.heads,
        head_dim_k=geometry.key_dim,
        head_dim_v=geometry.value_dim,
        dtype=geometry.dtype,
        gate=gate,
        initial_state=initial_state,
    )


# XLA's compiled programs by (function, shapes): packings of one shape share theirs, as they would
# under jax.jit, but compilation happens here and never inside a sample.
_programs: dict[Any, Any] = {}


def _compiled(bound: Any, inputs: Any) -> Any:
    import jax

    plan = jax.tree.map(jax.numpy.asarray, bound.plan)
    leaves, tree = jax.tree.flatten((inputs, plan))
    key = (bound.fn, tree, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))
    if key not in _programs:
        _programs[key] = jax.jit(bound.fn).lower(inputs, plan).compile()
    program = _programs[key]
    return lambda: program(inputs, plan)
