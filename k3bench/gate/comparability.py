"""Which rows of two sides may be compared at all, and what differs between those that may not."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3bench.gate.exact import changed_versions
from k3bench.gate.select import Row
from manifests import diff

LoadManifest = Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Unlike:
    """One field in which two sides differ although timings depend on it."""

    field: str
    base: str
    head: str
    allowed: bool


@dataclass(frozen=True)
class Pairing:
    """The rows of a point to compare, and what differs; empty sides where that is refused."""

    base: Sequence[Row]
    head: Sequence[Row]
    unlike: tuple[Unlike, ...]

    @property
    def refused(self) -> bool:
        """Whether a difference that nobody allowed stands in the way."""
        return any(not difference.allowed for difference in self.unlike)


class Pairer:
    """Pairs the rows of a point by environment; looks at every pair of manifests once."""

    def __init__(self, load: LoadManifest, allowed: Collection[str]) -> None:
        self._load = load
        self._allowed = allowed
        self._seen: dict[tuple[str, str], tuple[Unlike, ...]] = {}

    def pair(self, kind: str, base: Sequence[Row], head: Sequence[Row]) -> Pairing:
        """Rows made in environments that both sides have; else all rows, and the differences.

        Compiled and modelled figures do not depend on the machine that the compiler ran on, but on
        the versions that the figures themselves carry.
        """
        if kind == "measured":
            common = {row.fingerprint for row in base} & {row.fingerprint for row in head}
            if common:
                base = [row for row in base if row.fingerprint in common]
                head = [row for row in head if row.fingerprint in common]
                environment: tuple[Unlike, ...] = ()
            else:
                environment = self._environment(base[-1], head[-1])
        else:
            # Figures do not vary from run to run: the newest stand for the commit.
            base, head = base[-1:], head[-1:]
            environment = self._versions(base[-1], head[-1])
        return Pairing(base, head, (*environment, *self._work(base[-1], head[-1])))

    def _environment(self, base: Row, head: Row) -> tuple[Unlike, ...]:
        if base.manifest_id is None or head.manifest_id is None:
            return (self._unlike("manifest", base.manifest_id, head.manifest_id),)
        key = (base.manifest_id, head.manifest_id)
        if key not in self._seen:
            found = diff(self._load(key[0]), self._load(key[1]))
            self._seen[key] = tuple(
                self._unlike(difference.path, difference.a, difference.b)
                for difference in found
                if not difference.comparable
            )
        return self._seen[key]

    def _versions(self, base: Row, head: Row) -> tuple[Unlike, ...]:
        changed = changed_versions(base.figures, head.figures)
        return tuple(self._unlike(name, *values) for name, values in changed.items())

    def _work(self, base: Row, head: Row) -> tuple[Unlike, ...]:
        """What was measured: the lengths, and by which clock."""
        found = []
        if base.workload != head.workload:
            names = [f"{row.workload[0]} {row.workload[1][:12]}" for row in (base, head)]
            found.append(self._unlike("workload", *names))
        if base.clock != head.clock and base.clock and head.clock:
            found.append(self._unlike("clock", base.clock, head.clock))
        return tuple(found)

    def _unlike(self, field: str, base: object, head: object) -> Unlike:
        allowed = any(names(field, name) for name in self._allowed)
        return Unlike(field, str(base), str(head), allowed)


def names(field: str, name: str) -> bool:
    """Whether ``--allow-difference name`` means ``field``.

    By the whole path, by its last parts (``distributions.jax``), by a part of it (``jax``, ``cpu``:
    everything below), or by a library's name with _version behind it.
    """
    parts = field.replace("[", ".").replace("]", "").split(".")
    wanted = name.split(".")
    if field == name or parts[-len(wanted) :] == wanted or name in parts:
        return True
    return name.endswith("_version") and name.removesuffix("_version") in parts
