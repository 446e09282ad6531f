"""A small project that asv can run in seconds: real harness, toy kernels with known costs."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

BENCHMARKS_INIT = """
from k3bench.asv_type import register
from k3bench.orphans import die_with_parent
register()
die_with_parent()
"""

# The kernel room of the toy: what a commit may change is how long a kernel takes and its error.
KERNELS = """
SECONDS = {seconds}
ERROR = {error}
"""

SUITE = """
import os, time
from pathlib import Path
import kda_tpu
from k3bench.measure import Candidate, Correctness, Experiment, WorkloadRef
from k3bench.measure.backends.cpu import TorchCpu

def touch(what):
    log = os.environ.get("TOY_LOG")
    if log:
        with open(log, "a") as stream:
            stream.write(what + "\\n")

def experiment(point, names):
    def candidate(name):
        def prepare():
            touch(f"prepare {point} {name}")
            def call():
                time.sleep(kda_tpu.SECONDS * (2 if name == "slow" else 1))
                return kda_tpu.ERROR if name == "slow" else 0.0
            return call
        def check(error):
            status = "ok" if error <= 1e-3 else "wrong"
            return Correctness(status, error, 1e-3, "toy", f"differs by {error}")
        return Candidate(name, prepare, check, padded_tokens=64)
    return Experiment(
        WorkloadRef(f"toy/{point}", "0" * 64), 50, TorchCpu(),
        {name: (lambda name=name: candidate(name)) for name in names},
        {"absent": "no such chip here"},
    )

class Toy:
    params = [[1, 2, 3], ["fast", "slow", "absent"]]
    param_names = ["point", "implementation"]
    version = "1"

    def device_toy(self, point, implementation):
        touch(f"experiment {point}")
        return experiment(point, ["fast", "slow"])

class Throughput:
    def track_nothing(self):
        return 1.0
"""


@dataclass
class ToyProject:
    """A git repository with asv.conf.json, one benchmark and a toy kernel room."""

    root: Path
    log: Path

    @classmethod
    def create(cls, root: Path) -> "ToyProject":
        project = cls(root / "project", root / "log.txt")
        (project.root / "benchmarks").mkdir(parents=True)
        (project.root / "kda_tpu").mkdir()
        config = {
            "version": 1, "project": "toy", "repo": ".", "branches": ["HEAD"],
            "plugins": [".k3bench.asv_plugin"], "environment_type": "provisioned",
            "launch_method": "forkserver", "env_dir": ".asv/env", "results_dir": ".asv/results",
            "html_dir": "html",
        }  # fmt: skip
        (project.root / "asv.conf.json").write_text(json.dumps(config))
        (project.root / ".gitignore").write_text(".asv/\n.k3bench/\nhtml/\nresults.sqlite*\n")
        (project.root / "benchmarks" / "__init__.py").write_text(BENCHMARKS_INIT)
        (project.root / "benchmarks" / "toy.py").write_text(dedent(SUITE))
        project.git("init", "-q", "-b", "main")
        project.commit("A fast kernel", seconds=0.001)
        project.asv("machine", "--yes")
        return project

    def commit(self, message: str, *, seconds: float, error: float = 0.0) -> str:
        """A new commit whose kernels cost and err as told; returns its hash."""
        (self.root / "kda_tpu" / "__init__.py").write_text(
            KERNELS.format(seconds=seconds, error=error)
        )
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
        return subprocess.run(
            command, cwd=self.root, check=True, capture_output=True, text=True
        ).stdout.strip()

    def environ(self, **changes: str) -> dict[str, str]:
        dropped = ("ASV", "K3BENCH_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        own = {
            "HOME": str(self.root.parent),
            "TOY_LOG": str(self.log),
            "K3BENCH_LOCK_DIR": str(self.root.parent / "locks"),
        }
        return {**kept, **own, **changes}

    def start(self, *arguments: str, **changes: str) -> "subprocess.Popen[str]":
        """asv in the background, with its output captured."""
        return subprocess.Popen(
            [sys.executable, "-m", "asv", *arguments],
            cwd=self.root, env=self.environ(**changes), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def asv(self, *arguments: str, expect: int = 0, **changes: str) -> str:
        """asv in the foreground; its output, after its exit code was checked."""
        process = self.start(*arguments, **changes)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == expect, output
        return output

    def results(self, *arguments: str) -> list[dict[str, Any]]:
        """``k3bench results --json`` in this project."""
        completed = subprocess.run(
            [sys.executable, "-m", "k3bench", "results", "--json", *arguments],
            cwd=self.root, env=self.environ(), text=True, capture_output=True, check=False,
        )  # fmt: skip
        assert completed.returncode == 0, completed.stderr
        rows: list[dict[str, Any]] = json.loads(completed.stdout)
        return rows

    def logged(self) -> list[str]:
        """What the toy's benchmark processes did, a line each."""
        return self.log.read_text().splitlines() if self.log.exists() else []
