"""What ``asv publish`` reads, read once and fast: result files, their parameters, git's ranges."""

import json
import math
import re
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from asv import results, util

_RANGE = re.compile(r"([0-9a-f]{40,64})\.\.([0-9a-f]{40,64})")


def parsed(text: str) -> Any:
    """``json.loads``; what msgspec refuses (NaN, infinity, an error) is Python's own to judge.

    Where both accept a text they agree, which tests hold for the forms in which they might not.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return json.loads(text)


# Stands for the module ``json`` in asv's ``util``.
JSON = types.SimpleNamespace(**{**vars(json), "loads": parsed})


def loaded_once(load: Callable[..., Any]) -> Any:
    """``Results.load`` that reads a file once, and takes the columns of statistics over whole."""
    known: dict[tuple[str, str | None], Any] = {}

    def loaded(path: str, machine_name: str | None = None) -> Any:
        if (path, machine_name) not in known:
            document = util.load_json(path, results.Results.api_version)
            statistics = _statistics_taken_out(document)
            with _read_already(document):
                result = load(path, machine_name=machine_name)
            result._stats.update(statistics)
            known[path, machine_name] = result
        return known[path, machine_name]

    return staticmethod(loaded)


@contextmanager
def _read_already(document: Any) -> Iterator[None]:
    load_json = util.load_json
    util.load_json = lambda path, api_version=None: document
    try:
        yield
    finally:
        util.load_json = load_json


def _statistics_taken_out(document: Any) -> dict[str, Any]:
    """Statistics of each benchmark in a result file, a dict a value; their columns are cut off.

    Nothing is taken where those are not lists of one length, or a column is there twice: what comes
    of it is asv's to say.
    """
    found: dict[str, Any] = {}
    columns = document.get("result_columns", [])
    if len(set(columns)) < len(columns):
        return found
    for benchmark, row in document.get("results", {}).items():
        taken = {
            name.removeprefix("stats_"): (at, row[at])
            for at, name in enumerate(columns[: len(row)])
            if name.startswith("stats_") and row[at] is not None
        }
        lists = [values for _, values in taken.values()]
        if lists and all(type(values) is list and len(values) == len(lists[0]) for values in lists):
            found[benchmark] = [
                _without_missing(tuple(taken), values) for values in zip(*lists, strict=True)
            ]
            for at, _ in taken.values():
                row[at] = None
    return found


def _without_missing(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    pairs = zip(names, values, strict=True)
    if None in values:
        return {name: value for name, value in pairs if value is not None}
    return dict(pairs)


def chosen_quickly(compatible_results: Callable[..., Any]) -> Any:
    """Values for a benchmark's parameters: all of them in order, where the parameters are those."""
    # How many points, or None where a parameter has a value twice; by the list, which is kept.
    sizes: dict[int, tuple[list[list[str]], int | None]] = {}

    def size(params: list[list[str]]) -> int | None:
        if id(params) not in sizes:
            alone = all(len(set(values)) == len(values) for values in params)
            sizes[id(params)] = (params, math.prod(map(len, params)) if alone else None)
        return sizes[id(params)][1]

    def chosen(result: Any, result_params: list[list[str]], params: list[list[str]]) -> Any:
        if result is not None and result_params == params and len(result) == size(params):
            return list(result)
        return compatible_results(result, result_params, params)

    return chosen


def asked_once(get_hashes_from_range: Callable[..., Any]) -> Any:
    """``Git.get_hashes_from_range``, for ranges on one line of first parents without a process.

    Where the walk from the range's end meets its start, what lies between are the start's
    descendants, so none of them is excluded; git is asked for any other range, once each.
    """
    known: dict[Any, list[str]] = {}
    parents: dict[str, dict[str, str | None]] = {}

    def between(self: Any, start: str, end: str) -> list[str] | None:
        if self._path not in parents:
            lines = self._run_git(["rev-list", "--all", "--parents"]).splitlines()
            parents[self._path] = {
                commit: before[0] if before else None for commit, *before in map(str.split, lines)
            }
        first_parents = parents[self._path]
        found = []
        at: str | None = end
        while at is not None and at != start:
            if at not in first_parents:
                return None
            found.append(at)
            at = first_parents[at]
        return found if at == start else None

    def asked(self: Any, range_spec: str, **kwargs: Any) -> list[str]:
        key = (self._path, range_spec, tuple(sorted(kwargs.items())))
        if key not in known:
            ends = _RANGE.fullmatch(range_spec)
            hashes = between(self, *ends.groups()) if ends and not kwargs else None
            known[key] = (
                get_hashes_from_range(self, range_spec, **kwargs) if hashes is None else hashes
            )
        return list(known[key])

    return asked
