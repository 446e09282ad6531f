"""Importing a list of lengths: read it, tell which distribution it is, keep it under a name."""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from workloads import pins, readers, registry, store
from workloads.errors import MissingInputError, WorkloadError
from workloads.identity import Identity, ordered_sha256, sorted_sha256
from workloads.replays import TRACE_FORMS, saved_ids
from workloads.statistics import compare, summarise
from workloads.store import SavedLengths

PINNED_NAME = "sharegpt-k3-lengths"
SURROGATE_NAME = "sharegpt-k3-surrogate-lengths"


@dataclass(frozen=True)
class ImportReport:
    """What an import found and did.

    ``name`` is None where nothing was stored: a list that is no trace, is not the pinned
    distribution, and was given no name to stand on its own. ``differences`` are from the pinned
    statistics; ``explanation`` says in one line what the list is. ``in_file_order`` tells whether a
    pinned list also has the dataset's order, from which the drawn lists can be re-derived.
    """

    file: str
    form: str
    identity: Identity
    name: str | None
    workload_ids: tuple[str, ...]
    statistics: pins.Statistics
    sorted_sha256: str
    differences: tuple[str, ...]
    in_file_order: bool
    dropped_by_length_filter: int
    explanation: str


def import_file(
    path: Path, form: str = "auto", name: str | None = None, replace: bool = False
) -> ImportReport:
    """Read a file of lengths, compare it with the pins, and store it as a named workload.

    The pinned distribution and the surrogate are recognised by the hash of the multiset and stored
    under their own names; a trace under ``name`` or its file's name; any other list only under a
    ``name`` given here. A name that holds other lengths is refused unless ``replace``.
    """
    read = readers.read(path, form)
    saved = SavedLengths(
        name=_default_name(path) if name is None else name,
        form=read.form,
        source=path.name,
        source_sha256=store.sha256_file(path),
        lengths=read.lengths,
        output_lengths=read.output_lengths,
    )
    identity = saved.identity
    if name is None and identity != "unpinned":
        known = PINNED_NAME if identity == "pinned" else SURROGATE_NAME
        saved = dataclasses.replace(saved, name=known)
    keep = name is not None or identity != "unpinned" or read.form in TRACE_FORMS
    if keep:
        _store(saved, replace)
    statistics = summarise(read.lengths)
    differences = tuple(compare(statistics))
    return ImportReport(
        file=str(path),
        form=read.form,
        identity=identity,
        name=saved.name if keep else None,
        workload_ids=saved_ids(saved) if keep else (),
        statistics=statistics,
        sorted_sha256=sorted_sha256(read.lengths),
        differences=differences,
        in_file_order=_in_file_order(saved),
        dropped_by_length_filter=read.dropped,
        explanation=_explain(identity, read, differences),
    )


def _default_name(path: Path) -> str:
    slug = re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("-._")
    return slug[:64] or "imported"


def _store(saved: SavedLengths, replace: bool) -> None:
    name = store.check_name(saved.name)
    if name in registry.families():
        raise WorkloadError(f"{name!r} is a built-in workload: choose another --name")
    if saved.identity == "surrogate" and "surrogate" not in name:
        raise WorkloadError(
            f"{name!r} would hide that these lengths are the surrogate: put the word in --name"
        )
    held = None if replace else _held(name)
    if held is not None and saved.identity != "unpinned" and held.identity == saved.identity:
        # The same distribution in two orders: the file's own order is worth more, keep that.
        if _in_file_order(held):
            return
    elif held is not None and held.lengths != saved.lengths:
        raise WorkloadError(
            f"the name {name!r} already holds other lengths (from {held.source}): choose another "
            "--name, or pass --replace"
        )
    store.save(saved)


def _in_file_order(saved: SavedLengths) -> bool:
    return ordered_sha256(saved.lengths) == pins.LENGTHS_IN_FILE_ORDER_SHA256


def _held(name: str) -> SavedLengths | None:
    try:
        return store.load(name)
    except MissingInputError:
        return None


def _explain(identity: Identity, read: readers.LengthList, differences: tuple[str, ...]) -> str:
    if identity == "pinned":
        return "the pinned ShareGPT-derived distribution: every statistic, bucket and hash agrees"
    if identity == "surrogate":
        return (
            "the surrogate of the ShareGPT-derived lengths: built from published statistics alone"
        )
    if read.form in TRACE_FORMS:
        return f"{len(read.lengths):,} requests of a trace in {read.form} format"
    if differences:
        return "not the pinned distribution: " + "; ".join(differences)
    return (
        "not the pinned distribution: every published statistic agrees, but the SHA-256 of the "
        "sorted lengths does not, so at least one length differs"
    )
