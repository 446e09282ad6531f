"""Reads the TOML files that state devices and models, every figure with where it comes from."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from k3bench.roofline.errors import RooflineError


def shipped_names(folder: str) -> tuple[str, ...]:
    """Names of the TOML files of ``devices`` or ``models`` beside this file, sorted."""
    found = (entry.name for entry in resources.files("k3bench.roofline").joinpath(folder).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def read_definition(folder: str, name: str) -> tuple[str, dict[str, Any]]:
    """The table of a shipped definition (in any case) or of a path to a ``.toml``, and its label.

    Raises RooflineError naming the shipped ones, or the file and what is wrong with it.
    """
    known = shipped_names(folder)
    try:
        if name.lower() in known:
            path = resources.files("k3bench.roofline").joinpath(folder, f"{name.lower()}.toml")
            return f"{folder}/{name.lower()}.toml", tomllib.loads(path.read_text(encoding="utf-8"))
        if name.endswith(".toml"):
            return name, tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RooflineError(f"{name}: cannot be read: {error}") from None
    raise RooflineError(
        f"{folder.removesuffix('s')} {name!r}: use one of {', '.join(known)}, or a path to a .toml"
    )


@dataclass(frozen=True)
class Table:
    """One table of a definition: typed access, and no key that nobody asked for.

    A misspelt key is refused: it would else be a figure that silently keeps its default.
    """

    where: str
    values: dict[str, Any]

    def text(self, key: str) -> str:
        return str(self._take(key, str))

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._take(key, list)
        if not found or not all(isinstance(value, str) for value in found):
            raise RooflineError(f"{self.where}: {key}: give a list of names")
        return tuple(found)

    def count(self, key: str, default: int | None = None) -> int:
        """An integer of 1 or more."""
        if default is not None and key not in self.values:
            return default
        found = self._take(key, int)
        if isinstance(found, bool) or found < 1:
            raise RooflineError(f"{self.where}: {key} is {found!r}: give an integer of 1 or more")
        return int(found)

    def flag(self, key: str) -> bool:
        """A boolean, false where absent."""
        return bool(self._take(key, bool)) if key in self.values else False

    def table(self, key: str) -> "Table":
        return Table(f"{self.where}: {key}", dict(self._take(key, dict)))

    def tables(self, key: str) -> tuple["Table", ...]:
        found = self._take(key, list)
        if not all(isinstance(value, dict) for value in found):
            raise RooflineError(f"{self.where}: {key}: give [[{key}]] tables")
        return tuple(
            Table(f"{self.where}: {key}[{number}]", dict(value))
            for number, value in enumerate(found)
        )

    def done(self) -> None:
        """Refuses what is left."""
        if self.values:
            raise RooflineError(f"{self.where}: unknown key {', '.join(sorted(self.values))}")

    def _take(self, key: str, kind: type) -> Any:
        if key not in self.values:
            raise RooflineError(f"{self.where}: {key} is missing")
        found = self.values.pop(key)
        if not isinstance(found, kind):
            raise RooflineError(f"{self.where}: {key} is {found!r}: give a {kind.__name__}")
        return found


@dataclass(frozen=True)
class Figure:
    """One number of a data sheet.

    Attributes:
        value: in the unit that its name says.
        source: where it stands, or why it was assumed.
        assumed: whether it was.
    """

    value: float
    source: str
    assumed: bool


def figure(table: Table, key: str) -> Figure:
    """``key = { value = 8.0e12, source = "..." }``, or ``assumed = "why"`` in place of a source."""
    entry = table.table(key)
    value = entry.values.pop("value", None)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise RooflineError(f"{entry.where}: value is {value!r}: give a positive number")
    assumed = "assumed" in entry.values
    source = entry.text("assumed" if assumed else "source")
    entry.done()
    return Figure(float(value), source, assumed)


def figures(table: Table, key: str) -> Mapping[str, Figure]:
    """A table of figures: ``[key.name]`` each."""
    inner = table.table(key)
    return {name: figure(inner, name) for name in list(inner.values)}
