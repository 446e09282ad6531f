"""`k3bench ab`: two commits' kernels in one run on one machine, call by call in turns.

Times of two asv runs differ by whatever the machine did between them. Here both commits are
measured in one process a point, so a drift falls on both alike. The records are ordinary ones, with
their commit; one run id holds both sides together.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from k3bench.asv_plugin import extract_kernels
from k3bench.devices import environment_for_this_machine
from k3bench.measure.protocol import PRESET_VARIABLE, preset_name
from k3bench.run import AB_ENVIRONMENT, Invocation, ManifestCaptureError, Run
from k3bench.runner.asv_run import RunOutcome, foreground, outcome
from k3bench.runner.lock import WAIT_VARIABLE


class AbError(ValueError):
    """Two commits that cannot be compared here; the message says why, and what to give."""


@dataclass(frozen=True)
class AbRequest:
    """Which commits, which part of the suite (as asv's --bench), under which preset."""

    base: str
    head: str
    bench: tuple[str, ...] = ()
    preset: str | None = None
    lock_wait_s: float | None = None

    def command(self) -> tuple[str, ...]:
        """The arguments that ask for the same again."""
        preset = () if self.preset is None else ("--preset", self.preset)
        expressions = [part for bench in self.bench for part in ("--bench", bench)]
        return ("ab", *preset, *expressions, self.base, self.head)


def run_ab(
    request: AbRequest, project_root: Path, say: Callable[[str], None] = print
) -> RunOutcome:
    """Measures both commits; the outcome's counts are records.

    Raises:
        AbError: a commit is not known, both are the same, or one has no kernels.
        ManifestCaptureError: the environment cannot be described.
    """
    commits = {
        "base": _resolved(project_root, request.base),
        "head": _resolved(project_root, request.head),
    }
    if commits["base"] == commits["head"]:
        raise AbError(f"{request.base} and {request.head} are the same commit: give two")
    kernels = {label: kernels_of(project_root, commit) for label, commit in commits.items()}
    environ = dict(os.environ)
    if request.preset is not None:
        environ[PRESET_VARIABLE] = request.preset
    if request.lock_wait_s is not None:
        environ[WAIT_VARIABLE] = f"{request.lock_wait_s:g}"
    environ |= environment_for_this_machine(environ)
    run = Run(
        project_root,
        project_root / ".asv" / "results",
        sys.executable,
        environ,
        Invocation(request.bench, False, preset_name(environ), request.command(), "k3bench"),
    )
    plan = {
        "project_root": str(project_root),
        "bench": list(request.bench),
        "sides": {
            label: {"commit": commits[label], "kernels": str(kernels[label])} for label in commits
        },
    }
    environ |= run.environment(None) | {"PYTHONPATH": str(project_root)}
    try:
        with tempfile.TemporaryDirectory(prefix="k3bench-ab-") as directory:
            file = Path(directory) / "plan.json"
            file.write_text(json.dumps(plan))
            code, interrupted = foreground(
                [sys.executable, "-m", "k3bench.runner.ab_worker", str(file)],
                project_root,
                environ,
            )
        if not interrupted and code >= 0:
            run.journal.deliver(AB_ENVIRONMENT)
        # Delivered: what this run measured, and what it kept of an interrupted one.
        statuses = [
            point.record["correctness"]["status"]
            for point in run.journal.points()
            if point.record["run_id"] == run.journal.run_id or point.delivered_at is not None
        ]
    finally:
        run.close()
    said = {"run_id": run.journal.run_id, "counts": dict(Counter(statuses))}
    found = outcome(code, said, interrupted, "a point could not be measured; the reason is above")
    if found.counts.get("ok"):
        say(f"k3bench: judge them with: k3bench gate {commits['base'][:12]} {commits['head'][:12]}")
    return found


def kernels_of(project_root: Path, commit: str) -> Path:
    """The directory with a commit's kernel rooms, taken out of git once and never changed.

    Raises:
        AbError: the commit has no kernel room.
    """
    target = project_root / ".k3bench" / "kernels" / commit
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = (_git(project_root, "rev-parse", "--show-prefix") or "").rstrip("/")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".taking-") as directory:
            rooms = Path(directory) / "rooms"
            extract_kernels(project_root, commit, prefix, rooms)
            if not any(rooms.iterdir()):
                raise AbError(f"{commit[:12]} has no kernels to measure: give a later commit")
            try:
                rooms.rename(target)
            except OSError:
                if not target.is_dir():  # else another run was faster; its copy is the same
                    raise
    return target


def _resolved(project_root: Path, name: str) -> str:
    found = _git(project_root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if name.startswith("-") or not found:
        raise AbError(f"{name}: git knows no such commit here: give a hash, a branch or a tag")
    return found


def _git(directory: Path, *arguments: str) -> str | None:
    completed = subprocess.run(
        ["git", "-C", directory, *arguments], capture_output=True, text=True, check=False
    )
    return completed.stdout.strip() if completed.returncode == 0 else None


__all__ = ["AbError", "AbRequest", "ManifestCaptureError", "kernels_of", "run_ab"]
