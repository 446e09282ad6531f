"""One series as the pages read it: columns over all commits, constant ones said once."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from k3bench.dashboard.commands import asv_command
from k3bench.dashboard.rows import COLUMNS, Series

_COMMIT = COLUMNS.index("commit")
_STARTED_AT = COLUMNS.index("started_at")


def in_order_of_history(series: Series, place: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """The rows by commit (those without one first), then by time."""

    def key(row: tuple[Any, ...]) -> tuple[int, datetime, str]:
        commit = row[_COMMIT]
        return (-1 if commit is None else place[commit], row[_STARTED_AT], row[0])

    return sorted(series.rows, key=key)


def series_document(
    series: Series, rows: list[tuple[Any, ...]], place: Mapping[str, int]
) -> dict[str, Any]:
    """Everything but samples of a series' rows, column by column.

    ``commit`` becomes the commit's place in the history, times are ISO 8601, figures objects.
    """
    constant: dict[str, Any] = {}
    columns: dict[str, list[Any]] = {}
    for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        if name == "commit":
            columns[name] = [None if value is None else place[value] for value in values]
        elif all(value == values[0] for value in values):
            constant[name] = _plain(name, values[0])
        else:
            columns[name] = [_plain(name, value) for value in values]
    return {
        "kind": series.view.kind,
        "device": series.view.device,
        "clock": series.view.clock,
        "preset": series.view.preset,
        "benchmark": series.benchmark,
        "parameters": series.parameters,
        "implementation": series.implementation,
        "workload": {"id": series.workload_id, "sha256": series.workload_sha256},
        "asv_command": asv_command(series),
        "rows": len(rows),
        "constant": constant,
        "columns": columns,
    }


def _plain(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "started_at":
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return json.loads(value) if name == "figures" else value
