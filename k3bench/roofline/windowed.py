"""Sliding windows and StreamingLLM: attention to the last keys, and to the first few."""

from dataclasses import dataclass

from k3bench.roofline.cost import require_counts
from k3bench.roofline.dense import Dense
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.pairs import window_keys, window_pairs
from k3bench.roofline.step import Step


@dataclass(frozen=True)
class Windowed(Dense):
    """A query sees its last ``window`` keys, itself included, and the first ``sinks``.

    ``sinks`` > 0 is StreamingLLM: the sinks keep the softmax's mass where the model learned to put
    it. The cache holds no more than window + sinks rows; older ones are dropped, which no later
    query can undo.
    """

    window: int = 1024
    sinks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(self, window=self.window)
        if self.sinks < 0:
            raise RooflineError(f"sinks is {self.sinks}: give 0 or more")

    def state_bytes(self, context: int) -> int:
        """It stops growing at window + sinks."""
        return min(context, self.window + self.sinks) * self.cache_bytes_per_token

    def pairs(self, step: Step) -> int:
        return window_pairs(step.new_tokens, self.window, step.prefix_tokens, self.sinks)

    def keys(self, step: Step) -> int:
        return window_keys(step.new_tokens, self.window, step.prefix_tokens, self.sinks)
