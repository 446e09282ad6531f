"""The harness's own cost per point, beside plain asv's, measured on benchmarks that do nothing.

Two throw-away suites are run by asv in a directory of their own: a plain ``time_`` benchmark in
asv's ``existing`` environment, and a ``device_`` benchmark through everything that a real point
passes (journal, manifest, ledger). Both import jax and torch as the real suite does. The cost of a
point is the time from its call to the next point's call, so what is paid once per run (discovery,
the manifest; under the fork server the imports too) is not in it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np

from k3bench.asv_type import OVERHEAD_VARIABLE

LAUNCH_METHODS = ("spawn", "forkserver")

PLAIN_SUITE = """
import json, os, time
import jax, torch

class Plain:
    params = list(range({points}))
    number = repeat = rounds = 1
    warmup_time = 0
    version = "1"

    def time_noop(self, point):
        with open(os.environ["{log_variable}"], "a") as stream:
            stream.write(json.dumps({{"first_call": time.monotonic()}}) + "\\n")
"""

DEVICE_INIT = """
import jax, torch
from k3bench.asv_type import register
register()
"""

DEVICE_SUITE = """
from k3bench.measure import Candidate, Correctness, Experiment, WorkloadRef
from k3bench.measure.backends.cpu import TorchCpu

class Device:
    params = [list(range({points})), ["noop"]]
    param_names = ["point", "implementation"]
    warmup = 0
    repeat = 1
    version = "1"

    def device_noop(self, point, implementation):
        candidate = Candidate(
            "noop", lambda: (lambda: None),
            lambda outputs: Correctness("ok", 0.0, 0.0, "nothing"), padded_tokens=1,
        )
        return Experiment(
            WorkloadRef("overhead/noop", "0" * 64), 1, TorchCpu(), {{"noop": lambda: candidate}}
        )
"""


@dataclass(frozen=True)
class Overhead:
    """Seconds that one point costs beyond its own work.

    Attributes:
        harness: ``asv`` (a plain ``time_`` benchmark) or ``k3bench`` (``device_``).
        launch_method: asv's ``spawn`` or ``forkserver``.
        per_point_s: median time from one point's call to the next one's.
        start_to_first_call_s: median from the process's start to its first call; k3bench only.
        bookkeeping_s: median from the last call to the point being in the ledger; k3bench only.
        points: how many points were run.
    """

    harness: str
    launch_method: str
    per_point_s: float
    points: int
    start_to_first_call_s: float | None = None
    bookkeeping_s: float | None = None


class OverheadError(RuntimeError):
    """asv did not run the throw-away suite."""


def measure_overhead(
    points: int = 10,
    progress: Callable[[str], None] = lambda line: None,
    launch_methods: Sequence[str] = LAUNCH_METHODS,
) -> list[Overhead]:
    """Runs both suites under each launch method.

    Args:
        points: points of each run, at least 2.
        progress: called with a line before each run.
        launch_methods: asv's, of which ``spawn`` imports jax and torch for every point.

    Raises:
        OverheadError: asv failed; the message ends with its last line.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="k3bench-overhead-") as directory:
        root = Path(directory)
        for harness in ("asv", "k3bench"):
            suite = root / harness
            _write_suite(suite, harness, points)
            for method in launch_methods:
                log = root / f"{harness}-{method}.jsonl"
                progress(f"{harness} under {method}: {points} points")
                _run_suite(suite, harness, method, log)
                found.append(_read(harness, method, log))
    return found


def _read(harness: str, method: str, log: Path) -> Overhead:
    """The figures of one run, from what its points logged."""
    lines: list[dict[str, float]] = [json.loads(line) for line in log.read_text().splitlines()]
    calls = np.array([line["first_call"] for line in lines])
    per_point = float(np.median(np.diff(calls)))
    if harness == "asv":
        return Overhead(harness, method, per_point, len(lines))
    return Overhead(
        harness,
        method,
        per_point,
        len(lines),
        float(np.median([line["start_to_first_call_s"] for line in lines])),
        float(np.median([line["done"] - line["last_call"] for line in lines])),
    )


def _write_suite(suite: Path, harness: str, points: int) -> None:
    benchmarks = suite / "benchmarks"
    benchmarks.mkdir(parents=True)
    config: dict[str, Any] = {
        "version": 1, "project": "overhead", "repo": ".", "branches": ["HEAD"],
        "results_dir": ".asv/results", "env_dir": ".asv/env",
    }  # fmt: skip
    if harness == "k3bench":
        config |= {"plugins": [".k3bench.asv_plugin"], "environment_type": "provisioned"}
        (benchmarks / "__init__.py").write_text(DEVICE_INIT)
        (benchmarks / "noop.py").write_text(dedent(DEVICE_SUITE).format(points=points))
    else:
        config |= {"environment_type": "existing"}
        (benchmarks / "__init__.py").write_text("")
        plain = dedent(PLAIN_SUITE).format(points=points, log_variable=OVERHEAD_VARIABLE)
        (benchmarks / "noop.py").write_text(plain)
    (suite / "asv.conf.json").write_text(json.dumps(config))
    (suite / ".gitignore").write_text(".asv/\n.k3bench/\nresults.sqlite*\n")
    git = ["git", "-c", "user.name=overhead", "-c", "user.email=overhead@localhost"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Do nothing"]):
        subprocess.run([*git, *command], cwd=suite, check=True, capture_output=True)
    _asv(suite, ["machine", "--yes"], {})


def _run_suite(suite: Path, harness: str, method: str, log: Path) -> None:
    """One ``asv run`` of the whole throw-away suite."""
    arguments = ["run", "--launch-method", method]
    if harness == "asv":
        arguments += ["--set-commit-hash", "HEAD"]
    _asv(suite, arguments, {OVERHEAD_VARIABLE: str(log)})


def _asv(suite: Path, arguments: list[str], variables: Mapping[str, str]) -> None:
    # HOME and the ledger are the suite's own: the user's machine file and database stay untouched.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ASV")}
    environ |= {"HOME": str(suite), "K3BENCH_DB": f"sqlite:///{suite / 'results.sqlite'}"}
    completed = subprocess.run(
        [sys.executable, "-m", "asv", *arguments],
        cwd=suite, env={**environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if completed.returncode != 0:
        output = (completed.stdout + completed.stderr).strip().splitlines() or ["no output"]
        raise OverheadError(f"asv {' '.join(arguments)} failed: {output[-1].strip()}")


def to_json(overheads: list[Overhead], budget_s: float) -> dict[str, Any]:
    """The figures and whether the suite's own launch method keeps within the budget."""
    ours = next(o for o in overheads if (o.harness, o.launch_method) == ("k3bench", "forkserver"))
    return {
        "overheads": [asdict(overhead) for overhead in overheads],
        "budget_s": budget_s,
        "within_budget": ours.per_point_s <= budget_s,
    }
