"""The forms' definitions as points for the compiler: what XLA makes of each way for a TPU."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]

from k3bench.compiled.cache import cache_directory, room_sha256
from k3bench.compiled.tpu.aot import Outcome, compile_for, compiler_versions
from k3bench.compiled.tpu.cache import ResultCache, result_key
from k3bench.compiled.tpu.evaluate import evaluate
from k3bench.compiled.tpu.result import CompiledResult
from k3bench.compiled.tpu.targets import Target
from k3bench.roofline.errors import RooflineError

FACTORY = "k3bench.roofline.reference.xla:build"
ROOM = "k3bench.roofline.reference"


@dataclass(frozen=True)
class FormPoint:
    """One way of one form at the size of the ``forms`` benchmark.

    Attributes:
        form: a name of k3bench.roofline.reference.ways.PROBLEMS.
        implementation: one of its ways; one that it does not have compiles to ``unsupported``.

    Raises RooflineError for a form that does not exist.
    """

    form: str
    implementation: str

    def __post_init__(self) -> None:
        from k3bench.roofline.reference.ways import PROBLEMS

        if self.form not in PROBLEMS:
            raise RooflineError(f"form {self.form!r}: use one of {', '.join(PROBLEMS)}")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    @staticmethod
    def is_point(document: Mapping[str, Any]) -> bool:
        """Whether a result's point is one of these."""
        return "form" in document


def compile_form_points(
    points: Sequence[FormPoint],
    target: Target,
    *,
    jobs: int | None = None,
    use_cache: bool = True,
    directory: Path | None = None,
) -> list[CompiledResult]:
    """Results in the order of the points; equal points are compiled once.

    Args:
        points: what to compile.
        target: for which TPU.
        jobs: compilers at once; one unless given.
        use_cache: False compiles afresh and keeps nothing.
        directory: of the cache; cache_directory() unless given.

    Raises:
        CompilerUnavailableError, CompiledError, CompiledFormatError: of the first that raises;
            what was finished by then is in the cache.
    """
    versions = compiler_versions()
    cache = ResultCache(directory or cache_directory()) if use_cache else None
    distinct = list(dict.fromkeys(points))

    def result(point: FormPoint) -> CompiledResult:
        key = _cache_key(point, target, versions)
        found = cache.get(key) if cache is not None else None
        if found is None:
            found = _compiled(point, target)
            if cache is not None:
                cache.put(key, found)
        return found

    # Threads: each waits for a compiler in a process of its own.
    run = joblib.Parallel(n_jobs=jobs, prefer="threads")
    results = run(joblib.delayed(result)(point) for point in distinct)
    by_point = dict(zip(distinct, results, strict=True))
    return [by_point[point] for point in points]


def _compiled(point: FormPoint, target: Target) -> CompiledResult:
    from k3bench.roofline.reference.ways import PROBLEMS

    problem = PROBLEMS[point.form]
    if point.implementation in problem.ways:
        arguments = {"form": point.form, "way": point.implementation}
        outcome = compile_for(FACTORY, arguments, target)
    else:  # no compiler is needed to know it
        outcome = Outcome(
            "unsupported", compiler_versions(), f"{point.form} has no way {point.implementation}"
        )
    return evaluate(outcome, point.to_json(), problem.cost.hbm_bytes, target)


def _cache_key(point: FormPoint, target: Target, versions: Mapping[str, str]) -> str:
    """What a result depends on: definitions, sizes, and what every compiled result does."""
    from k3bench.roofline.reference.ways import PROBLEMS

    source = {
        "definitions": room_sha256(ROOM),
        "required_hbm_bytes": PROBLEMS[point.form].cost.hbm_bytes,
    }
    return result_key(source, point.to_json(), target, versions)
