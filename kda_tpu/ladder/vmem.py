"""What head_block keeps in VMEM, in bytes, against what a TPU v6e kernel may have.

The compiler has the last word, but only after compiling; the choice between head_block and a
fallback is made while binding, so it rests on this estimate of what the stage-major order keeps
alive: 13.2, 19.7 and 31.5 MB at 16, 24 and 48 heads, where jax 0.10.2 takes 12.8, 19.3 and 31.2.
The compiler may find another order: without safe_gate 16 heads want 47 MB by the estimate, and it
compiled them all the same, by making and using up the decays vector by vector. That is luck with
a schedule, which a kernel should not rest on.
"""

from dataclasses import dataclass

# The default scope of a kernel on v6e.
SCOPED_VMEM_BYTES = 32 * 2**20
_LANES = 128
# Past this, compile time grows faster than what it gains.
_MAX_INTERLEAVED = 24


def _lanes(width: int) -> int:
    return -(-width // _LANES) * _LANES


@dataclass(frozen=True)
class HeadBlockVmem:
    """Bytes by purpose.

    windows: inputs and output of a chunk, double-buffered; states: initial and final, double-
    buffered, and the carried one; stages: what the interleaved heads hold between two stages;
    decays: of those, the [BT, BT, K] pairwise decays of the path without safe_gate.
    """

    windows: int
    states: int
    stages: int
    decays: int

    @property
    def total(self) -> int:
        return self.windows + self.states + self.stages + self.decays

    @property
    def fits(self) -> bool:
        return self.total <= SCOPED_VMEM_BYTES


@dataclass(frozen=True)
class HeadBlockShape:
    """What the estimate depends on, besides the dtype."""

    heads: int
    head_dim_k: int
    head_dim_v: int
    chunk: int
    safe_gate: bool

    @property
    def interleaved_heads(self) -> int:
        """How many heads' stages interleave: all up to 24, else the largest even part of them.

        At 16 heads, chunks of 64: 4 at a time 16.6 k cycles a chunk, 8: 11.3 k, 16: 9.0 k.
        """
        parts = range(min(self.heads, _MAX_INTERLEAVED), 0, -1)
        return next((n for n in parts if n % 2 == 0 and self.heads % n == 0), 1)


def head_block_vmem(shape: HeadBlockShape, itemsize: int) -> HeadBlockVmem:
    """The estimate; itemsize: bytes of an element of q, k, v and g."""
    heads, chunk, interleaved = shape.heads, shape.chunk, shape.interleaved_heads
    K, V = _lanes(shape.head_dim_k), _lanes(shape.head_dim_v)
    per_token = heads * (3 * K + 2 * V) * itemsize + _lanes(heads) * 4
    # At its widest a head holds the two row and two column factors, or, a stage later, k_rest,
    # the [2 BT, K] and the two [BT, BT] arrays of a Prepared with their fp32 originals.
    per_head = 4 * chunk * (4 * K + 2 * K + V + 3 * _lanes(chunk))
    return HeadBlockVmem(
        windows=2 * chunk * per_token,
        states=5 * heads * K * V * 4,
        stages=interleaved * per_head,
        decays=0 if shape.safe_gate else interleaved * chunk * chunk * K * 4,
    )
