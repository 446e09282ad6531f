"""Writing asv's result tree from the ledger: each file whole or not at all, nothing lost.

    RESULTS_DIR/benchmarks.json                   what asv discovers, for all presets together
    RESULTS_DIR/MACHINE/machine.json              from the manifest, where there is none yet
    RESULTS_DIR/MACHINE/COMMIT-ENVIRONMENT.json   one a commit, machine, Python and preset

A file that exists is added to; one with values that the ledger does not know is left alone and
named. So an export that was interrupted, or comes before more results, is just done again.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from k3bench.export.answers import Questions, Row, commits_of, select_rows
from k3bench.export.errors import ExportError
from k3bench.export.machines import Place, machine_of, place_of
from k3bench.export.merge import add_answers
from k3bench.export.suite import Suite, discover, united
from k3bench.ledger import Ledger
from k3bench.ledger.models import Manifest

BENCHMARKS_FILE = "benchmarks.json"
MACHINE_FILE = "machine.json"


@dataclass
class ExportReport:
    """What became of the result files, and which results asv has no place for."""

    results_dir: Path
    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    # File to the first of its values that the ledger does not know.
    refused: dict[str, str] = field(default_factory=dict)
    exported_results: int = 0
    not_in_suite: int = 0
    commits_not_in_clone: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "results_dir": str(self.results_dir),
            "written": self.written,
            "unchanged": self.unchanged,
            "refused": self.refused,
            "exported_results": self.exported_results,
            "not_in_suite": self.not_in_suite,
            "commits_not_in_clone": self.commits_not_in_clone,
        }


def export_asv(
    ledger: Ledger,
    project_root: Path,
    *,
    results_dir: Path | None = None,
    commit: str | None = None,
    machines: Mapping[str, str] | None = None,
    force: bool = False,
) -> ExportReport:
    """Writes the ledger's results as asv's files into ``results_dir`` (default: asv.conf.json's).

    ``commit``: only this full hash. ``machines``: host name of a manifest to asv's machine name,
    where they differ. ``force``: the ledger's values replace others in files that exist.

    Measured, compiled and modelled results of commits that this clone has are exported, with all
    samples, under the suite's present versions; of several results of a point, the newest counts.
    Raises ExportError where asv cannot discover the suite or nothing is there to export;
    LedgerError for the ledger.
    """
    with ledger.session() as session:
        places = _Places(session, machines or {})
        commits = [commit] if commit is not None else commits_of(session)
        suites = _suites(project_root, places, commits)
        first = next(iter(suites.values()), None)
        if first is None:
            raise ExportError("the ledger has no results of a commit: run `asv run` first")
        report = ExportReport(results_dir or first.results_dir)
        report.commits_not_in_clone = [each for each in commits if each not in first.dates]
        report.results_dir.mkdir(parents=True, exist_ok=True)
        _write_benchmarks(report.results_dir, suites)
        questions = {preset: Questions(suite.benchmarks) for preset, suite in suites.items()}
        for of_commit, rows in groupby(select_rows(session, commit), key=attrgetter("commit")):
            if of_commit not in first.dates:
                continue
            for place, some in _by_place(rows, places).items():
                _export_file(
                    report, places, place, of_commit, first.dates[of_commit],
                    questions[place.preset], some, force=force,
                )  # fmt: skip
    return report


class _Places:
    """Manifest ids to places, read once each, and the machines that they make up."""

    def __init__(self, session: Session, machines: Mapping[str, str]) -> None:
        self._by_id: dict[str, Place] = {}
        self._manifests: dict[str, Mapping[str, Any]] = {}
        # Oldest first, so that the newest manifest of a host describes its machine.
        query = select(Manifest.id, Manifest.document).order_by(Manifest.captured_at, Manifest.id)
        for identity, document in session.execute(query.execution_options(yield_per=100)):
            place = place_of(document)
            self._by_id[identity] = place
            self._manifests[place.host] = document
        unknown = sorted(set(machines) - set(self._manifests))
        if unknown:
            known = ", ".join(sorted(self._manifests)) or "none"
            raise ExportError(f"no results of a host {unknown[0]!r} in the ledger: it has {known}")
        self._machines = machines

    def __getitem__(self, manifest_id: str) -> Place:
        return self._by_id[manifest_id]

    @property
    def presets(self) -> list[str]:
        return sorted({place.preset for place in self._by_id.values()})

    def machine_name(self, host: str) -> str:
        name = self._machines.get(host, host)
        # It becomes a directory, and manifests come from anywhere.
        if name in ("", ".", "..") or name.startswith(".") or set(name) & set("/\\\0"):
            raise ExportError(
                f"the host name {host!r} is no directory name: give --machine 'HOST=NAME'"
            )
        return name

    def machine(self, host: str) -> dict[str, str]:
        return machine_of(self._manifests[host], self.machine_name(host))


def _suites(project_root: Path, places: _Places, commits: list[str]) -> dict[str, Suite]:
    return {preset: discover(project_root, preset, commits) for preset in places.presets}


def _by_place(rows: Iterator[Row], places: _Places) -> dict[Place, list[Row]]:
    found: dict[Place, list[Row]] = {}
    for row in rows:
        found.setdefault(places[row.manifest_id], []).append(row)
    return found


def _export_file(
    report: ExportReport,
    places: _Places,
    place: Place,
    commit: str,
    date: int,
    questions: Questions,
    rows: list[Row],
    *,
    force: bool,
) -> None:
    from asv.results import Results, get_filename

    answers, strangers = questions.answered_by(rows)
    report.not_in_suite += strangers
    if not answers:
        return
    machine = _machine_file(report.results_dir, places, place.host)
    name = str(get_filename(machine["machine"], commit, place.environment))
    results = Results(
        {**machine, "python": place.python},
        {},
        commit,
        date,
        place.python,
        place.environment,
        {"K3BENCH_PRESET": place.preset},
    )
    path = report.results_dir / name
    if path.exists():
        _load(results, report.results_dir, commit)
    changed, disagreements = add_answers(results, questions.benchmarks, answers)
    if disagreements and not force:
        more = f" (and {len(disagreements) - 1} more)" if len(disagreements) > 1 else ""
        report.refused[name] = f"{disagreements[0]}{more}"
        return
    report.exported_results += len(rows) - strangers
    if changed:
        _write_whole(path, results.save)
        report.written.append(name)
    else:
        report.unchanged.append(name)


def _load(results: Any, results_dir: Path, commit: str) -> None:
    """Takes over what the file of ``results`` holds; it may be another commit's, hash alike."""
    from asv.results import Results
    from asv.util import UserError

    path = results_dir / results._filename
    try:
        there = Results.load(str(path))
    except (UserError, OSError) as error:
        raise ExportError(f"{path}: asv cannot read it: {error}: move it away") from error
    if there.commit_hash != commit:
        raise ExportError(
            f"{path} is of commit {there.commit_hash}, not {commit}: asv names files by eight "
            "digits; export one of the two with --commit into another --results-dir"
        )
    results.load_data(str(results_dir))


def _machine_file(results_dir: Path, places: _Places, host: str) -> dict[str, str]:
    """The machine's own description where asv has one, else the manifest's, which is written."""
    from asv.machine import Machine
    from asv.util import UserError, load_json, write_json

    path = results_dir / places.machine_name(host) / MACHINE_FILE
    if path.exists():
        try:
            found: dict[str, str] = load_json(str(path), Machine.api_version)
        except UserError as error:
            raise ExportError(f"{path}: asv cannot read it: {error}: move it away") from error
        # What is beside "machine" and the rest (gpu, driver, ...) are dimensions of the pages.
        return {key: value for key, value in found.items() if key != "version"}
    machine = places.machine(host)

    def save(directory: str) -> None:
        write_json(
            str(Path(directory) / path.parent.name / MACHINE_FILE), machine, Machine.api_version
        )

    _write_whole(path, save)
    return machine


def _write_benchmarks(results_dir: Path, suites: Mapping[str, Suite]) -> None:
    """benchmarks.json, with what was in it: asv keeps it as a cache of its discovery."""
    from asv.benchmarks import Benchmarks
    from asv.util import UserError, load_json, write_json

    path = results_dir / BENCHMARKS_FILE
    there: dict[str, Any] = {}
    if path.exists():
        try:
            there = load_json(str(path), Benchmarks.api_version)
        except UserError as error:
            raise ExportError(f"{path}: asv cannot read it: {error}: move it away") from error
        there.pop("version", None)
    whole = united([there, *(suite.benchmarks for suite in suites.values())])
    if whole != there:
        _write_whole(
            path,
            lambda directory: write_json(
                str(Path(directory) / BENCHMARKS_FILE), whole, Benchmarks.api_version
            ),
        )


def _write_whole(path: Path, save: Callable[[str], None]) -> None:
    """Has asv write under a directory of its own, then moves the file into place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    relative = path.name if path.name == BENCHMARKS_FILE else f"{path.parent.name}/{path.name}"
    # Hidden, and without a machine.json where asv looks for results: not read if it stays behind.
    with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as directory:
        save(directory)
        made = Path(directory) / relative
        descriptor = os.open(made, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        made.replace(path)
