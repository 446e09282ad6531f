"""Where every token goes: chunk tables and padded packings, as pure functions on the host."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray

from kda_tpu.errors import KdaArgumentError
from kda_tpu.gate import Gate

CHUNK = 64
# Past any token index, so that a filling gather reads nothing. Not T: inputs may have a tail.
NO_TOKEN = np.iinfo(np.int32).max
RAW_GATE_PAD = -1e4

Int32 = NDArray[np.int32]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ChunkTable:
    """One row a chunk, in token order; a sequence of n tokens has ceil(n / chunk) chunks.

    token_start: [C] int32, the chunk's first token on the packed axis;
    valid: [C] int32, its tokens, 1..chunk (only a sequence's last chunk has fewer than chunk);
    sequence: [C] int32, the sequence it belongs to.
    """

    token_start: Int32
    valid: Int32
    sequence: Int32


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PaddedLayout:
    """Every sequence padded to a multiple of the chunk, so chunk c starts at slot c * chunk.

    token_of_slot: [C * chunk] int32, NO_TOKEN at padding; slot_of_token: [T] int32;
    chunks: the table above; first_chunk, chunk_count: [N] int32, by sequence.
    """

    token_of_slot: Int32
    slot_of_token: Int32
    chunks: ChunkTable
    first_chunk: Int32
    chunk_count: Int32


def check_lengths(lengths: Sequence[int]) -> NDArray[np.int64]:
    """The lengths as int64 [N]; KdaArgumentError unless there is one and none is negative."""
    counts = np.asarray(lengths)
    if counts.ndim != 1 or counts.size == 0:
        raise KdaArgumentError(f"lengths has shape {counts.shape}: give one count per sequence")
    if not np.issubdtype(counts.dtype, np.integer):
        raise KdaArgumentError(f"lengths has dtype {counts.dtype}: token counts are integers")
    if counts.min() < 0:
        where = int(np.argmin(counts))
        raise KdaArgumentError(f"lengths[{where}] is {counts[where]}: must be zero or more")
    if counts.sum() >= NO_TOKEN:
        raise KdaArgumentError(f"lengths sum to {counts.sum()}: token indices are int32")
    return counts.astype(np.int64)


def chunk_counts(lengths: Sequence[int], chunk: int = CHUNK) -> NDArray[np.int64]:
    """Chunks of each sequence, [N]; an empty sequence has none."""
    return -(-check_lengths(lengths) // chunk)


def chunk_table(lengths: Sequence[int], chunk: int = CHUNK) -> ChunkTable:
    """The chunks of sequences packed end to end without padding."""
    counts = check_lengths(lengths)
    per_sequence = chunk_counts(lengths, chunk)
    sequence = np.repeat(np.arange(len(counts)), per_sequence)
    first_chunk = np.cumsum(per_sequence) - per_sequence
    offset = (np.arange(len(sequence)) - first_chunk[sequence]) * chunk
    first_token = np.cumsum(counts) - counts
    return ChunkTable(
        token_start=(first_token[sequence] + offset).astype(np.int32),
        valid=np.minimum(chunk, counts[sequence] - offset).astype(np.int32),
        sequence=sequence.astype(np.int32),
    )


def padded_layout(lengths: Sequence[int], chunk: int = CHUNK) -> PaddedLayout:
    """The packing with every sequence padded to whole chunks, and the way there and back."""
    chunks = chunk_table(lengths, chunk)
    rows = np.arange(chunk, dtype=np.int64)[None, :]
    is_token = rows < chunks.valid[:, None]
    token = np.where(is_token, chunks.token_start[:, None] + rows, NO_TOKEN)
    per_sequence = chunk_counts(lengths, chunk)
    return PaddedLayout(
        token_of_slot=token.reshape(-1).astype(np.int32),
        slot_of_token=np.flatnonzero(is_token.reshape(-1)).astype(np.int32),
        chunks=chunks,
        first_chunk=(np.cumsum(per_sequence) - per_sequence).astype(np.int32),
        chunk_count=per_sequence.astype(np.int32),
    )


def sequence_of_token(lengths: Sequence[int]) -> Int32:
    """The sequence of every packed token, [T] int32."""
    counts = check_lengths(lengths)
    return np.repeat(np.arange(len(counts)), counts).astype(np.int32)


def gate_pad(gate: Gate) -> float:
    """What ``g`` holds at padding: a value whose log decay is 0, so that padding decays nothing.

    Raw g: -1e4, because 0 is not neutral there (softplus(0 + bias) > 0). Where exp(A_log) is so
    small that even -1e4 does not saturate the sigmoid, only a mask after the activation is safe:
    kernels mask as well. Activated g: 0.
    """
    return RAW_GATE_PAD if gate.is_raw else 0.0
