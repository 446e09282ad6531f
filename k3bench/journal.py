"""The run journal: every finished point as one fsynced file, before anything else may happen.

A run owns a directory ``.k3bench/runs/<run id>/`` and holds a lock on it while it lives:

    run.json    who runs: started_at, preset, command line
    ended.json  the run as the ledger keeps it, once it has ended
    manifests/  the environment manifest, captured once (and those of adopted points), by id
    lock        flock-held by the run's process; free when that process is gone, however it went
    pending/    finished points that asv has not been given yet
    delivered/  finished points that asv has, but may not have saved yet
    kept/       names of pending points of an interrupted run that this one need not measure again

Points leave the journal only when they are in the ledger *and* in asv's saved result file. What an
interrupted run leaves behind is adopted by the next run in the same environment, which hands those
points to asv instead of measuring them again.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from k3bench.canonical import canonical_json

RUN_DIRECTORY_VARIABLE = "K3BENCH_RUN_DIR"


def runs_directory(project_root: Path) -> Path:
    """Where the journals of a checkout lie."""
    return project_root / ".k3bench" / "runs"


def point_key(
    *,
    commit: str | None,
    environment: str,
    benchmark: str,
    version: str,
    parameters: Mapping[str, Any],
    implementation: str,
    warmup: int,
    repeat: int,
) -> str:
    """What makes two measurements the same point of the same plan: a 32-digit hash."""
    identity = [
        commit,
        environment,
        benchmark,
        version,
        dict(parameters),
        implementation,
        warmup,
        repeat,
    ]
    return sha256(canonical_json(identity).encode()).hexdigest()[:32]


def write_durably(path: Path, text: str) -> None:
    """Writes a whole file or none: to a neighbour, fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    with temporary.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@dataclass(frozen=True)
class JournaledPoint:
    """One finished point: the record, and which plan it belongs to."""

    path: Path
    key: str
    environment: str
    record: dict[str, Any]

    @property
    def delivered_at(self) -> float | None:
        """When asv was given it (seconds since the epoch); None while it is pending."""
        return self.path.stat().st_mtime if self.path.parent.name == "delivered" else None


class RunJournal:
    """The journal of one run; any process of the run may open it by its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: Any = None

    @classmethod
    def create(cls, runs: Path, header: Mapping[str, Any]) -> "RunJournal":
        """Makes the directory of a new run and holds its lock until this process ends."""
        run_id = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + uuid.uuid4().hex[:8]
        journal = cls(runs / run_id)
        for name in ("pending", "delivered", "manifests"):
            (journal.directory / name).mkdir(parents=True)
        if not journal.try_lock():
            raise RuntimeError(f"run journal {run_id}: somebody else holds the lock of a new run")
        write_durably(journal.directory / "run.json", canonical_json({**header, "id": run_id}))
        return journal

    @property
    def run_id(self) -> str:
        return self.directory.name

    @property
    def project_root(self) -> Path:
        """The checkout that the run measures; its processes may work elsewhere."""
        return self.directory.parents[2]

    def header(self) -> dict[str, Any]:
        """What ``create`` was given, with the run's ``id``; empty if the run died before that."""
        return self._read_json("run.json") or {}

    def end(self, run: Mapping[str, Any]) -> None:
        """Keeps that the run has ended, and when: the ledger may be away at that moment."""
        write_durably(self.directory / "ended.json", canonical_json(run))

    def ended(self) -> list[dict[str, Any]]:
        """What ``end`` was given; empty for a run that was killed."""
        run = self._read_json("ended.json")
        return [] if run is None else [run]

    def add_manifest(self, manifest_id: str, manifest: Mapping[str, Any]) -> None:
        """Keeps a manifest that records of this journal name."""
        write_durably(self.directory / "manifests" / f"{manifest_id}.json", json.dumps(manifest))

    def manifests(self) -> dict[str, dict[str, Any]]:
        """Every manifest of the journal, by id."""
        return {
            path.stem: json.loads(path.read_text())
            for path in sorted((self.directory / "manifests").glob("[!.]*.json"))
        }

    def _read_json(self, name: str) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads((self.directory / name).read_text())
        except FileNotFoundError:
            return None
        return content

    def try_lock(self) -> bool:
        """Takes the run's lock if nobody holds it; the kernel frees it when the holder dies."""
        stream = (self.directory / "lock").open("a")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            return False
        self._lock = stream
        return True

    def unlock(self) -> None:
        """Lets others adopt what is left."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def append(self, key: str, environment: str, record: Mapping[str, Any]) -> None:
        """Makes a finished point durable."""
        payload = {"key": key, "environment": environment, "record": dict(record)}
        write_durably(
            self.directory / "pending" / f"{key}-{record['id']}.json", canonical_json(payload)
        )

    def points(self) -> Iterator[JournaledPoint]:
        """Every finished point, delivered or not, oldest first within each."""
        for state in ("delivered", "pending"):
            for path in sorted((self.directory / state).glob("[!.]*.json"), key=_age):
                yield _read_point(path)

    def take(self, key: str) -> JournaledPoint | None:
        """The oldest pending point of that key, now delivered; None if there is none.

        Each point is taken once, so a later round of the same run measures again.
        """
        for path in sorted((self.directory / "pending").glob(f"{key}-*.json"), key=_age):
            return self._delivered(path)
        return None

    def keep_together(self, keys: Iterable[str]) -> str | None:
        """Keeps one pending point of every key, all measured by one run, for ``deliver``.

        For points that mean something only beside each other. They stay pending, so that they
        outlive this run if it is interrupted, too. Returns the oldest such run's id; None where
        no run has all of them.
        """
        wanted = set(keys)
        by_run: dict[str, dict[str, JournaledPoint]] = {}
        for point in self.points():
            if point.key in wanted and point.delivered_at is None:
                by_run.setdefault(point.record["run_id"], {}).setdefault(point.key, point)
        for run_id, found in by_run.items():
            if wanted and found.keys() == wanted:
                (self.directory / "kept").mkdir(exist_ok=True)
                for point in found.values():
                    (self.directory / "kept" / point.path.name).touch()
                return run_id
        return None

    def deliver(self, environment: str) -> None:
        """Counts an environment's points of this run, and those it kept, as delivered."""
        kept = {path.name for path in (self.directory / "kept").glob("*")}
        for point in list(self.points()):
            asked = point.record["run_id"] == self.run_id or point.path.name in kept
            if asked and point.environment == environment and point.delivered_at is None:
                self._delivered(point.path)

    def _delivered(self, path: Path) -> JournaledPoint:
        target = self.directory / "delivered" / path.name
        path.replace(target)
        os.utime(target)
        return _read_point(target)

    def has_pending(self, key: str) -> bool:
        """Whether a point of that key waits to be taken."""
        return any((self.directory / "pending").glob(f"{key}-*.json"))

    def adopt(self, other: "RunJournal", points: Iterable[JournaledPoint]) -> None:
        """Takes over points of a run whose lock we hold, with the manifests they name."""
        manifests = other.manifests()
        for point in points:
            manifest_id = point.record["manifest_id"]
            if manifest_id in manifests:
                self.add_manifest(manifest_id, manifests[manifest_id])
            point.path.replace(self.directory / "pending" / point.path.name)

    def remove(self) -> None:
        """Deletes the whole journal."""
        self.unlock()
        shutil.rmtree(self.directory, ignore_errors=True)


def _age(path: Path) -> tuple[int, str]:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime_ns, path.name
    return 0, path.name


def _read_point(path: Path) -> JournaledPoint:
    payload = json.loads(path.read_text())
    return JournaledPoint(path, payload["key"], payload["environment"], payload["record"])


def abandoned(runs: Path) -> Iterator[RunJournal]:
    """The journals whose process is gone, locked for the caller, oldest first."""
    if not runs.is_dir():
        return
    for directory in sorted(path for path in runs.iterdir() if path.is_dir()):
        journal = RunJournal(directory)
        if journal.try_lock():
            yield journal
