"""The sizes of MLA and of a split-KV launch, as pure functions of integers."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from mla_rocm.errors import MlaArgumentError

# Keys that one stage-1 iteration reads. Split lengths are whole multiples of it, so that only a
# sequence's last split has a ragged tail.
SPLIT_TILE = 32

# MI355X in SPX mode: 8 XCDs of 32 compute units. A CPX partition is one XCD: 32.
MI355X_COMPUTE_UNITS = 256
CPX_COMPUTE_UNITS = 32

# Stage-1 workgroups that one compute unit holds at once (VGPRs and LDS of a 576-wide tile).
# Published batch-24 timings at 68K jump between 504 and 528 workgroups: the limit is 2 x 256.
WORKGROUPS_PER_COMPUTE_UNIT = 2

# Query heads that share one stage-1 workgroup: the M of the smallest bf16 MFMA tile.
HEADS_PER_WORKGROUP = 16

# Keys that stage 1 could read in the time stage 2 spends on one more split: 0.27 us a split
# against 4,864 cycles at 2.4 GHz for 32 keys (2.03 us), both published for MI355X.
MERGE_KEYS_PER_SPLIT = 4

# A full device at batch 1: more splits than resident workgroups never help.
MAX_KV_SPLITS = 512


@dataclass(frozen=True)
class MlaGeometry:
    """Head counts and widths of one MLA layer on one device.

    The defaults are Kimi K3 under TP8: 12 local heads over a latent of 512 and one shared rotary
    key of 64.

    Attributes:
        heads: local query heads.
        latent: width of the compressed key/value vector that the cache keeps.
        rope: width of the rotary key, shared by all heads, which the cache keeps beside it.
        nope: per-head width of the decompressed key without its rotary part.
        v_head_dim: per-head width of the decompressed value.
    """

    heads: int = 12
    latent: int = 512
    rope: int = 64
    nope: int = 128
    v_head_dim: int = 128

    def __post_init__(self) -> None:
        for name in ("heads", "latent", "rope", "nope", "v_head_dim"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise MlaArgumentError(
                    f"geometry.{name} is {value!r}: give an integer of 1 or more"
                )

    @property
    def scale(self) -> float:
        """What scores are multiplied by: (nope + rope)^-0.5, in the absorbed form too.

        Absorbing the up-projection into the query changes the width of the dot product (576), not
        its value, so the factor stays that of the decompressed key (192^-0.5).
        """
        return float((self.nope + self.rope) ** -0.5)

    @property
    def absorbed_qk_dim(self) -> int:
        """Width of absorbed queries and of a cache row: latent + rope (576)."""
        return self.latent + self.rope

    @property
    def absorbed_v_dim(self) -> int:
        """Width of the value in the absorbed form: the latent itself (512)."""
        return self.latent

    @property
    def decompressed_qk_dim(self) -> int:
        """Per-head width of decompressed queries and keys: nope + rope (192)."""
        return self.nope + self.rope

    @property
    def decompressed_v_dim(self) -> int:
        """Per-head width of decompressed values (128)."""
        return self.v_head_dim

    def cache_bytes_per_token(self, itemsize: int = 2) -> int:
        """Bytes that one token adds to one layer's cache: 1,152 in bf16."""
        return self.absorbed_qk_dim * itemsize


def ceil_div(numerator: int, denominator: int) -> int:
    """The smallest integer that is not below ``numerator / denominator``; both non-negative."""
    return -(-numerator // denominator)


def split_length(context: int, num_kv_splits: int) -> int:
    """Keys per split: ``ceil(ceil(context / splits) / 32) * 32``; 0 for an empty context."""
    return ceil_div(ceil_div(context, num_kv_splits), SPLIT_TILE) * SPLIT_TILE


def split_bounds(context: int, num_kv_splits: int) -> tuple[tuple[int, int], ...]:
    """Start and end of each split that holds a key, in order.

    Rounding the length up to whole tiles can leave the last splits past the end of the context:
    those are absent here, and a kernel never writes their partial results.
    """
    if context == 0:
        return ()
    length = split_length(context, num_kv_splits)
    return tuple((start, min(start + length, context)) for start in range(0, context, length))


def resident_workgroups(compute_units: int) -> int:
    """Stage-1 workgroups that run at the same time: 512 on a whole MI355X, 64 in CPX mode."""
    return compute_units * WORKGROUPS_PER_COMPUTE_UNIT


def stage1_workgroups(batch: int, heads: int, num_kv_splits: int) -> int:
    """Workgroups of one stage-1 launch: batch x blocks of 16 heads x splits."""
    return batch * ceil_div(heads, HEADS_PER_WORKGROUP) * num_kv_splits


def stage1_rounds(batch: int, heads: int, num_kv_splits: int, compute_units: int) -> int:
    """Times the device is filled before the last stage-1 workgroup has run."""
    launched = stage1_workgroups(batch, heads, num_kv_splits)
    return ceil_div(launched, resident_workgroups(compute_units))


def choose_num_kv_splits(
    context_lengths: Sequence[int],
    heads: int,
    *,
    compute_units: int = MI355X_COMPUTE_UNITS,
    max_kv_splits: int = MAX_KV_SPLITS,
) -> int:
    """The number of KV splits for one decode launch.

    Minimises a count of keys read one after the other: rounds of resident workgroups, each as long
    as the longest sequence's split, plus what stage 2 pays per split. A split count that starts a
    new, almost empty round (22 at batch 24) costs a whole round, so the count stops just short of
    it (21). The smaller of two equal counts wins.

    Args:
        context_lengths: cached tokens of each sequence; the longest decides.
        heads: local query heads.
        compute_units: of the device or partition (256, or 32 in CPX mode).
        max_kv_splits: upper bound of the answer.

    Raises:
        MlaArgumentError: if a bound is below 1.
    """
    if min(heads, compute_units, max_kv_splits) < 1:
        raise MlaArgumentError(
            f"heads {heads}, compute_units {compute_units}, max_kv_splits {max_kv_splits}: "
            "give 1 or more of each"
        )
    longest = max(context_lengths, default=0)
    if longest == 0:
        return 1
    batch = len(context_lengths)

    def serial_keys(splits: int) -> tuple[int, int]:
        rounds = stage1_rounds(batch, heads, splits, compute_units)
        return rounds * split_length(longest, splits) + MERGE_KEYS_PER_SPLIT * splits, splits

    candidates = range(1, min(max_kv_splits, ceil_div(longest, SPLIT_TILE)) + 1)
    return min(candidates, key=serial_keys)


def row_major_offset(indices: Sequence[int], shape: Sequence[int]) -> int:
    """Element offset of ``indices`` in a row-major buffer of ``shape``, in unbounded integers.

    Raises:
        MlaArgumentError: if an index lies outside its dimension.
    """
    offset = 0
    for index, size in zip(indices, shape, strict=True):
        if not 0 <= index < size:
            raise MlaArgumentError(f"index {index} outside a dimension of {size}: keep 0 <= i < n")
        offset = offset * size + index
    return offset


def needs_int64_offsets(shape: Sequence[int]) -> bool:
    """Whether the last element's offset in a row-major buffer of ``shape`` overflows int32.

    Stage 1's partial outputs [batch, heads, splits, latent] do at batch 128, 128 heads and 512
    splits of 512; a cache [slots, 576] does from 3,728,271 slots on. A kernel that multiplies in
    int32 there reads and writes before the buffer.
    """
    *_, elements = itertools.accumulate(shape, lambda product, size: product * size)
    return bool(elements - 1 > 2**31 - 1)
