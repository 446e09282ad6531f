"""The life of one ``asv run`` in asv's own process: manifest, journal, resume, ledger, summary."""

import datetime
import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from k3bench.asv_type import (
    DRY_RUN_VARIABLE,
    KERNELS_VARIABLE,
    MANIFEST_VARIABLE,
    SELECTION_VARIABLE,
)
from k3bench.journal import (
    RUN_DIRECTORY_VARIABLE,
    JournaledPoint,
    RunJournal,
    abandoned,
    runs_directory,
)
from k3bench.ledger import LedgerError, open_ledger
from k3bench.ledger.ingest import ingest
from k3bench.measure.point import utc_now
from k3bench.runner.lock import (
    DeviceBusyError,
    LockError,
    devices_to_lock,
    exclusive,
    holders,
    wait_seconds,
)
from workloads import pins

RESUME_VARIABLE = "K3BENCH_RESUME"
# Where `k3bench run` wants to be told how the run went.
SUMMARY_VARIABLE = "K3BENCH_RUN_SUMMARY"
# The environment name of points that asv never asked for and never saves (`k3bench ab`).
AB_ENVIRONMENT = "ab"
# The figure of such a point that names the commit with whose samples its own alternate.
IN_TURNS_WITH = "in_turns_with"
# An interrupted run that nobody resumes is forgotten then; its points are in the ledger.
KEEP_ABANDONED_DAYS = 14


@dataclass(frozen=True)
class Invocation:
    """What the user asked asv for, as far as the harness needs it."""

    bench: tuple[str, ...] = ()
    dry_run: bool = False
    preset: str = ""
    command: tuple[str, ...] = ()
    program: str = "asv"

    @property
    def is_ab(self) -> bool:
        """Whether two commits are measured in turns; asv has no use for such a run's points."""
        return (self.program, *self.command[:1]) == ("k3bench", "ab")


class ManifestCaptureError(RuntimeError):
    """The environment could not be described, so nothing may be measured in it."""


def capture_manifest(python: str, project_root: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """The environment manifest as the benchmark interpreter sees it under those variables.

    Raises:
        ManifestCaptureError: the interpreter could not run or describe itself.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "manifest.json"
        pins_file = Path(directory) / "pins.json"
        pins_file.write_text(json.dumps(pins.FAMILY_SHA256))
        command = [python, "-m", "manifests", "capture", "--out", str(out)]
        command += ["--project", str(project_root), "--workload-pins", str(pins_file)]
        completed = subprocess.run(
            command,
            cwd=project_root,
            env={**environ, "PYTHONPATH": str(project_root)},
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode != 0:
            last = (completed.stderr.strip().splitlines() or ["no message"])[-1]
            raise ManifestCaptureError(
                f"the environment manifest could not be captured by {Path(python).name}: {last}"
            )
        manifest: dict[str, Any] = json.loads(out.read_text())
        return manifest


class Run:
    """One run: opened before the first benchmark process starts, closed when asv exits."""

    def __init__(
        self,
        project_root: Path,
        results_dir: Path,
        python: str,
        environ: Mapping[str, str],
        invocation: Invocation,
    ) -> None:
        from manifests import fingerprint, manifest_id

        self.project_root = project_root
        self.results_dir = results_dir
        self.invocation = invocation
        self.console = Console(highlight=False, soft_wrap=True)
        self._pid = os.getpid()
        manifest = self._captured_manifest(python, environ)
        self.manifest_id = manifest_id(manifest)
        self._fingerprint = fingerprint(manifest)
        runs = runs_directory(project_root)
        self.journal = RunJournal.create(
            runs,
            {
                "started_at": utc_now(),
                "preset": invocation.preset,
                "command": list(invocation.command),
            },
        )
        self.journal.add_manifest(self.manifest_id, manifest)
        for other in abandoned(runs):
            self._take_over(other)
        self._say_who_is_measuring(environ)

    def _captured_manifest(self, python: str, environ: Mapping[str, str]) -> dict[str, Any]:
        """The manifest; asking a TPU's runtime takes the chip, so it waits for its lock."""
        devices = devices_to_lock(self.invocation.preset or "smoke", environ)
        chips = [device for device in devices if device.startswith("tpu")]
        say = functools.partial(self.console.print, markup=False)
        try:
            with exclusive(chips, wait_seconds(environ), say):
                return capture_manifest(python, self.project_root, environ)
        except (DeviceBusyError, LockError) as error:
            raise ManifestCaptureError(str(error)) from None

    def environment(self, kernels: Path | None) -> dict[str, str]:
        """Environment variables for the run's benchmark processes."""
        variables = {
            RUN_DIRECTORY_VARIABLE: str(self.journal.directory),
            MANIFEST_VARIABLE: self.manifest_id,
            SELECTION_VARIABLE: json.dumps(list(self.invocation.bench)),
            DRY_RUN_VARIABLE: "1" if self.invocation.dry_run else "0",
        }
        if kernels is not None:
            variables[KERNELS_VARIABLE] = str(kernels)
        return variables

    def _say_who_is_measuring(self, environ: Mapping[str, str]) -> None:
        """Points wait for their device in processes whose output asv keeps: said here instead."""
        try:
            busy = holders(devices_to_lock(self.invocation.preset or "smoke", environ))
            wait_s = wait_seconds(environ)
        except LockError as error:
            self.console.print(f"k3bench: points cannot be measured: {error}", markup=False)
            return
        for device, owner in busy.items():
            self.console.print(
                f"k3bench: {device} is in use by {owner or 'another process'}; "
                f"each point waits for it up to {wait_s:g} s",
                markup=False,
            )

    def _take_over(self, other: RunJournal) -> None:
        """Ingests what an interrupted run finished, and adopts what asv never saved of it."""
        from manifests import fingerprint

        if not _ingest(other, self.project_root, self.console):
            other.unlock()
            return
        retire(other, self.results_dir)
        left = list(other.points())
        if not left:
            other.remove()
            return
        manifests = other.manifests()
        same = [
            point
            for point in left
            if point.record["manifest_id"] in manifests
            and fingerprint(manifests[point.record["manifest_id"]]) == self._fingerprint
            and (point.environment != AB_ENVIRONMENT or self.invocation.is_ab)
        ]
        resume = os.environ.get(RESUME_VARIABLE, "1") != "0"
        started = other.header().get("started_at", "at an unknown time")
        if same and resume:
            self.journal.adopt(other, same)
            self.console.print(
                f"k3bench: {len(same)} finished points of the interrupted run {other.run_id} "
                f"(started {started}) will be reused where they are asked for again; "
                f"{RESUME_VARIABLE}=0 measures afresh"
            )
        if len(same) == len(left) or not resume or _days_old(other) > KEEP_ABANDONED_DAYS:
            other.remove()
        else:
            other.unlock()

    def close(self) -> None:
        """Ingests, retires what asv saved, says how the run went; never raises for the ledger."""
        if os.getpid() != self._pid:
            return
        points = list(self.journal.points())
        self._tell(points)
        if self.invocation.dry_run:
            self._report(points, "not recorded (--dry-run)")
            self.journal.remove()
            return
        self.journal.end(self._finished())
        stored = _ingest(self.journal, self.project_root, self.console)
        self._report(points, "in the ledger" if stored else "in the journal, not yet in the ledger")
        if stored:
            retire(self.journal, self.results_dir)
        if not any(True for _ in self.journal.points()):
            self.journal.remove()
        else:
            self.journal.unlock()

    def _finished(self) -> dict[str, str]:
        """The run as the ledger keeps it: one that has an end."""
        return {
            "id": self.journal.run_id,
            "started_at": self.journal.header()["started_at"],
            "finished_at": utc_now(),
            "command": shlex.join((self.invocation.program, *self.invocation.command)),
        }

    def _mine(self, points: Sequence[JournaledPoint]) -> list[JournaledPoint]:
        # Adopted points that nobody asked for stay pending: they are not part of this run.
        return [
            point
            for point in points
            if point.record["run_id"] == self.journal.run_id or point.delivered_at is not None
        ]

    def _tell(self, points: Sequence[JournaledPoint]) -> None:
        """Leaves the run's id and its points by status where SUMMARY_VARIABLE says."""
        path = os.environ.get(SUMMARY_VARIABLE)
        if path:
            statuses = [point.record["correctness"]["status"] for point in self._mine(points)]
            summary = {"run_id": self.journal.run_id, "counts": dict(Counter(statuses))}
            Path(path).write_text(json.dumps(summary))

    def _report(self, points: Sequence[JournaledPoint], where: str) -> None:
        mine = self._mine(points)
        if not mine:
            return
        counts = Counter(point.record["correctness"]["status"] for point in mine)
        reused = sum(point.record["run_id"] != self.journal.run_id for point in mine)
        summary = ", ".join(f"{counts[status]} {status}" for status in sorted(counts))
        self.console.print(
            f"k3bench: run {self.journal.run_id}: {len(mine)} points {where} ({summary}"
            + (f"; {reused} reused from an interrupted run)" if reused else ")")
        )
        shaken = [point.record for point in mine if "unstable" in (point.record["figures"] or {})]
        if shaken:
            last = shaken[-1]
            self.console.print(
                f"k3bench: the machine was not steady while {len(shaken)} of {len(mine)} points "
                f"were measured; the last: {last['benchmark']} {last['implementation']}: "
                f"{last['figures']['unstable']}",
                style="yellow",
                markup=False,
            )
        for point in mine:
            record = point.record
            verdict = record["correctness"]
            if verdict["status"] in ("wrong", "failed"):
                values = ", ".join(f"{k}={v}" for k, v in record["parameters"].items())
                self.console.print(
                    f"k3bench: {verdict['status'].upper()}, no speed recorded: "
                    f"{record['benchmark']}({values}) {record['implementation']}: "
                    f"{verdict['detail']}",
                    style="bold red",
                    markup=False,
                )


def retire(journal: RunJournal, results_dir: Path) -> None:
    """Drops the points that nobody will ask for again: asv saved them, or an A/B run ended.

    To be called once they are in the ledger.
    """
    for point in list(journal.points()):
        if point.delivered_at is not None and (
            point.environment == AB_ENVIRONMENT or _asv_saved(point, results_dir)
        ):
            point.path.unlink()


def _asv_saved(point: JournaledPoint, results_dir: Path) -> bool:
    from asv.results import get_filename

    commit = point.record["commit"]
    delivered_at = point.delivered_at
    if commit is None or delivered_at is None or not results_dir.is_dir():
        return False
    for machine in (path for path in results_dir.iterdir() if path.is_dir()):
        path = results_dir / get_filename(machine.name, commit, point.environment)
        try:
            if path.stat().st_mtime < delivered_at:
                continue
            if point.record["benchmark"] in json.loads(path.read_text())["results"]:
                return True
        except (FileNotFoundError, ValueError, KeyError):
            continue
    return False


def _days_old(journal: RunJournal) -> float:
    age = datetime.datetime.now().timestamp() - journal.directory.stat().st_mtime
    return age / 86400


def _ingest(
    journal: RunJournal,
    project_root: Path,
    console: Console,
) -> bool:
    """Puts every point of a journal into the ledger, and the run's end where it has one.

    False, with a line, where that failed.
    """
    records: Iterable[Mapping[str, Any]] = [point.record for point in journal.points()]
    if not records:
        return True
    try:
        with open_ledger(project_root=project_root) as ledger:
            ingest(ledger, records, manifests=journal.manifests().values(), runs=journal.ended())
    except LedgerError as error:
        console.print(
            f"k3bench: the points of run {journal.run_id} stay in its journal: {error}; "
            "the next run, or `k3bench ledger sync`, will try again",
            style="bold red",
            markup=False,
        )
        return False
    return True


def sync_abandoned(project_root: Path, console: Console | None = None) -> int:
    """Ingests what interrupted runs left; returns how many points they hold.

    The journals stay, so that the run can still be resumed.
    """
    console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
    count = 0
    for journal in abandoned(runs_directory(project_root)):
        try:
            if _ingest(journal, project_root, console):
                count += sum(1 for _ in journal.points())
        finally:
            journal.unlock()
    return count
