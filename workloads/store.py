"""Where imported and built length lists live on this machine, and how a file is written whole.

One directory: ``$K3BENCH_CACHE``, or ``.k3bench`` in the project (in the working directory when
the package is installed without its project). Nothing here is under version control.
"""

import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workloads.errors import MalformedInputError, MissingInputError, PinMismatchError, WorkloadError
from workloads.identity import Identity, ordered_sha256, recognise

FORMAT = "k3bench-lengths-1"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class SavedLengths:
    """An imported or built list of prompt lengths.

    ``lengths`` and ``output_lengths`` (tokens) keep the order of their file; ``output_lengths`` is
    empty where the file gave none. ``form`` is the format it was read from; ``source`` and
    ``source_sha256`` name that file and its bytes.
    """

    name: str
    form: str
    source: str
    source_sha256: str
    lengths: tuple[int, ...]
    output_lengths: tuple[int, ...] = ()

    @cached_property
    def identity(self) -> Identity:
        """Which known distribution the lengths are, told from the lengths and never stored."""
        return recognise(self.lengths)


def cache_directory() -> Path:
    """The directory for everything that is downloaded, imported or built."""
    chosen = os.environ.get("K3BENCH_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    project = Path(__file__).resolve().parents[1]
    if not (project / "pyproject.toml").is_file():
        project = Path.cwd()
    return project / ".k3bench"


def workloads_directory() -> Path:
    """The part of the cache that belongs to workloads."""
    return cache_directory() / "workloads"


def sha256_bytes(content: bytes) -> str:
    """SHA-256 (hex) of bytes in memory."""
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: Path, progress: Callable[[int], None] = lambda done: None) -> str:
    """SHA-256 (hex) of a file, read in blocks; ``progress`` gets the bytes read so far."""
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            progress(done)
    return digest.hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader (or a crash) finds the old content or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_name(name: str) -> str:
    """A name that can be both a file and the first part of a workload id."""
    if not _NAME.fullmatch(name):
        raise WorkloadError(
            f"workload name {name!r} is not usable: up to 64 of a-z, 0-9, '.', '_', '-', "
            "starting with a letter or digit"
        )
    return name


def saved_path(name: str) -> Path:
    """Where a saved list of this name lies."""
    return workloads_directory() / "lengths" / f"{check_name(name)}.json"


def saved_names() -> list[str]:
    """Names of all saved lists, sorted."""
    return sorted(
        path.stem
        for path in (workloads_directory() / "lengths").glob("*.json")
        if _NAME.fullmatch(path.stem)
    )


def save(saved: SavedLengths) -> Path:
    """Write a list to the cache, whole or not at all; returns where it lies."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": saved.name,
        "form": saved.form,
        "source": saved.source,
        "source_sha256": saved.source_sha256,
        "lengths_sha256": _content_sha256(saved.lengths, saved.output_lengths),
        "lengths": list(saved.lengths),
        "output_lengths": list(saved.output_lengths),
    }
    path = saved_path(saved.name)
    write_atomically(path, json.dumps(document).encode("ascii") + b"\n")
    return path


def load(name: str) -> SavedLengths:
    """Read a saved list back, its lengths checked against the hash stored with them."""
    path = saved_path(name)
    mend = f"import it again: k3bench workloads import FILE --name {name} --replace"
    try:
        document = json.loads(path.read_bytes())
        saved = SavedLengths(
            name=document["name"],
            form=document["form"],
            source=document["source"],
            source_sha256=document["source_sha256"],
            lengths=tuple(document["lengths"]),
            output_lengths=tuple(document["output_lengths"]),
        )
        expected = document["lengths_sha256"]
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}, expected {FORMAT!r}")
    except FileNotFoundError:
        raise MissingInputError(f"no imported list is named {name!r}; {mend}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedInputError(f"{path} is damaged ({error!r}); {mend}") from error
    if saved.name != name or _content_sha256(saved.lengths, saved.output_lengths) != expected:
        raise PinMismatchError(f"{path} has changed since it was imported; {mend}")
    return saved


def _content_sha256(lengths: Sequence[int], output_lengths: Sequence[int]) -> str:
    return ordered_sha256([*lengths, -1, *output_lengths])
