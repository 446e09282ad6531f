"""The table of implementations. A new kernel is one file and one line here."""

from kda_tpu import chunked_xla, dyadic, original, recurrent_xla
from kda_tpu.interface import Implementation
from kda_tpu.ladder.rungs import LADDER

# The yardsticks in plain XLA first, then the ladder, baseline first, then what is
# faster than its end. ``auto`` starts at the end.
IMPLEMENTATIONS: dict[str, Implementation] = {
    implementation.name: implementation
    for implementation in (
        recurrent_xla.IMPLEMENTATION,
        chunked_xla.IMPLEMENTATION,
        original.IMPLEMENTATION,
        *LADDER.values(),
        dyadic.IMPLEMENTATION,
    )
}
