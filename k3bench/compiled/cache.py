"""Remembers results by content, one small JSON file each; what a room's source is."""

import functools
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from k3bench.compiled.errors import CompiledError, CompiledFormatError
from k3bench.journal import write_durably
from k3bench.paths import project_root

CACHE_VARIABLE = "K3BENCH_CACHE"


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """``$K3BENCH_CACHE``, or ``.k3bench/compiled/`` of the project; a few kB a point."""
    chosen = environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else project_root() / ".k3bench" / "compiled"


def _source_files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*.py")) if "__pycache__" not in path.parts)


@functools.cache
def room_sha256(package: str) -> str:
    """SHA-256 over the names and contents of a package's Python files, nothing imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise CompiledError(f"{package} is not importable: run inside a checkout of the project")
    root = Path(spec.origin).parent
    digest = sha256()
    for path in _source_files(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


class Stored(Protocol):
    """A result that can be kept."""

    @property
    def status(self) -> str:
        """``error`` is not kept."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""


R = TypeVar("R", bound=Stored)


class JsonCache(Generic[R]):
    """One small JSON file a result, written whole or not at all; safe for parallel writers."""

    def __init__(self, directory: Path, load: Callable[[Mapping[str, Any]], R]) -> None:
        self.directory = directory
        self._load = load

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.json"

    def get(self, key: str) -> R | None:
        """The result of a key, None where there is none; a damaged file counts as none."""
        try:
            return self._load(json.loads(self._path(key).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, CompiledFormatError):
            return None

    def put(self, key: str, result: R) -> None:
        """Keeps a result. ``error`` is not kept: what went wrong may pass (memory, a signal)."""
        if result.status == "error":
            return
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, json.dumps(result.to_json(), indent=1) + "\n")
