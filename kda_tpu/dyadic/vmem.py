"""What the kernel keeps in VMEM, in bytes, and what it asks for."""

from dataclasses import dataclass

from kda_tpu.dyadic.exponents import LANES, STRIP
from kda_tpu.ladder.vmem import SCOPED_VMEM_BYTES

# Of the 128 MiB of a v6e core; the rest is the compiler's.
MOST_VMEM_BYTES = 100 * 2**20
# Spilled registers and whatever else the compiler adds: some 200 kB a head at 16 and at 24 heads.
_SPILLS_PER_HEAD = 224 * 1024


@dataclass(frozen=True)
class Shape:
    """What a call is compiled for.

    rows: of a tile, 32 or 64; full: every tile is; in_a_row: its tiles are all tokens in order.
    """

    heads: int
    head_dim_k: int
    head_dim_v: int
    rows: int
    full: bool = False
    in_a_row: bool = False

    @property
    def group(self) -> int:
        """Heads whose L are inverted together."""
        return LANES // self.rows

    @property
    def carries_state(self) -> bool:
        """Whether a sequence may have more tiles than one."""
        return self.rows > STRIP

    @property
    def pairs_at_once(self) -> int:
        """Pairs of heads that begin to be prepared in the same round of stages.

        So that preparing lasts as long as what runs beside it.
        """
        return 1 if self.carries_state else 6

    @property
    def rest_width(self) -> int:
        """Lanes of strips.Prepared.rest."""
        return self.rows * (2 if self.carries_state else 3)


def vmem_bytes(shape: Shape, gate_itemsize: int) -> int:
    """An estimate from above; gate_itemsize: bytes of an element of g (q, k and v have 2)."""
    H, K, V, R = shape.heads, shape.head_dim_k, shape.head_dim_v, shape.rows
    windows = 2 * R * H * (2 * (2 * K + V) + gate_itemsize * K + 2 * V)
    states = H * K * V * 4 * (4 + shape.carries_state)
    prepared = 2 * (R * LANES * 2 + K * 2 * LANES + 4 * R * K * 2 + R * V * 4)
    solve = R * LANES * (4 + 2)
    return windows + states + H * (prepared + solve + _SPILLS_PER_HEAD)


def vmem_limit(shape: Shape, gate_itemsize: int) -> int | None:
    """What to ask for: None where the default scope holds it."""
    needed = vmem_bytes(shape, gate_itemsize)
    return None if needed <= SCOPED_VMEM_BYTES else needed
