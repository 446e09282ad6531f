"""What a measurement gives: every sample, their summary, and whether the kernel was right."""

import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np


def new_id() -> str:
    """32 hex digits, unique, in the order of time (RFC 9562, version 7).

    The ledger's indexes then grow at their end: random ids cost SQLite twice the time to ingest
    once it holds a million results.
    """
    random = uuid.uuid4().int
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | random & (1 << 80) - 1
    version_and_variant = ~(0xF << 76 | 0x3 << 62)
    return f"{value & version_and_variant | 0x7 << 76 | 0x2 << 62:032x}"


Kind = Literal["measured", "compiled", "modelled", "published"]
Status = Literal["ok", "wrong", "failed", "not_checked"]


@dataclass(frozen=True)
class Summary:
    """Median and spread of samples in seconds; all None where there are no samples."""

    median_s: float | None
    p10_s: float | None
    p90_s: float | None
    n: int


def summarise(samples_s: Sequence[float]) -> Summary:
    """Median, 10th and 90th percentile (linear interpolation) of samples in seconds."""
    if not samples_s:
        return Summary(None, None, None, 0)
    p10, median, p90 = (float(x) for x in np.percentile(np.asarray(samples_s), [10, 50, 90]))
    return Summary(median, p10, p90, len(samples_s))


@dataclass(frozen=True)
class Correctness:
    """The verdict on a kernel's outputs against the fp32 reference.

    Attributes:
        status: ``ok``, ``wrong`` (beyond the tolerance), ``failed`` (raised, did not compile) or
            ``not_checked`` (published figures only).
        max_abs_error: largest absolute difference over all outputs; None where none was computed or
            it is not finite.
        tolerance: the bound it was held against.
        reference: the reference's name.
        detail: one line for people: which output, or the exception.
    """

    status: Status
    max_abs_error: float | None = None
    tolerance: float | None = None
    reference: str | None = None
    detail: str | None = None


def judge(max_abs_error: float, tolerance: float, *, reference: str, outputs: str) -> Correctness:
    """The verdict on one comparison with the reference.

    Args:
        max_abs_error: over all outputs; infinite or NaN where an output is not finite.
        tolerance: the largest error that is still right.
        reference: the reference's name.
        outputs: which outputs were compared, for the detail line.
    """
    if not math.isfinite(max_abs_error):
        return Correctness(
            "wrong", None, tolerance, reference, f"{outputs}: not finite where {reference} is"
        )
    return Correctness(
        status="ok" if max_abs_error <= tolerance else "wrong",
        max_abs_error=max_abs_error,
        tolerance=tolerance,
        reference=reference,
        detail=f"{outputs}: {max_abs_error:.3g} from {reference}, allowed {tolerance:.3g}",
    )


@dataclass(frozen=True)
class Result:
    """One implementation at one point; ``to_record`` gives docs/data-model.md's JSON object."""

    benchmark: str
    parameters: Mapping[str, str | int | float | bool]
    implementation: str
    kind: Kind
    device: str
    clock: Literal["wall", "device"] | None
    preset: str | None
    warmup: int | None
    samples_s: tuple[float, ...]
    compile_s: float | None
    tokens: int | None
    padded_tokens: int | None
    correctness: Correctness
    workload_id: str
    workload_sha256: str
    manifest_id: str | None
    commit: str | None
    started_at: str
    run_id: str | None
    figures: Mapping[str, str | int | float | bool] | None = None
    id: str = field(default_factory=new_id)

    def __post_init__(self) -> None:
        if self.correctness.status in ("wrong", "failed") and self.samples_s:
            raise ValueError(
                f"{self.benchmark} {self.implementation}: a kernel that is "
                f"{self.correctness.status} must not carry samples"
            )

    def to_record(self) -> dict[str, Any]:
        """The record that the journal keeps and the ledger ingests."""
        summary = summarise(self.samples_s)
        throughput = (
            self.tokens / summary.median_s if self.tokens is not None and summary.median_s else None
        )
        return {
            "id": self.id,
            "benchmark": self.benchmark,
            "parameters": dict(self.parameters),
            "implementation": self.implementation,
            "kind": self.kind,
            "device": self.device,
            "clock": self.clock,
            "preset": self.preset,
            "warmup": self.warmup,
            "samples_s": list(self.samples_s),
            "median_s": summary.median_s,
            "p10_s": summary.p10_s,
            "p90_s": summary.p90_s,
            "n": summary.n,
            "compile_s": self.compile_s,
            "tokens": self.tokens,
            "padded_tokens": self.padded_tokens,
            "tokens_per_s": throughput,
            "correctness": asdict(self.correctness),
            "workload": {"id": self.workload_id, "sha256": self.workload_sha256},
            "manifest_id": self.manifest_id,
            "commit": self.commit,
            "started_at": self.started_at,
            "run_id": self.run_id,
            "source": None,
            "figures": None if self.figures is None else dict(self.figures),
        }
