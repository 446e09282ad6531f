"""``asv publish``, the same files in less time: nothing is computed or read twice.

asv reads every result file three times, reduces every graph four times, asks git for every jump of
every series, and detects steps as ``fast_steps`` says. Inside ``fast_publishing`` each happens
once. What is written is the same, byte for byte; tests hold the two against each other.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from asv import graph as asv_graph
from asv import results, util
from asv.plugins.git import Git

from k3bench.dashboard.fast_steps import Steps, detect_many

# Series that a worker solves side by side; 256 were slower, their arrays leave the caches.
_SERIES_A_TASK = 64


@contextmanager
def fast_publishing() -> Iterator[None]:
    """asv's publishing does its work once each inside the block; afterwards asv is as it was.

    The repository and the result files must not change inside.
    """
    with ExitStack() as stack:
        for owner, name, wrapped in (
            (asv_graph.GraphSet, "detect_steps", _steps_detected_together),
            (results.Results, "load", _loaded_once(results.Results.load)),
            (asv_graph.Graph, "get_data", _reduced_once(asv_graph.Graph.get_data)),
            (asv_graph.GraphSet, "get_graph", _found_by_parameters(asv_graph.GraphSet.get_graph)),
            (Git, "get_hashes_from_range", _asked_once(Git.get_hashes_from_range)),
            (util, "write_json", _written_whole(util.write_json)),
            (util, "is_na", _is_missing),
            (asv_graph, "is_na", _is_missing),
            (results, "_compatible_results", _chosen_quickly(results._compatible_results)),
        ):
            stack.enter_context(_replaced(owner, name, wrapped))
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _steps_detected_together(self: Any, pool: Any = None, dots: Any = None) -> None:
    """As ``GraphSet.detect_steps``, many series a task instead of one."""
    waiting = [graph for _, graph in self if graph._steps is None]
    series: list[list[Any]] = []
    places: list[tuple[Any, int]] = []
    for graph in waiting:
        data = graph.get_data()
        if not data:
            graph._steps = [[]] * graph.n_series
            continue
        graph._steps = [None] * (1 if graph.scalar_series else graph.n_series)
        for number in range(len(graph._steps)):
            places.append((graph, number))
            series.append(
                data if graph.scalar_series else [(x, y[number], w[number]) for x, y, w in data]
            )
    tasks = [series[at : at + _SERIES_A_TASK] for at in range(0, len(series), _SERIES_A_TASK)]
    if pool is None:
        found = [steps for task in tasks for steps in _steps_of(task)]
    else:
        answers = [pool.apply_async(_steps_of, (task,)) for task in tasks]
        found = [steps for answer in answers for steps in answer.get()]
    for (graph, number), steps in zip(places, found, strict=True):
        graph._steps[number] = steps
    if dots is not None:
        for _ in waiting:
            dots()


def _steps_of(series: list[list[Any]]) -> list[Steps]:
    """Steps by revision: where each starts (inclusive), ends (exclusive), and its levels."""
    columns = [tuple(zip(*rows, strict=True)) for rows in series]
    found = detect_many([(values, weights) for _, values, weights in columns])
    return [
        [(x[left], x[right - 1] + 1, *levels) for left, right, *levels in steps]
        for (x, _, _), steps in zip(columns, found, strict=True)
    ]


def _is_missing(value: Any) -> bool:
    """None or NaN; what is neither equals itself."""
    return value is None or bool(value != value)


def _chosen_quickly(compatible_results: Callable[..., Any]) -> Any:
    """Values for a benchmark's parameters: all of them in order, where the parameters are those."""

    def chosen(result: Any, result_params: list[list[str]], params: list[list[str]]) -> Any:
        if (
            result is not None
            and result_params == params
            and len(result) == math.prod(map(len, params))
            and all(len(set(values)) == len(values) for values in params)
        ):
            return list(result)
        return compatible_results(result, result_params, params)

    return chosen


def _loaded_once(load: Callable[..., Any]) -> Any:
    known: dict[tuple[str, str | None], Any] = {}

    def loaded(path: str, machine_name: str | None = None) -> Any:
        if (path, machine_name) not in known:
            known[path, machine_name] = load(path, machine_name=machine_name)
        return known[path, machine_name]

    return staticmethod(loaded)


def _reduced_once(get_data: Callable[..., Any]) -> Any:
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
    return [None if x is None or x != x else x / 1 for x in rows[0]]


def _found_by_parameters(get_graph: Callable[..., Any]) -> Any:
    def found(self: Any, benchmark_name: str, params: dict[str, Any]) -> Any:
        known = self.__dict__.setdefault("_k3bench_graphs", {})
        key = (benchmark_name, *params.items())
        if key not in known:
            known[key] = get_graph(self, benchmark_name, params)
        return known[key]

    return found


def _asked_once(get_hashes_from_range: Callable[..., Any]) -> Any:
    known: dict[Any, Any] = {}

    def asked(self: Any, range_spec: str, **kwargs: Any) -> Any:
        key = (self._path, range_spec, tuple(sorted(kwargs.items())))
        if key not in known:
            known[key] = get_hashes_from_range(self, range_spec, **kwargs)
        return known[key]

    return asked


def _written_whole(write_json: Callable[..., None]) -> Any:
    def written(path: str, data: Any, api_version: Any = None, compact: bool = False) -> None:
        if not compact or api_version is not None:
            write_json(path, data, api_version, compact)
            return
        # json.dump takes the encoder that is written in Python; dumps the one that is compiled.
        target = Path(os.path.abspath(path))  # noqa: PTH100 - as asv: no link is resolved
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(data), encoding="utf-8")

    return written
