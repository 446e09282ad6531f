"""What a factory hands to the compiling process: a function, its arguments, its known tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class UnsupportedError(ValueError):
    """The implementation does not take this point; the message is its reason."""


@dataclass(frozen=True)
class Built:
    """A function ready to be lowered.

    Attributes:
        function: for jax.jit.
        arguments: positional arguments: pytrees of anything with a shape and a dtype.
        tables: values of integer arguments that steer the kernels (chunk tables), flattened, by
            the number of the argument's leaf.
        padded_tokens: tokens executed, padding included; None where that means nothing.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    tables: Mapping[int, Sequence[int]] = field(default_factory=dict)
    padded_tokens: int | None = None
