"""``asv publish``, the same files in less time: nothing is computed or read twice.

asv reads every result file three times, reduces every graph four times, asks git for every jump of
every series, and writes nothing before all steps are found. Inside ``fast_publishing`` each happens
once, side by side where it can. What is written is the same, byte for byte; tests hold the two
against each other.
"""

import gc
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from asv import graph as asv_graph
from asv import results, util
from asv.plugins.git import Git

from k3bench.publishing import graphs, reads
from k3bench.publishing.step_workers import Detection, NoPool


@contextmanager
def fast_publishing() -> Iterator[None]:
    """asv's publishing does its work once each inside the block; afterwards asv is as it was.

    The repository and the result files must not change inside.
    """
    with ExitStack() as stack:
        collector = stack.enter_context(_Collector())
        detection = stack.enter_context(Detection())
        for owner, name, wrapped in (
            (util, "json", reads.JSON),
            (util, "get_multiprocessing_pool", lambda processes=None: NoPool()),
            (util, "write_json", _written_whole(util.write_json)),
            (util, "is_na", graphs.is_missing),
            (results.Results, "load", reads.loaded_once(results.Results.load)),
            (results, "_compatible_results", reads.chosen_quickly(results._compatible_results)),
            (Git, "get_hashes_from_range", reads.asked_once(Git.get_hashes_from_range)),
            (asv_graph.Graph, "get_data", graphs.reduced_once(asv_graph.Graph.get_data)),
            (
                asv_graph.GraphSet,
                "get_graph",
                graphs.found_by_parameters(asv_graph.GraphSet.get_graph),
            ),
            (asv_graph.GraphSet, "detect_steps", _started_by(detection, collector)),
            *((asv_graph, name, function) for name, function in graphs.FUNCTIONS.items()),
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


class _Collector:
    """Python's collector of cycles, spared the results: they hold none, and are walked for nothing.

    It rests while they are read, and then leaves them out. The forked processes do not touch them
    either, and so share them.
    """

    def __enter__(self) -> "_Collector":
        self._was_on, self._frozen = gc.isenabled(), False
        gc.disable()
        return self

    def all_is_read(self) -> None:
        """From here on it runs, if it ran before."""
        if not self._frozen and gc.get_freeze_count() == 0:
            gc.freeze()
            self._frozen = True
        if self._was_on:
            gc.enable()

    def __exit__(self, *error: object) -> None:
        if self._frozen:
            gc.unfreeze()
        if self._was_on:
            gc.enable()


def _started_by(detection: Detection, collector: _Collector) -> Any:
    def detect_steps(self: Any, pool: Any = None, dots: Any = None) -> None:
        collector.all_is_read()
        detection.start(self, dots)

    return detect_steps


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
