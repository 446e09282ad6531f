"""Measures one point: compile, check, and only then time, all implementations taking turns."""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from k3bench.measure.backends.base import Backend
from k3bench.measure.clocks import FurtherClock
from k3bench.measure.experiment import Call, Candidate, Experiment
from k3bench.measure.interleave import Order, consume, interleave, round_order
from k3bench.measure.protocol import Protocol as Counts
from k3bench.measure.result import Correctness, Result, summarise
from k3bench.measure.work import Work, work_figures
from k3bench.roofline.distance import Scalar


@dataclass(frozen=True)
class Provenance:
    """Where a measurement belongs: the same for every record of one call."""

    benchmark: str
    parameters: Mapping[str, str | int | float | bool]
    manifest_id: str | None
    commit: str | None
    run_id: str | None


class Watch(Protocol):
    """Looks at the machine around the samples: clocks, power, neighbours."""

    def begin(self) -> None:
        """Before the warm-up."""

    def warm(self) -> None:
        """Between the warm-up and the first sample; must be quick, for the device idles."""

    def end(self) -> Mapping[str, Scalar]:
        """After the last sample: what was seen, as figures of the record."""


@dataclass(frozen=True)
class Surroundings:
    """What is looked at beside the samples of a point; nothing by default.

    Attributes:
        watch: the machine's state before and after.
        clocks: further clocks, read after the device's own.
        figures: facts of the run that every record carries (the dispatch floor).
    """

    watch: Watch | None = None
    clocks: Sequence[FurtherClock] = ()
    figures: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """One of those that take turns: an implementation, its point, and whose record it makes.

    Attributes:
        implementation: a name from ``experiment.candidates``.
        experiment: the point; all turns of a group share its device and workload.
        provenance: of its records.
        enter: called before any of its code runs, outside samples.
    """

    implementation: str
    experiment: Experiment
    provenance: Provenance
    enter: Callable[[], None] = lambda: None


@dataclass
class _Prepared:
    """A turn after its check; without a call where there is nothing to time."""

    started_at: str
    correctness: Correctness
    compile_s: float | None = None
    padded_tokens: int | None = None
    call: Call | None = None
    check: Callable[[Any], Correctness] | None = None
    work: Work | None = None


def utc_now() -> str:
    """The time now, ISO 8601 in UTC with microseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def measure_group(
    experiment: Experiment,
    implementations: Sequence[str],
    protocol: Counts,
    provenance: Provenance,
    *,
    on_result: Callable[[Result], None] = lambda result: None,
    on_further: Callable[[Result], None] = lambda result: None,
    surroundings: Surroundings | None = None,
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
        on_further: called before that with the results of further clocks.
        surroundings: what is looked at beside the samples.

    Returns:
        One result per implementation, in the order given.
    """
    turns = {name: Turn(name, experiment, provenance) for name in implementations}
    return measure_turns(
        turns, protocol, on_result=on_result, on_further=on_further, surroundings=surroundings
    )


def measure_turns(
    turns: Mapping[str, Turn],
    protocol: Counts,
    *,
    on_result: Callable[[Result], None] = lambda result: None,
    on_further: Callable[[Result], None] = lambda result: None,
    surroundings: Surroundings | None = None,
    order: Order = round_order,
) -> list[Result]:
    """Measures turns of one workload on one device, whatever commit their kernels are from.

    Args:
        turns: by any name that is unique among them.
        protocol: warm-up and repeat counts.
        on_result, on_further, surroundings: as for ``measure_group``.
        order: of the turns within a round, whichever clock is read.

    Returns:
        One result a turn, in the order given, by the device's own clock.
    """
    around = surroundings or Surroundings()
    ready = {name: _prepared(turn) for name, turn in turns.items()}
    calls = {name: found.call for name, found in ready.items() if found.call is not None}
    samples: Mapping[str, tuple[float, ...]] = {}
    seen: Mapping[str, Scalar] = {}
    refused: dict[str, dict[str, Scalar]] = {name: {} for name in turns}
    if calls:
        backend = next(iter(turns.values())).experiment.backend
        if around.watch is not None:
            around.watch.begin()
        samples = interleave(
            calls,
            protocol,
            backend,
            order=order,
            on_warm=around.watch.warm if around.watch is not None else lambda: None,
            before_call=lambda name: turns[name].enter(),
        )
        if around.watch is not None:
            seen = around.watch.end()
        checks = {name: check for name in calls if (check := ready[name].check) is not None}
        for clock in around.clocks:
            timed = clock.time_all(calls, checks, protocol, lambda name: turns[name].enter(), order)
            for name, reason in timed.refused.items():
                refused[name][f"no_{clock.name}"] = reason
            for name, values in timed.samples_s.items():
                on_further(_further(turns[name], ready[name], protocol, clock, values))
    results = []
    for name, turn in turns.items():
        figures = {**seen, **refused[name], **around.figures}
        result = _result(turn, ready[name], protocol, samples.get(name, ()), figures)
        on_result(result)
        results.append(result)
    return results


def _prepared(turn: Turn) -> _Prepared:
    """Compiles, runs once and checks."""
    found = _Prepared(utc_now(), Correctness("failed"))
    try:
        turn.enter()
        candidate: Candidate = turn.experiment.candidates[turn.implementation]()
        found.padded_tokens = candidate.padded_tokens
        before = time.perf_counter()
        call = candidate.prepare()
        found.compile_s = time.perf_counter() - before
        found.correctness = candidate.check(consume(turn.experiment.backend, call))
        if candidate.work is not None:
            found.work = candidate.work()
    except Exception as error:  # a kernel may fail in any way; the run goes on and says so
        first_line = (str(error).strip().splitlines() or [""])[0]
        found.correctness = Correctness(
            "failed", detail=f"{type(error).__name__}: {first_line}"[:500]
        )
    else:
        if found.correctness.status == "ok":
            found.call, found.check = call, candidate.check
    return found


def _result(
    turn: Turn,
    ready: _Prepared,
    protocol: Counts,
    samples_s: tuple[float, ...],
    figures: Mapping[str, Scalar],
) -> Result:
    experiment, provenance = turn.experiment, turn.provenance
    return Result(
        benchmark=provenance.benchmark,
        parameters=provenance.parameters,
        implementation=turn.implementation,
        kind="measured",
        device=experiment.backend.device,
        clock=experiment.backend.clock,
        preset=protocol.preset,
        warmup=protocol.warmup,
        samples_s=samples_s,
        compile_s=ready.compile_s,
        tokens=experiment.tokens,
        padded_tokens=ready.padded_tokens,
        correctness=ready.correctness,
        workload_id=experiment.workload.id,
        workload_sha256=experiment.workload.sha256,
        manifest_id=provenance.manifest_id,
        commit=provenance.commit,
        started_at=ready.started_at,
        run_id=provenance.run_id,
        figures=_figures(ready.work, samples_s, experiment.backend, figures),
    )


def _further(
    turn: Turn,
    ready: _Prepared,
    protocol: Counts,
    clock: FurtherClock,
    samples_s: tuple[float, ...],
) -> Result:
    """The record of another clock: the same point, with what tells it from the device's own."""
    notes: dict[str, Scalar] = {"further_clock": clock.name, **clock.notes}
    result = _result(turn, ready, protocol, samples_s, notes)
    parameters = {**turn.provenance.parameters, **clock.parameters}
    return replace(result, clock=clock.clock, parameters=parameters)


def _figures(
    work: Work | None,
    samples_s: Sequence[float],
    backend: Backend,
    more: Mapping[str, Scalar],
) -> dict[str, Scalar] | None:
    """What stands beside a time: rates where the work is known, and what was seen around it."""
    median_s = summarise(samples_s).median_s
    if not median_s:
        return None
    rates: Mapping[str, Scalar] = {}
    if work is not None:
        # Only a GPU's clock knows how many compute units it has.
        units = getattr(backend, "compute_units", None)
        rates = work_figures(work, median_s, backend.device, units)
    return {**rates, **more} or None
