"""Many points: answered from the cache, the rest compiled in parallel, each kept once done.

The parallel part is joblib's, so whoever calls may choose where it runs:

    with joblib.parallel_backend("ray"):
        compile_points(points, get_target("v6e"))
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import joblib  # type: ignore[import-untyped]
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from k3bench.compiled.cache import cache_directory
from k3bench.compiled.tpu.aot import compiler_versions
from k3bench.compiled.tpu.cache import ResultCache, cache_key
from k3bench.compiled.tpu.evaluate import compile_point
from k3bench.compiled.tpu.point import KdaPoint
from k3bench.compiled.tpu.result import CompiledResult
from k3bench.compiled.tpu.targets import Target


def compile_points(
    points: Sequence[KdaPoint],
    target: Target,
    *,
    jobs: int | None = None,
    use_cache: bool = True,
    allow_other_versions: bool = False,
    directory: Path | None = None,
    progress: bool = False,
) -> list[CompiledResult]:
    """Results in the order of the points; equal points are compiled once.

    An interrupted sweep loses the points that were being compiled and no others: run it again.

    Args:
        points: what to compile.
        target: for what.
        jobs: compilers at once; None takes the number that the joblib backend in force has, and
            joblib's default of one outside any.
        use_cache: False compiles afresh and keeps nothing.
        allow_other_versions: do not insist on the pinned compiler.
        directory: of the cache; cache_directory() unless given.
        progress: a bar on stderr.

    Raises:
        CompilerUnavailableError, CompiledError, CompiledFormatError: of the first point that
            raises; what was finished by then is in the cache.
    """
    versions = compiler_versions(allow_other=allow_other_versions)
    cache = ResultCache(directory or cache_directory()) if use_cache else None
    distinct = list(dict.fromkeys(points))
    keys = {point: cache_key(point, target, versions) for point in distinct}
    found: dict[KdaPoint, CompiledResult] = {}
    if cache is not None:
        for point in distinct:
            result = cache.get(keys[point])
            if result is not None:
                found[point] = result
    missing = [point for point in distinct if point not in found]
    tasks = (
        joblib.delayed(_compile_and_keep)(
            point, target, keys[point], cache, allow_other_versions=allow_other_versions
        )
        for point in missing
    )
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    finished = parallel(tasks) if missing else ()
    for point, result in _shown(finished, len(distinct), len(found), enabled=progress):
        found[point] = result
    return [found[point] for point in points]


def _compile_and_keep(
    point: KdaPoint,
    target: Target,
    key: str,
    cache: ResultCache | None,
    *,
    allow_other_versions: bool,
) -> tuple[KdaPoint, CompiledResult]:
    """One task; it writes the cache itself, so that a lost caller loses no finished point."""
    result = compile_point(point, target, allow_other_versions=allow_other_versions)
    if cache is not None:
        cache.put(key, result)
    return point, result


def _shown(
    finished: Iterable[tuple[KdaPoint, CompiledResult]], total: int, done: int, *, enabled: bool
) -> Iterable[tuple[KdaPoint, CompiledResult]]:
    with Progress(
        TextColumn("compiling"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(file=sys.stderr),
        disable=not enabled,
    ) as bar:
        task = bar.add_task("", total=total, completed=done)
        for point, result in finished:
            bar.update(task, advance=1, description=f"{point.implementation} {result.status}")
            yield point, result
