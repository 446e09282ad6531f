"""Every workload by name. A new family of workloads is one function under ``@family``.

``get("kda-grid/S64_B4")`` gives one workload, ``ids("kda-grid")`` a family's names, ``all_ids()``
everything, lists imported on this machine included.
"""

import difflib
from collections.abc import Callable, Iterable
from functools import cache

from workloads import store
from workloads.errors import WorkloadError
from workloads.model import Workload

Family = Callable[[], Iterable[Workload]]
_families: dict[str, Family] = {}


def family(name: str) -> Callable[[Family], Family]:
    """Register a function that gives the workloads called ``name`` or ``name/...``."""

    def register(build: Family) -> Family:
        if name in _families:
            raise WorkloadError(f"the workload family {name!r} is registered twice: rename one")
        _families[name] = build
        return build

    return register


def families() -> tuple[str, ...]:
    """Names of the built-in families, in the order of registration."""
    return tuple(_families)


def family_workloads(name: str) -> tuple[Workload, ...]:
    """All workloads of one built-in family."""
    if name not in _families:
        raise _unknown("workload family", name, families())
    return tuple(_build(name).values())


def ids(name: str) -> tuple[str, ...]:
    """The ids of one family, built in or imported."""
    if name in _families:
        return tuple(_build(name))
    if name in store.saved_names():
        from workloads.replays import saved_ids

        return saved_ids(store.load(name))
    raise _unknown("workload family", name, (*families(), *store.saved_names()))


def all_ids() -> tuple[str, ...]:
    """Every id: built in first, then the lists imported on this machine."""
    return tuple(
        workload_id for name in (*families(), *store.saved_names()) for workload_id in ids(name)
    )


def get(workload_id: str) -> Workload:
    """The workload of that id; raises ``WorkloadError`` with the nearest names for an unknown."""
    name = workload_id.partition("/")[0]
    if name in _families:
        found = _build(name).get(workload_id)
        if found is not None:
            return found
    elif name in store.saved_names():
        from workloads.replays import saved_ids, saved_workload

        saved = store.load(name)
        if workload_id in saved_ids(saved):
            return saved_workload(saved, workload_id)
    else:
        raise _unknown("workload", workload_id, (*families(), *store.saved_names()))
    raise _unknown("workload", workload_id, ids(name))


@cache
def _build(name: str) -> dict[str, Workload]:
    built: dict[str, Workload] = {}
    for workload in _families[name]():
        if workload.id.partition("/")[0] != name or workload.id in built:
            raise WorkloadError(
                f"workload {workload.id!r} of family {name!r}: ids start with the family's name "
                "and occur once"
            )
        built[workload.id] = workload
    return built


def _unknown(what: str, name: str, known: Iterable[str]) -> WorkloadError:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "k3bench workloads list shows all"
    return WorkloadError(f"no {what} is called {name!r}: {hint}")
