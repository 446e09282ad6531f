"""Deriving every pinned artefact again and saying, one by one, whether it came out as pinned."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from workloads import building, download, draws, pins, registry, store, surrogate, tokenizer
from workloads.committed import committed_bytes
from workloads.errors import PinMismatchError, WorkloadError
from workloads.model import sha256_json
from workloads.pins import FilePin
from workloads.statistics import compare, summarise

Status = Literal["ok", "failed", "absent"]


@dataclass(frozen=True)
class Check:
    """One thing that was checked; ``absent`` means it could not be, and is no failure."""

    name: str
    status: Status
    detail: str


def verify(progress: download.Progress = download.no_progress) -> tuple[Check, ...]:
    """Check all that this machine has; raises nothing for a failed check, only reports it."""
    return tuple(_checks(progress))


def family_sha256(name: str) -> str:
    """SHA-256 over the ids and hashes of a built-in family's workloads, in order."""
    return sha256_json([[w.id, w.sha256] for w in registry.family_workloads(name)])


def _checks(progress: download.Progress) -> Iterator[Check]:
    for name in registry.families():
        yield _run(f"workloads {name}", partial(_family, name))
    for name in pins.DATA_FILE_SHA256:
        yield _run(f"data file {name}", partial(_data_file, name))
    yield _run("surrogate statistics", _surrogate_statistics)
    yield _run("surrogate built anew", _surrogate_anew)
    yield _run("ShareGPT-derived lists drawn anew", _real_anew)
    yield _run("tokenizer split pattern", _pattern)
    yield _run(f"tokenizer file {pins.TOKENIZER.filename}", partial(_tokenizer, progress))
    yield _run(f"dataset file {pins.DATASET.filename}", partial(_dataset, progress))
    for name in store.saved_names():
        yield _run(f"imported list {name}", partial(_saved, name))


def _run(name: str, check: Callable[[], tuple[Status, str]]) -> Check:
    try:
        status, detail = check()
    except WorkloadError as error:
        status, detail = "failed", str(error)
    return Check(name, status, detail)


def _family(name: str) -> tuple[Status, str]:
    count = len(registry.family_workloads(name))
    found = family_sha256(name)
    pinned = pins.FAMILY_SHA256.get(name)
    if pinned is None:
        raise PinMismatchError(f"no pin yet: add {name!r}: {found!r} to pins.FAMILY_SHA256")
    if found != pinned:
        raise PinMismatchError(
            f"SHA-256 of the {count} workloads is {found}, pinned {pinned}: changed lengths are "
            "another workload and want another name"
        )
    return "ok", f"{count} workloads, SHA-256 {found[:12]} as pinned"


def _data_file(name: str) -> tuple[Status, str]:
    content = committed_bytes(name)
    return "ok", f"{len(content):,} bytes, SHA-256 {pins.DATA_FILE_SHA256[name][:12]} as pinned"


def _surrogate_statistics() -> tuple[Status, str]:
    lengths = surrogate.load_committed()
    differences = compare(summarise(lengths))
    if differences:
        raise PinMismatchError("; ".join(differences))
    return "ok", f"{len(lengths):,} lengths meet every published statistic and bucket"


def _surrogate_anew() -> tuple[Status, str]:
    files = building.surrogate_files()
    for name, content in files.items():
        if content != committed_bytes(name):
            raise PinMismatchError(f"{name} comes out differently from the committed file")
    return "ok", f"{len(files)} files are byte-identical to the committed ones"


def _real_anew() -> tuple[Status, str]:
    saved = building.imported_in_file_order()
    if saved is None:
        return "absent", (
            "no list of the real lengths in file order on this machine: "
            "k3bench workloads build, or import FILE"
        )
    if building.real_files(saved.lengths)[draws.REAL_FILE] != committed_bytes(draws.REAL_FILE):
        raise PinMismatchError(f"{draws.REAL_FILE} comes out differently from the committed file")
    return "ok", f"byte-identical to the committed file, from {saved.name!r}"


def _pattern() -> tuple[Status, str]:
    tokenizer.split_pattern()
    return "ok", f"SHA-256 {pins.SPLIT_PATTERN_SHA256[:12]} as pinned"


def _tokenizer(progress: download.Progress) -> tuple[Status, str]:
    path = download.cached(pins.TOKENIZER)
    if path is None:
        return _absent(pins.TOKENIZER)
    download.check_file(path, pins.TOKENIZER, progress)
    vocabulary = tokenizer.load(path).encoding.n_vocab
    if vocabulary != tokenizer.VOCABULARY:
        raise PinMismatchError(f"{vocabulary:,} tokens, pinned {tokenizer.VOCABULARY:,}")
    return "ok", f"size and SHA-256 as pinned, {vocabulary:,} tokens"


def _dataset(progress: download.Progress) -> tuple[Status, str]:
    path = download.cached(pins.DATASET)
    if path is None:
        return _absent(pins.DATASET)
    download.check_file(path, pins.DATASET, progress)
    return "ok", "size and SHA-256 as pinned"


def _absent(pin: FilePin) -> tuple[Status, str]:
    return "absent", f"{pin.repo_id} is not in the hub cache: k3bench workloads build fetches it"


def _saved(name: str) -> tuple[Status, str]:
    saved = store.load(name)
    return "ok", f"{len(saved.lengths):,} lengths, {saved.identity}, unchanged since the import"
