"""Builds the dashboard: from the ledger to a directory of pages that any browser opens offline."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from k3bench.dashboard import references
from k3bench.dashboard.changes import ChangeFinder, ChangePoint, change_finder, change_rows, key_of
from k3bench.dashboard.commits import Commit, commits_in_order
from k3bench.dashboard.environment import leaves_of, summary_of
from k3bench.dashboard.errors import DashboardError
from k3bench.dashboard.pages import PAGES, page_html
from k3bench.dashboard.roofline import families_of, k3_decode_by_block, peaks_of, roofline_of
from k3bench.dashboard.rows import (
    COLUMNS,
    Series,
    benchmark_names,
    first_results,
    read_manifests,
    read_samples,
    read_series,
)
from k3bench.dashboard.series_files import in_order_of_history, series_document
from k3bench.dashboard.shapes import shape_of, variant_of
from k3bench.dashboard.snapshots import Snapshots
from k3bench.dashboard.tree import Tree, replaced_tree
from k3bench.ledger import Ledger

DETAILED_COMMITS = 100
# Ids are looked up in files of so many on average; a search for one id loads one file.
_IDS_A_FILE = 2000
_N = COLUMNS.index("n")
_COMMIT = COLUMNS.index("commit")
_MANIFEST = COLUMNS.index("manifest_id")


@dataclass(frozen=True)
class Built:
    """What went into the pages: counts of commits, series, results and manifests."""

    commits: int
    series: int
    results: int
    manifests: int


def build(
    ledger: Ledger | None,
    target: Path,
    *,
    repository: Path,
    detailed_commits: int = DETAILED_COMMITS,
) -> Built:
    """Write the pages over ``target``, which is replaced at once.

    Args:
        ledger: what is shown; None where there is none, and the pages say what to run.
        target: directory of the pages; must be absent, empty or an earlier dashboard.
        repository: clone that commits' subjects, dates and order come from.
        detailed_commits: how many commits, the newest, can be chosen in the figures and keep their
            samples; the history shows every commit, with median, p10 and p90.

    Raises:
        DashboardError: the target is not ours to write, or a number makes no sense.
        LedgerError: the ledger cannot be read.
    """
    if detailed_commits < 1:
        raise DashboardError(f"detailed_commits is {detailed_commits}: show at least one commit")
    with replaced_tree(target) as tree:
        _write_assets(tree, explorer=(target.parent / "index.html").is_file())
        if ledger is None:
            return _Site(tree, [], detailed_commits).finish()
        with ledger.session() as session:
            commits = commits_in_order(first_results(session), repository)
            site = _Site(tree, commits, detailed_commits)
            with change_finder([commit.hash for commit in commits]) as finder:
                for benchmark in benchmark_names(session):
                    site.add_benchmark(session, benchmark, finder)
            site.add_manifests(session)
            return site.finish()


@dataclass
class _Site:
    """The data files in the making, and the indexes that are known only at the end."""

    tree: Tree
    commits: list[Commit]
    detailed_commits: int
    series: list[list[Any]] = field(default_factory=list)
    ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    manifests: list[list[Any]] = field(default_factory=list)
    used_manifests: set[str] = field(default_factory=set)
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    rooflines: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place = {commit.hash: place for place, commit in enumerate(self.commits)}
        newest = self.commits[-self.detailed_commits :]
        self.snapshots = Snapshots(frozenset(commit.hash for commit in newest))

    def add_benchmark(self, session: Session, benchmark: str, finder: ChangeFinder) -> None:
        """Writes the files of a benchmark's series; memory holds one benchmark at a time."""
        changes = finder.of_benchmark(session, benchmark)
        for series in read_series(session, benchmark):
            self._add(session, series, changes.get(key_of(series)))

    def _add(self, session: Session, series: Series, changes: Sequence[ChangePoint] | None) -> None:
        number = len(self.series)
        shape = shape_of(series.workload_id)
        rows = in_order_of_history(series, self.place)
        document = series_document(series, rows, self.place)
        document["changes"] = change_rows(document, changes, self.place)
        self.tree.data(f"series/{number}", document)
        sampled = [
            row[0]
            for row in rows
            if row[_N] and (row[_COMMIT] is None or row[_COMMIT] in self.snapshots.detailed)
        ]
        if sampled:
            self.tree.data(f"samples/{number}", read_samples(session, sampled))
        roofline = roofline_of(series)
        if roofline is not None:
            self.rooflines[number] = roofline
        self.snapshots.add(number, series, shape, rows, further=families_of(roofline))
        self.series.append(
            [
                self._number("benchmarks", series.benchmark),
                series.parameters,
                variant_of(series.parameters),
                self._number("implementations", series.implementation),
                self._number("workloads", series.workload_id),
                [series.view.kind, series.view.device, series.view.clock, series.view.preset],
                len(rows),
                max(document["columns"]["commit"], key=lambda at: -1 if at is None else at),
            ]
        )
        self.ids.update((row[0], (number, position)) for position, row in enumerate(rows))
        self.used_manifests.update(row[_MANIFEST] for row in rows if row[_MANIFEST])

    def add_manifests(self, session: Session) -> None:
        """One file for each manifest that a result names."""
        for identity, document in read_manifests(session):
            if identity in self.used_manifests:
                self.tree.data(f"manifests/{identity}", leaves_of(document))
                self.manifests.append([identity, summary_of(document)])

    def finish(self) -> Built:
        """Writes what only the whole of the ledger tells."""
        for number, document in self.snapshots.documents():
            self.tree.data(f"snapshots/{number}", document)
        digits = 1 if len(self.ids) < 16 * _IDS_A_FILE else 2
        by_prefix: dict[str, dict[str, tuple[int, int]]] = {}
        for identity, where in self.ids.items():
            by_prefix.setdefault(identity[:digits], {})[identity] = where
        for prefix, known in by_prefix.items():
            self.tree.data(f"ids/{prefix}", known)
        self.tree.data(
            "series",
            {
                **{name: list(numbers) for name, numbers in self.names.items()},
                "shapes": [shape_of(name).to_json() for name in self.names.get("workloads", {})],
                "series": self.series,
            },
        )
        built = Built(len(self.commits), len(self.series), len(self.ids), len(self.manifests))
        self.tree.data(
            "index",
            {
                "commits": [
                    [commit.hash, commit.subject, commit.date.date().isoformat(), commit.known]
                    for commit in self.commits
                ],
                "views": self.snapshots.index(self.place),
                "detailed_commits": self.detailed_commits,
                "id_digits": digits,
                "id_files": sorted(by_prefix),
                "manifests": self.manifests,
                "ladder": list(references.ladder()),
                "roofs": references.roofs(),
                "counts": vars(built),
            },
        )
        self.tree.data("model", references.model_against_published())
        devices = {view.device for view, _ in self.snapshots.rows}
        self.tree.data(
            "roofline",
            {
                "devices": {
                    device: peaks
                    for device in sorted(devices)
                    if (peaks := peaks_of(device)) is not None
                },
                "series": self.rooflines,
                "k3_decode": k3_decode_by_block(),
            },
        )
        return built

    def _number(self, table: str, name: str) -> int:
        numbers = self.names.setdefault(table, {})
        return numbers.setdefault(name, len(numbers))


def _write_assets(tree: Tree, *, explorer: bool) -> None:
    script, style_id = plotly_script()
    tree.text("assets/plotly.min.js", script)
    for name, content in _own_assets():
        tree.text(f"assets/{name}", content)
    for page in PAGES:
        tree.text(page.file, page_html(page, style_id, explorer=explorer))


def _own_assets() -> Iterator[tuple[str, str]]:
    for asset in sorted(files("k3bench.dashboard").joinpath("assets").iterdir(), key=str):
        if asset.name.endswith((".js", ".css", ".svg")):
            yield asset.name, asset.read_text(encoding="utf-8")


def plotly_script() -> tuple[str, str | None]:
    """plotly.js as the wheel ships it, and the id of the style element that it looks for.

    It brings a style sheet for maps and inserts it on loading, which our content security policy
    refuses with an error; where an element of that id exists, it leaves the sheet out.
    """
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    script = str(get_plotlyjs())
    found = re.search(r'getElementById\("([0-9a-f]{64})"\)', script)
    return script, found[1] if found else None
