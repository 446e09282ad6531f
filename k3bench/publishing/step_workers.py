"""Steps of all graphs, found by forked processes while asv goes on writing what needs none.

asv waits for a graph's steps where it asks for them (``Graph.get_steps``), and only there. The
processes are forked once everything has been read, so that only steps go from one to another.
"""

import math
import multiprocessing
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import Any, Self

from asv import util

from k3bench.publishing.steps import VALUES_AT_ONCE, InfiniteSeries, Steps, detect_many

# What the processes inherit: graphs, and the number of the series in each.
_series: list[tuple[Any, int]] = []


class Detection:
    """Detects steps in processes that end with the ``with`` block."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        _series.clear()

    def start(self, graphs: Any, dots: Any = None) -> None:
        """As ``GraphSet.detect_steps``, except that it does not wait."""
        waiting = [graph for _, graph in graphs if graph._steps is None]
        _series.clear()
        for graph in waiting:
            if graph.get_data():
                graph._steps = [None] * (1 if graph.scalar_series else graph.n_series)
                _series.extend((graph, number) for number in range(len(graph._steps)))
            else:
                graph._steps = [[]] * graph.n_series
            if dots is not None:
                dots()
        if not _series:
            return
        workers = multiprocessing.cpu_count()
        tasks = list(_tasks(workers))
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = ProcessPoolExecutor(
            min(len(tasks), workers), mp_context=multiprocessing.get_context("fork")
        )
        for places in tasks:
            found = self._pool.submit(_steps_of, places)
            for at, place in enumerate(places):
                graph, number = _series[place]
                graph._steps[number] = _Awaited(found, at)


def _tasks(workers: int) -> Iterator[range]:
    """Series that a worker takes at a time: no more values than it solves at once, and for every
    worker as many tasks."""
    sizes = [len(graph.get_data()) for graph, _ in _series]
    rounds = math.ceil(sum(sizes) / (workers * VALUES_AT_ONCE))
    fair = sum(sizes) / (workers * rounds)
    first = values = 0
    for at, size in enumerate(sizes):
        if at > first and values + size / 2 > fair:
            yield range(first, at)
            first, values = at, 0
        values += size
    yield range(first, len(_series))


class _Awaited:
    """What asv takes for the answer of a pool's process."""

    def __init__(self, found: "Future[list[Steps]]", at: int) -> None:
        self._found, self._at = found, at

    def get(self) -> Steps:
        return self._found.result()[self._at]


class NoPool:
    """Stands for the pool that asv starts and ends round its detection of steps."""

    def close(self) -> None:
        """Nothing to close."""

    join = terminate = close


def _steps_of(places: range) -> list[Steps]:
    """Steps by revision: where each starts (inclusive), ends (exclusive), and its levels."""
    try:
        columns = [_columns(*_series[place]) for place in places]
        found = detect_many([(values, weights) for _, values, weights in columns])
        return [
            [
                (x[left], x[right - 1] + 1, level, lowest, error)
                for left, right, level, lowest, error in steps
            ]
            for (x, _, _), steps in zip(columns, found, strict=True)
        ]
    except InfiniteSeries as error:
        graph, number = _series[places[error.number]]
        raise util.UserError(f"{graph.path}, parameters {number}: {error}") from None
    except Exception as error:
        raise util.ParallelFailure(str(error), type(error), traceback.format_exc()) from None


def _columns(graph: Any, number: int) -> tuple[list[int], list[Any], list[Any]]:
    """Revisions, values and weights of a series."""
    data = graph.get_data()
    revisions = [row[0] for row in data]
    if graph.scalar_series:
        return revisions, [row[1] for row in data], [row[2] for row in data]
    return revisions, [row[1][number] for row in data], [row[2][number] for row in data]
