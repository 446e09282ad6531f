"""The common ``asv run``, started as a user would start it: same command, same variables, no more.

Nothing is measured here. asv measures, journals and resumes; this only spells the command, passes
signals on and turns what the run said about itself into the suite's exit codes.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k3bench.measure.protocol import PRESET_VARIABLE
from k3bench.orphans import die_with_parent
from k3bench.run import RESUME_VARIABLE, SUMMARY_VARIABLE
from k3bench.runner.lock import WAIT_VARIABLE

GOOD, FAILED_CHECK, COULD_NOT_JUDGE, INTERRUPTED = 0, 1, 2, 130
# What asv takes in place of a range of commits.
_ASV_WORDS = ("NEW", "ALL", "EXISTING", "MISSING")
_MACHINE_FILE = ".asv-machine.json"


class RunRequestError(ValueError):
    """A request that asv could not make sense of; the message names the option and the mend."""


@dataclass(frozen=True)
class RunRequest:
    """One run.

    Attributes:
        preset: of the protocol; None leaves K3BENCH_PRESET as it is.
        bench: regular expressions, any of which selects a benchmark and its parameters.
        commits: a range as git understands it, a single commit, or one of asv's words.
        fresh: measure again what an interrupted run had finished.
        quick: one sample, no warm-up.
        lock_wait_s: how long a point waits for its device; None leaves the variable.
        extra: further arguments of ``asv run``.
        variables: further environment variables (``reproduce`` sets the recorded ones).
    """

    preset: str | None = None
    bench: tuple[str, ...] = ()
    commits: str = "HEAD"
    fresh: bool = False
    quick: bool = False
    lock_wait_s: float | None = None
    extra: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """What is set for asv on top of the present environment."""
        found = dict(self.variables)
        if self.preset is not None:
            found[PRESET_VARIABLE] = self.preset
        if self.fresh:
            found[RESUME_VARIABLE] = "0"
        if self.lock_wait_s is not None:
            found[WAIT_VARIABLE] = f"{self.lock_wait_s:g}"
        return found

    def arguments(self, commits: str) -> list[str]:
        """asv's arguments, for commits that ``resolved_commits`` has spelled."""
        arguments = ["run", "--record-samples"]
        if self.quick:
            arguments.append("--quick")
        for expression in self.bench:
            arguments += ["--bench", expression]
        return [*arguments, *self.extra, commits]

    def shown(self, commits: str) -> str:
        """The whole as one line for a shell."""
        variables = [f"{name}={shlex.quote(v)}" for name, v in sorted(self.environment().items())]
        return " ".join([*variables, shlex.join(["asv", *self.arguments(commits)])])


@dataclass(frozen=True)
class RunOutcome:
    """How a run went: the suite's exit code, asv's own, and what the run said of its points."""

    exit_code: int
    asv_code: int
    run_id: str | None
    counts: Mapping[str, int]
    message: str


def checked(request: RunRequest, project_root: Path) -> str:
    """The commits as asv takes them; a single commit means that commit alone.

    Raises:
        RunRequestError: an expression that does not compile, or commits that git does not know.
    """
    for expression in request.bench:
        try:
            re.compile(expression)
        except re.error as error:
            raise RunRequestError(
                f"--bench {expression}: no regular expression ({error}); quote it for the shell"
            ) from None
    commits = request.commits.strip()
    if commits in _ASV_WORDS or commits.startswith(("HASHFILE:", "TAGFILE:")):
        return commits
    if _git(project_root, "rev-parse", "--verify", "--quiet", f"{commits}^{{commit}}") is not None:
        return f"{commits}^!"
    pieces = commits.split()
    known = bool(pieces) and not any(piece.startswith("-") for piece in pieces)
    if not known or _git(project_root, "rev-list", "--max-count=1", *pieces, "--") is None:
        raise RunRequestError(
            f"--commits {request.commits}: git knows no such commit or range here; give a commit, "
            f"A..B, or one of {', '.join(_ASV_WORDS)}"
        )
    return commits


def run_asv(
    request: RunRequest, project_root: Path, say: Callable[[str], None] = print
) -> RunOutcome:
    """Runs asv in the foreground, its output on ours, until it has ended.

    Ctrl-C and SIGTERM reach asv as an interrupt: it closes its run, and the same request again
    resumes it.

    Raises:
        RunRequestError: as ``checked``.
    """
    commits = checked(request, project_root)
    environ = {**os.environ, **request.environment()}
    if not (Path(environ.get("HOME", "~")).expanduser() / _MACHINE_FILE).is_file():
        say("k3bench: asv machine --yes")
        subprocess.run(
            [sys.executable, "-m", "asv", "machine", "--yes"],
            cwd=project_root, env=environ, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    say(f"k3bench: {request.shown(commits)}")
    with tempfile.TemporaryDirectory(prefix="k3bench-run-") as directory:
        summary = Path(directory) / "summary.json"
        code, interrupted = foreground(
            [sys.executable, "-m", "asv", *request.arguments(commits)],
            project_root,
            {**environ, SUMMARY_VARIABLE: str(summary)},
        )
        said = json.loads(summary.read_text()) if summary.is_file() else {}
    return outcome(code, said, interrupted)


def outcome(
    asv_code: int, said: Mapping[str, Any], interrupted: bool, broken: str | None = None
) -> RunOutcome:
    """The suite's verdict on a run: 0 all points right, 1 one was wrong, 2 one is missing.

    ``broken``: what to say of a program, other than asv, that ended with another code than 0.
    """
    counts: dict[str, int] = dict(said.get("counts") or {})
    run_id = said.get("run_id")
    total = sum(counts.values())
    if interrupted:
        code, message = INTERRUPTED, f"interrupted after {total} points; the same command resumes"
    elif counts.get("wrong"):
        code, message = FAILED_CHECK, f"{counts['wrong']} of {total} points are wrong"
    elif counts.get("failed"):
        code, message = COULD_NOT_JUDGE, f"{counts['failed']} of {total} points failed"
    elif asv_code != 0:
        said_of_it = broken or f"asv ended with {asv_code}; its message is above"
        code, message = COULD_NOT_JUDGE, said_of_it
    elif not total:
        code, message = (
            COULD_NOT_JUDGE,
            "nothing was measured; see the reasons above, or asv run -e",
        )
    else:
        code, message = GOOD, f"{total} points, all right"
    return RunOutcome(code, asv_code, run_id, counts, message)


def foreground(
    command: Sequence[str], directory: Path, environ: Mapping[str, str]
) -> tuple[int, bool]:
    """A program's exit code, and whether it was interrupted (by us, or by its own signal)."""
    process = subprocess.Popen(command, cwd=directory, env=environ, preexec_fn=die_with_parent)
    interrupted = False

    def pass_on(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        process.send_signal(signal.SIGINT)

    # From the terminal, asv gets Ctrl-C itself: it is in the same process group.
    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                if interrupted:
                    process.kill()
                interrupted = True
    finally:
        signal.signal(signal.SIGTERM, before)
    return code, interrupted or code in (-signal.SIGINT, -signal.SIGTERM)


def _git(directory: Path, *arguments: str) -> str | None:
    completed = subprocess.run(
        ["git", "-C", directory, *arguments], capture_output=True, text=True, check=False
    )
    return completed.stdout.strip() if completed.returncode == 0 else None
