"""Layers of several forms in a fixed order, and what a request keeps over all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from k3bench.roofline.cost import Cost
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.step import Step


class Attention(Protocol):
    """What every form of attention answers, of one layer on one device."""

    @property
    def cache_bytes_per_token(self) -> int: ...

    def state_bytes(self, context: int) -> int: ...

    def shard(self, devices: int) -> "Attention": ...

    def attend(self, step: Step) -> Cost: ...

    def project(self, step: Step, hidden: int) -> Cost: ...


class Stateful(Protocol):
    """What one layer keeps of one request."""

    def state_bytes(self, context: int) -> int: ...


S = TypeVar("S", bound=Stateful)


@dataclass(frozen=True)
class Pattern:
    """The layers of a model in order, by the name of their form.

    ``repeats`` of 23 x (kda, kda, kda, full) and 1 x (full) is Kimi K3.
    """

    layers: tuple[str, ...]

    @classmethod
    def of(cls, *repeats: tuple[int, Iterable[str]]) -> "Pattern":
        """(count, names) after (count, names)."""
        layers = tuple(name for count, names in repeats for name in tuple(names) * count)
        if not layers:
            raise RooflineError("a pattern of no layers: give at least one")
        return cls(layers)

    def count(self, name: str) -> int:
        """Layers of that form."""
        return self.layers.count(name)

    def numbers(self, name: str) -> tuple[int, ...]:
        """Their places, from 1."""
        return tuple(place for place, layer in enumerate(self.layers, 1) if layer == name)


def request_state_bytes(pattern: Pattern, forms: Mapping[str, S], context: int) -> dict[str, int]:
    """What one request keeps at a context, by form, over all its layers."""
    unknown = sorted(set(pattern.layers) - set(forms))
    if unknown:
        raise RooflineError(f"the pattern names {', '.join(unknown)}: give its form")
    return {name: pattern.count(name) * form.state_bytes(context) for name, form in forms.items()}
