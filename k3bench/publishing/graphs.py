"""asv's reduction of graphs and its summary graphs: the same sums in the same order, in less time.

What is ordinary (one row a revision, nothing missing) takes a short way; the rest goes the way that
asv goes.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from asv import util

# A gap of at most this share of a series' values is filled before series are averaged.
_LARGEST_GAP = 0.1


def is_missing(value: Any) -> bool:
    """None or NaN; what is neither equals itself."""
    return value is None or bool(value != value)


def mean(values: Any) -> float | None:
    """Mean of what is there."""
    present = [x for x in values if x is not None and x == x]
    return sum(present) / len(present) if present else None


def reduced_once(get_data: Callable[..., Any]) -> Any:
    """``Graph.get_data`` that is kept until the graph has more points."""

    def reduced(self: Any) -> Any:
        points = sum(map(len, self.data_points.values()))
        kept = getattr(self, "_k3bench_reduced", None)
        if kept is None or kept[0] != (len(self.data_points), points):
            kept = ((len(self.data_points), points), _reduced(self, get_data))
            self._k3bench_reduced = kept
        return kept[1]

    return reduced


def _reduced(graph: Any, get_data: Callable[..., Any]) -> Any:
    """asv's reduction: values of one revision become their mean, missing ones go at both ends.

    Where every revision has one row, as with one machine and environment a graph, the mean is the
    row itself, and no mean is taken.
    """
    rows = graph.data_points
    if graph.n_series is None or any(len(values) > 1 for values in rows.values()):
        return get_data(graph)
    nothing = [None] * graph.n_series
    values = [
        (
            revision,
            _as_means(rows[revision], nothing),
            _as_means(graph.data_weights[revision], nothing),
        )
        for revision in sorted(rows)
    ]
    present = [at for at, (_, row, _) in enumerate(values) if any(x is not None for x in row)]
    values = values[present[0] : present[-1] + 1] if present else []
    if graph.scalar_series:
        return [(revision, row[0], weight[0]) for revision, row, weight in values]
    return values


def _as_means(rows: list[list[Any]], nothing: list[None]) -> list[Any]:
    """What asv's mean of at most one row is: divided by one, and so a float; NaN as missing."""
    if not rows:
        return list(nothing)
    if _all_present(rows[0]):
        return rows[0]
    return [None if x is None or x != x else x / 1 for x in rows[0]]


def _all_present(values: Sequence[Any]) -> bool:
    """Whether all are floats, and no NaN; infinities of both signs may say no."""
    return set(map(type, values)) == {float} and not math.isnan(sum(values))


def found_by_parameters(get_graph: Callable[..., Any]) -> Any:
    """``GraphSet.get_graph`` that puts a graph's path together once."""

    def found(self: Any, benchmark_name: str, params: dict[str, Any]) -> Any:
        known = self.__dict__.setdefault("_k3bench_graphs", {})
        key = (benchmark_name, *params.items())
        if key not in known:
            known[key] = get_graph(self, benchmark_name, params)
        return known[key]

    return found


def combined(graphs: Sequence[Any]) -> tuple[list[int], list[list[Any]]]:
    """Revisions of all graphs in order, and every series' values at them, None where there is none.

    As ``asv.graph._combine_graph_data``.
    """
    datasets = [graph.get_data() for graph in graphs]
    revisions = sorted({row[0] for data in datasets for row in data})
    series: list[list[Any]] = []
    for graph, data in zip(graphs, datasets, strict=True):
        rows = {row[0]: [row[1]] if graph.scalar_series else row[1] for row in data}
        nothing = [None] * graph.n_series
        at_all = [rows.get(revision, nothing) for revision in revisions]
        series += map(list, zip(*at_all, strict=True)) if at_all else [[] for _ in nothing]
    return revisions, series


def summary(*series: list[Any]) -> list[float | None]:
    """Geometric mean over series at each revision, gaps filled where they are short.

    As ``asv.graph._compute_summary_data_series``.
    """
    filled = [_filled(values) for values in series]
    found: list[float | None] = []
    for known, whole in zip(zip(*series, strict=True), zip(*filled, strict=True), strict=True):
        if _all_present(known) and min(known) >= 0:
            exponent = 1 / len(known)
            found.append(math.prod([abs(x) ** exponent for x in known], start=1.0))
        elif all(map(is_missing, known)):
            found.append(None)
        else:
            found.append(util.geom_mean_na(whole))
    return found


def _filled(values: list[Any]) -> list[Any]:
    """Gaps between two values, if short, are filled along the line from one to the other."""
    places = [at for at, x in enumerate(values) if x is not None and x == x]
    if len(places) == len(values):
        return values
    longest = math.ceil(_LARGEST_GAP * len(places))
    filled = list(values)
    for before, after in itertools.pairwise(places):
        gap = after - before - 1
        if 0 < gap <= longest:
            first, last = values[before], values[after]
            for k in range(1, gap + 1):
                filled[before + k] = (last * k + (gap + 1 - k) * first) / (gap + 1)
    return filled


# What stands for asv's function of each name in its module ``graph``.
FUNCTIONS: dict[str, Any] = {
    "is_na": is_missing,
    "mean_na": mean,
    "_combine_graph_data": combined,
    "_compute_summary_data_series": summary,
}
