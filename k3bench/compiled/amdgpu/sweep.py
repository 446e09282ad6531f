"""Many GPU points: answered from the cache, the rest compiled in parallel, each kept once done."""

from collections.abc import Sequence
from pathlib import Path

import joblib  # type: ignore[import-untyped]

from k3bench.compiled.amdgpu.cache import cache_key, gpu_cache
from k3bench.compiled.amdgpu.compiler import (
    Request,
    compile_requests,
    import_path,
    triton_version,
)
from k3bench.compiled.amdgpu.evaluate import evaluate
from k3bench.compiled.amdgpu.point import GpuPoint
from k3bench.compiled.amdgpu.result import GpuResult
from k3bench.compiled.amdgpu.targets import GpuTarget
from k3bench.compiled.cache import JsonCache, cache_directory

FACTORY = "k3bench.compiled.amdgpu.launches:build"


def compile_gpu_points(
    points: Sequence[GpuPoint],
    target: GpuTarget,
    *,
    jobs: int | None = None,
    use_cache: bool = True,
    directory: Path | None = None,
) -> list[GpuResult]:
    """Results in the order of the points; equal points are compiled once.

    Args:
        points: what to compile.
        target: for what.
        jobs: compiling processes at once; None takes the number that the joblib backend in force
            has, and joblib's default of one outside any.
        use_cache: False compiles afresh and keeps nothing.
        directory: of the cache; cache_directory() unless given.

    Raises:
        CompilerUnavailableError: Triton is missing.
        CompiledFormatError: code that the analysis does not understand.
    """
    triton = triton_version()
    cache = gpu_cache(directory or cache_directory()) if use_cache else None
    distinct = list(dict.fromkeys(points))
    requests = {point: _request(point, target) for point in distinct}
    keys = {
        point: cache_key(request.factory, request.arguments, target, triton)
        for point, request in requests.items()
    }
    found: dict[GpuPoint, GpuResult] = {}
    if cache is not None:
        kept = {point: cache.get(keys[point]) for point in distinct}
        found = {point: result for point, result in kept.items() if result is not None}
    missing = [point for point in distinct if point not in found]
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    # A process imports Triton once, which takes longer than a kernel: points share processes.
    share = max(1, -(-len(missing) // max(1, joblib.effective_n_jobs(jobs))))
    chunks = [missing[n : n + share] for n in range(0, len(missing), share)]
    path = import_path("mla_rocm")
    tasks = (
        joblib.delayed(_compile_chunk)(
            [(point, requests[point], keys[point]) for point in chunk], target, cache, path
        )
        for chunk in chunks
    )
    for results in parallel(tasks) if chunks else ():
        found.update(results)
    return [found[point] for point in points]


def _request(point: GpuPoint, target: GpuTarget) -> Request:
    described_for = {"target_arch": target.arch, "target_compute_units": target.compute_units}
    return Request(FACTORY, {**point.to_json(), **described_for})


def _compile_chunk(
    chunk: Sequence[tuple[GpuPoint, Request, str]],
    target: GpuTarget,
    cache: JsonCache[GpuResult] | None,
    path: str,
) -> list[tuple[GpuPoint, GpuResult]]:
    """One task; it writes the cache itself, so that a lost caller loses no finished point."""
    answers = compile_requests([request for _, request, _ in chunk], target, path=path)
    results = []
    for (point, _, key), answer in zip(chunk, answers, strict=True):
        result = evaluate(answer, point.to_json(), target, compute_units=point.compute_units)
        if cache is not None:
            cache.put(key, result)
        results.append((point, result))
    return results
