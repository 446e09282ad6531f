"""Runs probes side by side under one deadline, so that a hanging runtime cannot hang the doctor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

# Seconds for all probes together; alone on two cores they take about five.
DEADLINE_S = 12.0


def ask(
    environments: Mapping[str, Mapping[str, str]],
    directory: Path,
    deadline_s: float = DEADLINE_S,
    command: Iterable[str] = (sys.executable, "-m", "k3bench.doctor.probe"),
) -> dict[str, dict[str, Any]]:
    """Answers by probe name; `environments` gives the environment of each probe to start.

    An answer with the key "problem" is a failure: what the probe raised, the signal that ended it,
    or that it had not answered after `deadline_s` seconds (then it is killed with its children).
    """
    end = time.monotonic() + deadline_s
    started: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
    try:
        for name, environment in environments.items():
            # A file, not a pipe: a probe that writes much must not wait for us to read.
            output = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
            process = subprocess.Popen(
                [*command, name],
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            started[name] = (process, output)
        return {name: _answer(process, output, end) for name, (process, output) in started.items()}
    finally:
        for child, written in started.values():
            written.close()
            if child.poll() is None:
                # With everything it started: a compiler's helpers would outlive it.
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _answer(process: subprocess.Popen[bytes], output: IO[bytes], end: float) -> dict[str, Any]:
    try:
        code = process.wait(timeout=max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return {"problem": "no answer in time; the process was ended"}
    if code < 0:
        return {"problem": f"ended by {signal.Signals(-code).name}"}
    output.seek(0)
    lines = output.read().decode("utf-8", errors="replace").strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError):
        return {"problem": f"ended with exit code {code} and no answer"}
