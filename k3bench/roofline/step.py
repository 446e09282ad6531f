"""One call as attention sees it: how many sequences, new tokens, and cached tokens before them."""

from dataclasses import dataclass
from typing import Literal

from k3bench.roofline.errors import RooflineError

Phase = Literal["decode", "prefill", "chunked-prefill"]


@dataclass(frozen=True)
class Step:
    """``batch`` equal sequences, each with ``new_tokens`` after ``prefix_tokens`` cached ones.

    A decode step at context T is one new token after T - 1: its query sees T keys, itself
    included, so T rows of the cache are read.
    """

    new_tokens: int
    prefix_tokens: int = 0
    batch: int = 1

    def __post_init__(self) -> None:
        for name, least in (("new_tokens", 1), ("prefix_tokens", 0), ("batch", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise RooflineError(f"{name} is {value!r}: give an integer of {least} or more")

    @classmethod
    def decode(cls, context: int, batch: int = 1) -> "Step":
        """One token for each sequence, at a context that counts it."""
        if not isinstance(context, int) or context < 1:
            raise RooflineError(f"context is {context!r}: give an integer of 1 or more")
        return cls(1, context - 1, batch)

    @classmethod
    def prefill(cls, tokens: int, batch: int = 1) -> "Step":
        """Whole prompts of ``tokens``."""
        return cls(tokens, 0, batch)

    @classmethod
    def chunk(cls, new_tokens: int, prefix_tokens: int, batch: int = 1) -> "Step":
        """The next chunk of prompts whose first ``prefix_tokens`` are cached."""
        return cls(new_tokens, prefix_tokens, batch)

    @property
    def context(self) -> int:
        """Keys that the last new token sees."""
        return self.prefix_tokens + self.new_tokens

    @property
    def tokens(self) -> int:
        """New tokens over the batch: the rows of every weight product."""
        return self.batch * self.new_tokens


def chunks_of(tokens: int, chunk: int, batch: int = 1) -> tuple[Step, ...]:
    """The steps of equal prompts that are prefilled ``chunk`` tokens at a time."""
    if chunk < 1:
        raise RooflineError(f"chunk is {chunk}: give an integer of 1 or more")
    return tuple(Step.chunk(min(chunk, tokens - start), start) for start in range(0, tokens, chunk))
