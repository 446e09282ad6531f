"""What is measured: one workload, the implementations that can run it, and how to check them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from k3bench.measure.backends.base import Backend
from k3bench.measure.result import Correctness
from k3bench.measure.work import Work

Call = Callable[[], Any]


@dataclass(frozen=True)
class WorkloadRef:
    """A pinned workload's identity: its readable id and the SHA-256 of its content."""

    id: str
    sha256: str


@dataclass(frozen=True)
class Candidate:
    """One implementation, ready to be compiled, checked and timed.

    Attributes:
        implementation: its name in the family's IMPLEMENTATIONS table.
        prepare: makes inputs resident and compiles; returns the call to time. Its duration is the
            record's ``compile_s`` and never part of a sample. The call returns every output of the
            kernel, so that none of its work is dead code.
        check: judges the call's outputs against the reference.
        padded_tokens: tokens that one call executes, padding included.
        work: bytes and FLOPs of one call, for the rates beside its time; asked for after the check,
            so it may depend on what a call left. None records no rates.
    """

    implementation: str
    prepare: Callable[[], Call]
    check: Callable[[Any], Correctness]
    padded_tokens: int
    work: Callable[[], Work] | None = None


@dataclass(frozen=True)
class Experiment:
    """One point of a benchmark: a workload with every implementation of the family.

    Attributes:
        workload: what is computed.
        tokens: tokens the workload really holds; throughput counts these.
        backend: the device's clock.
        candidates: implementation name to a function that builds its Candidate (inputs are made
            only for those that are measured).
        unavailable: implementation name to the reason why it cannot run here.
    """

    workload: WorkloadRef
    tokens: int
    backend: Backend
    candidates: Mapping[str, Callable[[], Candidate]]
    unavailable: Mapping[str, str] = field(default_factory=dict)
