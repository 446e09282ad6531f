"""Glue: compiled figures as plain asv ``track_*`` numbers, and as records of the ledger.

A benchmark names a case and a figure. The first figure asked for compiles the point; the others
find it in the cache. The benchmark that asks for the modelled time also keeps two records, one of
kind ``compiled`` (what the compiler states) and one of kind ``modelled`` (the time that follows).
What differs between families of points (KDA for TPUs, kernels for GPUs, forms through XLA) is in
asv_compiled_families.py.
"""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]

from k3bench.asv_compiled_families import (
    GPU_UNITS,
    UNITS,
    AnyPoint,
    AnyResult,
    compile_any,
    compiled_figures,
    modelled_figures,
    modelled_seconds,
    overflow_figures,
    padded_tokens,
    recorded_with,
    verdict_key,
    versions,
)
from k3bench.asv_type import (
    MANIFEST_VARIABLE,
    PointFailedError,
    bring_into_ledger,
    require_kernels_of_commit,
    required_variable,
)
from k3bench.compiled.errors import CompiledError
from k3bench.compiled.verdicts import kept_verdict
from k3bench.journal import RUN_DIRECTORY_VARIABLE, RunJournal, point_key
from k3bench.measure import Correctness, Result, WorkloadRef
from k3bench.measure.point import utc_now

__all__ = [
    "GPU_UNITS",
    "UNITS",
    "CompiledCase",
    "records_of",
    "track",
    "verdict_on",
    "warm_up",
]


@dataclass(frozen=True)
class CompiledCase:
    """One compiled point as the suite names it.

    Attributes:
        benchmark: asv's name of the benchmark that tracks the modelled time.
        version: its explicit version.
        parameters: asv's parameters, without the implementation.
        workload: name and hash of the lengths.
        tokens: that the workload holds.
        point: what is compiled.
        check: judges the kernel in its interpreter; a kernel that is not right gets no time.
        target: for what.
    """

    benchmark: str
    version: str
    parameters: Mapping[str, str | int | float | bool]
    workload: WorkloadRef
    tokens: int
    point: AnyPoint
    check: Callable[[], Correctness]
    target: str = "v6e"


def track(case: CompiledCase, figure: str) -> float:
    """One figure of a case; NaN where the implementation does not take the point.

    Raises PointFailedError where the compiler refuses it (scoped VMEM, an error) or the kernel is
    wrong: the ledger has it as failed or wrong, asv as failed.
    """
    require_kernels_of_commit()
    [result] = compile_any([case.point], case.target)
    if result.status == "unsupported":
        print(f"k3bench: skipped: {result.detail}")
        return math.nan
    verdict = verdict_on(case, result)
    if figure == recorded_with(result):
        _record(case, result, verdict)
    if verdict.status != "ok":
        sys.tracebacklimit = 0  # asv prints it; the line below is all there is to say
        raise PointFailedError(
            f"k3bench: {verdict.status.upper()}: {case.benchmark} {dict(case.parameters)} "
            f"{result.implementation}: {verdict.detail}"
        )
    return float(getattr(result, figure))


def verdict_on(case: CompiledCase, result: AnyResult) -> Correctness:
    """``failed`` where the compiler refused the point, else what the interpreter's check says."""
    if result.status != "ok":
        return Correctness("failed", detail=f"{result.status}: {result.detail}"[:500])
    name, room = verdict_key(result)
    return kept_verdict(name, case.check, room=room)


def warm_up(cases: Sequence[CompiledCase]) -> None:
    """Compiles cases in parallel into the cache, for an asv ``setup_cache``.

    What cannot be compiled is left to the benchmark that asks for it, which then says so.
    """
    require_kernels_of_commit()
    for target in dict.fromkeys(case.target for case in cases):
        points = [case.point for case in cases if case.target == target]
        with contextlib.suppress(CompiledError):
            compile_any(points, target, jobs=joblib.cpu_count())


def records_of(
    case: CompiledCase,
    result: AnyResult,
    verdict: Correctness,
    *,
    manifest_id: str | None,
    commit: str | None,
    run_id: str | None,
) -> list[dict[str, Any]]:
    """The ledger's records of a compiled point: ``compiled``, and ``modelled`` where it is ok."""
    started_at = utc_now()

    def record(kind: Any, correctness: Correctness) -> dict[str, Any]:
        return Result(
            benchmark=case.benchmark,
            parameters=case.parameters,
            implementation=result.implementation,
            kind=kind,
            device=result.device,
            clock=None,
            preset=None,
            warmup=None,
            samples_s=(),
            compile_s=result.compile_s,
            tokens=case.tokens,
            padded_tokens=padded_tokens(result),
            correctness=correctness,
            workload_id=case.workload.id,
            workload_sha256=case.workload.sha256,
            manifest_id=manifest_id,
            commit=commit,
            started_at=started_at,
            run_id=run_id,
        ).to_record()

    if verdict.status != "ok":
        figures = {**versions(result), **overflow_figures(result)}
        return [record("compiled", verdict) | {"figures": figures}]
    seconds = modelled_seconds(result)
    return [
        record("compiled", verdict) | {"figures": compiled_figures(result)},
        record("modelled", verdict)
        | {
            "median_s": seconds,
            "tokens_per_s": case.tokens / seconds,
            "figures": modelled_figures(result, case.workload, case.parameters),
        },
    ]


def _record(case: CompiledCase, result: AnyResult, verdict: Correctness) -> None:
    """Journals the records as delivered, and brings them into the ledger at once."""
    journal = RunJournal(Path(required_variable(RUN_DIRECTORY_VARIABLE)))
    environment = os.environ.get("ASV_ENV_NAME", "")
    commit = os.environ.get("ASV_COMMIT")
    fresh = records_of(
        case,
        result,
        verdict,
        manifest_id=os.environ.get(MANIFEST_VARIABLE) or None,
        commit=commit,
        run_id=journal.run_id,
    )
    for record in fresh:
        key = point_key(
            commit=commit,
            environment=environment,
            benchmark=case.benchmark,
            version=f"{case.version}/{record['kind']}/{result.fingerprint}",
            parameters=case.parameters,
            implementation=result.implementation,
            warmup=0,
            repeat=0,
        )
        # An interrupted run may have left the same figures: they are taken over, not repeated.
        if not journal.has_pending(key):
            journal.append(key, environment, record)
        journal.take(key)
    bring_into_ledger(journal, fresh)
