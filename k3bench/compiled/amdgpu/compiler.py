"""Asks Triton, in processes of its own, for the code of many launches."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3bench.compiled.amdgpu.targets import GpuTarget
from k3bench.compiled.errors import CompiledError, CompilerUnavailableError

TIMEOUT_S = 900


@dataclass(frozen=True)
class Request:
    """What to compile: "module:function" that returns launches, and its arguments."""

    factory: str
    arguments: Mapping[str, Any]


def triton_version() -> str:
    """The installed version; CompilerUnavailableError where there is none."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        raise CompilerUnavailableError(
            "triton is not installed: pip install 'k3bench[rocm]'"
        ) from None


def compile_requests(
    requests: Sequence[Request], target: GpuTarget, *, path: str | None = None
) -> list[dict[str, Any]]:
    """Answers (see child.py) in the order of the requests.

    A request that kills its process is answered with status ``error``; the others are compiled all
    the same.

    Args:
        requests: what to compile.
        target: for what.
        path: where the processes import from; this process's import_path() unless given. A worker
            of a pool must be given its caller's: its own may find another commit's kernels.

    Raises CompilerUnavailableError where Triton is missing.
    """
    triton_version()
    path = import_path("mla_rocm") if path is None else path
    answers: list[dict[str, Any]] = []
    while len(answers) < len(requests):
        left = requests[len(answers) :]
        fresh, ending = _run_child(left, target, path)
        answers.extend(fresh)
        if len(fresh) < len(left):
            answers.append({"status": "error", "detail": ending, "triton": triton_version()})
    return answers


def import_path(room: str) -> str:
    """PYTHONPATH for a child that must import what this process imports.

    The room comes first, so that a commit's kernels stay that commit's.
    """
    spec = importlib.util.find_spec(room)
    first = [str(Path(spec.origin).parents[1])] if spec is not None and spec.origin else []
    return os.pathsep.join(dict.fromkeys([*first, *(entry for entry in sys.path if entry)]))


def _run_child(
    requests: Sequence[Request], target: GpuTarget, path: str
) -> tuple[list[dict[str, Any]], str]:
    """The answers up to the end of the process, and how it ended."""
    documents = [
        {
            "factory": request.factory,
            "arguments": dict(request.arguments),
            "backend": target.backend,
            "arch": target.arch,
            "wave_threads": target.wave_threads,
        }
        for request in requests
    ]
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        asked = directory / "requests.json"
        asked.write_text(json.dumps(documents))
        command = [sys.executable, "-P", "-m", "k3bench.compiled.amdgpu.child", str(asked), scratch]
        try:
            ended = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                env={**os.environ, "PYTHONPATH": path},
            )
            ending = f"the compiler's process ended with code {ended.returncode}"
            said = [line for line in ended.stderr.splitlines() if line.strip()]
            if said and ended.returncode:
                ending = f"{ending}: {said[-1].strip()}"[:500]
        except subprocess.TimeoutExpired:
            ending = f"the compiler took longer than {TIMEOUT_S} s"
        answers = []
        for number in range(len(requests)):
            finished = directory / f"{number}.json"
            if not finished.exists():
                break
            answers.append(_read(finished))
        return answers, ending


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise CompiledError(f"the compiler's answer is not JSON: {error}") from error
    return document
