"""Measures one point: compile, check, and only then time, all implementations taking turns."""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from k3bench.measure.experiment import Call, Candidate, Experiment
from k3bench.measure.interleave import consume, interleave
from k3bench.measure.protocol import Protocol
from k3bench.measure.result import Correctness, Result


@dataclass(frozen=True)
class Provenance:
    """Where a measurement belongs: the same for every record of one call."""

    benchmark: str
    parameters: Mapping[str, str | int | float | bool]
    manifest_id: str | None
    commit: str | None
    run_id: str | None


def utc_now() -> str:
    """The time now, ISO 8601 in UTC with microseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def measure_group(
    experiment: Experiment,
    implementations: Sequence[str],
    protocol: Protocol,
    provenance: Provenance,
    *,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Measures several implementations of one point, interleaved.

    Each is compiled, run once and checked first. One that raises is recorded as ``failed``, one
    beyond the tolerance as ``wrong``; neither is timed, and the others are timed all the same.

    Args:
        experiment: the point.
        implementations: names from ``experiment.candidates``, in table order.
        protocol: warm-up and repeat counts.
        provenance: what every record of the group shares.
        on_result: called with each result as soon as it is final.

    Returns:
        One result per implementation, in the order given.
    """
    started: dict[str, str] = {}
    compile_s: dict[str, float | None] = {}
    verdicts: dict[str, Correctness] = {}
    padded: dict[str, int | None] = {}
    calls: dict[str, Call] = {}

    for name in implementations:
        started[name] = utc_now()
        compile_s[name] = None
        padded[name] = None
        try:
            candidate: Candidate = experiment.candidates[name]()
            padded[name] = candidate.padded_tokens
            before = time.perf_counter()
            call = candidate.prepare()
            compile_s[name] = time.perf_counter() - before
            verdicts[name] = candidate.check(consume(experiment.backend, call))
        except Exception as error:  # a kernel may fail in any way; the run goes on and says so
            first_line = (str(error).strip().splitlines() or [""])[0]
            verdicts[name] = Correctness(
                "failed", detail=f"{type(error).__name__}: {first_line}"[:500]
            )
        else:
            if verdicts[name].status == "ok":
                calls[name] = call

    samples = interleave(calls, protocol, experiment.backend) if calls else {}

    results = []
    for name in implementations:
        result = Result(
            benchmark=provenance.benchmark,
            parameters=provenance.parameters,
            implementation=name,
            kind="measured",
            device=experiment.backend.device,
            clock=experiment.backend.clock,
            preset=protocol.preset,
            warmup=protocol.warmup,
            samples_s=samples.get(name, ()),
            compile_s=compile_s[name],
            tokens=experiment.tokens,
            padded_tokens=padded[name],
            correctness=verdicts[name],
            workload_id=experiment.workload.id,
            workload_sha256=experiment.workload.sha256,
            manifest_id=provenance.manifest_id,
            commit=provenance.commit,
            started_at=started[name],
            run_id=provenance.run_id,
        )
        on_result(result)
        results.append(result)
    return results
