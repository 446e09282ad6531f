"""Which tiles a packing is made of: tables on the host, as pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from kda_tpu.dyadic.exponents import STRIP
from kda_tpu.layout import Int32, check_lengths

TILE = 2 * STRIP


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tiles:
    """Tiles of one size, in the order of the grid; a tile holds tokens of one sequence.

    table: [FIELDS * C] int32, field by field, TOKEN_START first: one array, because each that a
    kernel wants before it starts is a copy of its own;
    token_of_row: [C * rows] int32, at padding a token of the same tile (0 where it has none).
    """

    table: Int32
    token_of_row: Int32

    @property
    def count(self) -> int:
        return self.table.shape[0] // FIELDS

    def field(self, field: int) -> Int32:
        """[C] int32, one field of every tile."""
        return self.table[field * self.count : (field + 1) * self.count]


# The fields of a table: a tile's first token, its tokens, whose they are, 1 at a sequence's first
# tile, 1 at its last.
TOKEN_START, VALID, SEQUENCE, STARTS, ENDS = range(5)
FIELDS = 5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Plan:
    """long: tiles of two strips, of sequences longer than one; short: one strip a sequence.

    Sequences without tokens are short ones: their state passes through unchanged. How a sequence
    is cut depends on its own length alone, so its results do not depend on its neighbours.
    """

    long: Tiles
    short: Tiles


def plan(lengths: Sequence[int]) -> Plan:
    """The tiles of sequences packed end to end."""
    counts = check_lengths(lengths)
    is_long = counts > STRIP
    return Plan(_tiles(counts, is_long, TILE), _tiles(counts, ~is_long, STRIP))


def _tiles(counts: np.ndarray, chosen: np.ndarray, rows: int) -> Tiles:
    first_token = np.cumsum(counts) - counts
    per_sequence = np.where(chosen, np.maximum(1, -(-counts // rows)), 0)
    sequence = np.repeat(np.arange(len(counts)), per_sequence)
    index = np.arange(len(sequence)) - (np.cumsum(per_sequence) - per_sequence)[sequence]
    start = first_token[sequence] + index * rows
    valid = np.minimum(rows, counts[sequence] - index * rows)
    row = np.arange(rows)
    token = np.minimum(start[:, None] + row, (start + np.maximum(valid, 1) - 1)[:, None])
    # Of an empty sequence behind all tokens, too, the window begins inside.
    last = max(int(counts.sum()) - 1, 0)
    fields = (
        np.minimum(start, last),
        valid,
        sequence,
        index == 0,
        index == per_sequence[sequence] - 1,
    )
    return Tiles(
        table=np.concatenate(fields).astype(np.int32),
        token_of_row=np.minimum(token, last).reshape(-1).astype(np.int32),
    )
