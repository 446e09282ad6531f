"""Runs a workflow's `run:` steps here, as GitHub's runner would: bash, env, summary, PATH file."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


def load(name: str) -> dict[str, Any]:
    """A workflow by its file's name; YAML 1.1 reads the key `on` as true."""
    document: dict[Any, Any] = yaml.safe_load((WORKFLOWS / name).read_text())
    document["on"] = document.pop(True)
    return document


@dataclass(frozen=True)
class StepResult:
    """One executed step."""

    name: str
    code: int
    output: str


@dataclass(frozen=True)
class JobResult:
    """A job's executed steps and the summary it left; it fails where a step does."""

    steps: list[StepResult]
    summary: str

    @property
    def code(self) -> int:
        return next((step.code for step in self.steps if step.code), 0)

    @property
    def output(self) -> str:
        return "\n".join(step.output for step in self.steps)


def run_job(
    job: Mapping[str, Any],
    directory: Path,
    expressions: Mapping[str, str],
    environ: Mapping[str, str],
    temporary: Path,
) -> JobResult:
    """Executes the `run:` steps of a job in ``directory``; the first failure ends it.

    ``expressions`` gives the value of every ``${{ }}`` in the steps' env. `uses:` steps are those
    of the hosted runner (checkout, Python, artifacts) and are not run.
    """
    temporary.mkdir(parents=True, exist_ok=True)
    summary, path_file = temporary / "summary.md", temporary / "path"
    summary.touch()
    path_file.touch()
    results = []
    for step in job["steps"]:
        if "run" not in step:
            continue
        added = path_file.read_text().splitlines()
        env = {
            **environ,
            "PATH": os.pathsep.join([*reversed(added), environ["PATH"]]),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_PATH": str(path_file),
            "RUNNER_TEMP": str(temporary),
            **{name: _value(text, expressions) for name, text in step.get("env", {}).items()},
        }
        completed = subprocess.run(
            ["bash", "-e", "-c", step["run"]], cwd=directory, env=env, text=True, timeout=300,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        results.append(StepResult(step["name"], completed.returncode, completed.stdout))
        if completed.returncode:
            break
    return JobResult(results, summary.read_text())


def _value(text: Any, expressions: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{\s*(.+?)\s*\}\}", lambda match: expressions[match[1]], str(text))


def python_of_the_tests() -> str:
    """What K3BENCH_CI_PYTHON names in a dry run: nothing is installed."""
    return sys.executable
