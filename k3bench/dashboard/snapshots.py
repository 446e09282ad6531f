"""Snapshots: everything the ledger holds of one commit in one view, which the figures are drawn of.

A figure shows one commit, and a page loads that commit's snapshot alone, however long the history.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from k3bench.dashboard.rows import COLUMNS, Series, View
from k3bench.dashboard.shapes import Shape

# What a snapshot row holds after the number of its series and its place in it.
ROW = ("id", "median_s", "p10_s", "p90_s", "n", "tokens", "padded_tokens", "correctness_status",
       "figures")  # fmt: skip
_ROW_COLUMNS = tuple(COLUMNS.index(name) for name in ROW)
_COMMIT = COLUMNS.index("commit")


@dataclass
class Snapshots:
    """Rows by view and commit, gathered while the series go by; for ``detailed`` commits alone."""

    detailed: frozenset[str]
    rows: dict[tuple[View, str | None], list[list[Any]]] = field(default_factory=dict)
    families: dict[tuple[View, str | None], dict[str, int]] = field(default_factory=dict)

    def add(
        self,
        number: int,
        series: Series,
        shape: Shape,
        rows: list[tuple[Any, ...]],
        *,
        further: tuple[str, ...] = (),
    ) -> None:
        """The newest row of each commit of one series, whose rows are in order of history.

        further: families beside the shape's that its rows count for.
        """
        newest: dict[str | None, tuple[int, tuple[Any, ...]]] = {}
        for position, row in enumerate(rows):
            if row[_COMMIT] is None or row[_COMMIT] in self.detailed:
                newest[row[_COMMIT]] = (position, row)
        for commit, (position, row) in newest.items():
            values = [row[column] for column in _ROW_COLUMNS]
            if values[-1] is not None:
                values[-1] = json.loads(values[-1])
            key = (series.view, commit)
            self.rows.setdefault(key, []).append([number, position, *values])
            family = "composition" if "block" in series.parameters else shape.family
            counts = self.families.setdefault(key, {})
            for name in (family, *further):
                counts[name] = counts.get(name, 0) + 1

    def index(self, place: Mapping[str, int]) -> list[dict[str, Any]]:
        """Views with their commits, newest first: [place, file number, rows, rows by family]."""
        numbers = {key: number for number, key in enumerate(self.rows)}
        views: dict[View, list[list[Any]]] = {}
        for key in self.rows:
            view, commit = key
            at = None if commit is None else place[commit]
            views.setdefault(view, []).append(
                [at, numbers[key], len(self.rows[key]), dict(sorted(self.families[key].items()))]
            )
        return [
            {
                "kind": view.kind,
                "device": view.device,
                "clock": view.clock,
                "preset": view.preset,
                "at": sorted(views[view], key=lambda entry: -1 if entry[0] is None else -entry[0]),
            }
            for view in _in_reading_order(views)
        ]

    def documents(self) -> Iterable[tuple[int, dict[str, Any]]]:
        """File number and content of every snapshot, in the order of ``index``'s numbers."""
        for number, rows in enumerate(self.rows.values()):
            yield number, {"columns": ["series", "position", *ROW], "rows": rows}


def _in_reading_order(views: Iterable[View]) -> list[View]:
    """What was measured first: on accelerators before the CPU, thorough presets before quick ones.

    A page opens with the view that has most points for it, and the first of these where several do.
    """
    kinds = ("measured", "modelled", "compiled", "published")
    presets = ("device", "ladder", "smoke", "quick", None)
    return sorted(
        views,
        key=lambda view: (
            kinds.index(view.kind),
            view.device == "cpu",
            view.device,
            presets.index(view.preset),
            view.clock != "device",
        ),
    )
