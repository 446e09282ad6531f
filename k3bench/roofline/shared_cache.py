"""YOCO: a self-decoder makes one key/value cache that all cross-decoder layers read.

The upper half of the layers keeps no cache of its own: L_c T b bytes become T b. What is read is
not less, each layer still visits the rows; and only the last token of a prompt needs the upper
half at all, since nothing later reads its other rows.
"""

from dataclasses import dataclass

from k3bench.roofline.cost import Cost, require_counts
from k3bench.roofline.dense import Dense
from k3bench.roofline.step import Step


@dataclass(frozen=True)
class SharedCache:
    """The cross-decoder half.

    Attributes:
        attention: of each layer, over the shared cache.
        layers: L_c, that share it.
    """

    attention: Dense
    layers: int

    def __post_init__(self) -> None:
        require_counts(self, layers=self.layers)

    @property
    def cache_bytes_per_token(self) -> int:
        """b, once for all layers."""
        return self.attention.cache_bytes_per_token

    def state_bytes(self, context: int) -> int:
        """T b of one request, over all layers together."""
        return self.attention.state_bytes(context)

    def separate_state_bytes(self, context: int) -> int:
        """L_c T b: what as many layers with caches of their own would keep."""
        return self.layers * self.state_bytes(context)

    def attend(self, step: Step, early_exit: bool = True) -> Cost:
        """All layers of one call; rows are written once.

        Args:
            step: the call.
            early_exit: a prefill runs these layers for the last token alone.
        """
        last = Step.decode(step.context, step.batch) if early_exit else step
        one = self.attention.attend(last)
        read = one.times(self.layers)
        rows = step.tokens * self.cache_bytes_per_token
        return Cost(
            read.gemms,
            read.vector_flops,
            read.scores,
            read.read,
            {**read.written, "cache": rows},
        )
