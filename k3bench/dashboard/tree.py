"""Writing a tree of pages: built aside, put in place at once, so that no reader sees half of it."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from k3bench.dashboard.errors import DashboardError

# Says that a directory is ours to replace; the page files themselves prove nothing.
MARKER = ".k3bench-dashboard"


class Tree:
    """A directory in the making."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, name: str, content: str) -> None:
        """One file of text, by its path in the tree."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="\n")

    def data(self, name: str, value: Any) -> None:
        """One data file: a script that hands a JSON text to the page under ``name``.

        A script, because pages opened from a disk may load scripts but not fetch files; the JSON
        travels as a string literal and is parsed, never executed. ASCII only: no encoding and no
        separator (U+2028) can break the literal.
        """
        document = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        literal = document.replace("\\", "\\\\").replace("'", "\\'")
        self.text(f"data/{name}.js", f"k3data({json.dumps(name)},'{literal}');\n")


@contextmanager
def replaced_tree(target: Path) -> Iterator[Tree]:
    """A new tree that takes ``target``'s place when the block ends, and vanishes if it fails.

    Raises DashboardError where ``target`` is something that this function never made.
    """
    if target.exists() and not (target / MARKER).is_file() and any(_entries(target)):
        raise DashboardError(
            f"{target} holds files that are not a dashboard's: name an empty or a new directory"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    except OSError as error:
        raise DashboardError(
            f"{target} cannot be written ({error.strerror}): name another"
        ) from error
    try:
        (making / MARKER).touch()
        yield Tree(making)
        # mkdtemp makes a private directory; a web server is another user.
        making.chmod(0o777 & ~_umask())
        _swap(making, target)
    except OSError as error:
        raise DashboardError(f"{target}: {error.strerror}: nothing was replaced") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _swap(making: Path, target: Path) -> None:
    """Rename over an old tree. Between two renames a reader may find nothing, never a mixture."""
    if not target.exists():
        making.rename(target)
        return
    old = making.with_name(making.name + ".old")
    target.rename(old)
    making.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _entries(target: Path) -> Iterator[Path]:
    if not target.is_dir():
        raise DashboardError(f"{target} is a file: name a directory")
    return target.iterdir()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
