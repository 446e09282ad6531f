"""The process that compiles GPU kernels: builds launches, runs Triton, writes what came out.

    python -m k3bench.compiled.amdgpu.child REQUESTS DIRECTORY

A process of its own because a compiler that crashes must not take the caller with it, and because
Triton reads its environment when it is imported. One answer file a request, written when the
request is done: if the process dies, the first request without an answer is the one that killed it.
"""

import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from k3bench.compiled.built import UnsupportedError

# Properties of arguments that the runtimes of other GPUs do not state.
_HIP_ATTRS = ("tt.pointer_range",)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What the compiler made of one request.

    request: ``factory`` ("module:function" that returns launches), ``arguments`` for it, and
    ``backend``, ``arch`` and ``wave_threads`` of the target.
    """
    import triton  # type: ignore[import-untyped]

    found: dict[str, Any] = {"status": "ok", "detail": None, "triton": triton.__version__}
    module, _, function = request["factory"].partition(":")
    started = time.perf_counter()
    try:
        launches = getattr(importlib.import_module(module), function)(**request["arguments"])
        found["kernels"] = [_compiled(launch, request) for launch in launches]
    except UnsupportedError as error:
        return {**found, "status": "unsupported", "detail": str(error)}
    except Exception as error:  # a compiler may fail in any way; the caller reports the line
        return {**found, "status": "error", "detail": _first_line(error)}
    found["compile_s"] = time.perf_counter() - started
    return found


def _compiled(launch: Any, request: dict[str, Any]) -> dict[str, Any]:
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
    from triton.compiler import ASTSource  # type: ignore[import-untyped]
    from triton.compiler import compile as triton_compile

    target = GPUTarget(request["backend"], request["arch"], request["wave_threads"])
    attrs = {
        where: [attr for attr in found if request["backend"] == "hip" or attr[0] not in _HIP_ATTRS]
        for where, found in launch.attrs.items()
    }
    source = ASTSource(launch.kernel, dict(launch.signature), dict(launch.constexprs), attrs=attrs)
    built = triton_compile(source, target=target, options=dict(launch.options))
    text, usage = built.asm.get("amdgcn"), None
    if text is None:
        text, usage = built.asm["ptx"], _resource_usage(built.asm["cubin"])
    return {
        "name": launch.name,
        "text": text,
        "usage": usage,
        "lds_bytes": int(built.metadata.shared),
        "num_warps": int(built.metadata.num_warps),
        "num_stages": int(built.metadata.num_stages),
        "grid": [int(size) for size in launch.grid],
        "read_bytes": int(launch.read_bytes),
        "written_bytes": int(launch.written_bytes),
        "flops": int(launch.flops),
        "iterations": int(launch.iterations),
        "mean_iterations": float(launch.mean_iterations),
        "iteration_bytes": launch.iteration_bytes,
        "merge_iterations": int(launch.merge_iterations),
        "busy_workgroups": int(launch.busy_workgroups),
    }


def _resource_usage(cubin: bytes) -> str:
    """What NVIDIA's own tool, which comes with Triton, says of a cubin."""
    import subprocess

    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:500]


def main(requests: str, directory: str) -> None:
    """Answers every request of a JSON list, in order, as DIRECTORY/N.json."""
    with tempfile.TemporaryDirectory() as cache:
        # Triton's own cache would hide a compiler that no longer gives the same code.
        os.environ["TRITON_CACHE_DIR"] = cache
        os.environ.pop("TRITON_INTERPRET", None)
        for number, request in enumerate(json.loads(Path(requests).read_text())):
            finished = Path(directory) / f"{number}.json"
            unfinished = finished.with_suffix(".part")
            unfinished.write_text(json.dumps(answer(request)))
            unfinished.rename(finished)


if __name__ == "__main__":
    main(*sys.argv[1:])
