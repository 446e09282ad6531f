"""How our Triton decode is cut up: tiles, warps and split count, as pure functions of integers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import (
    HEADS_PER_WORKGROUP,
    MAX_KV_SPLITS,
    MI355X_COMPUTE_UNITS,
    MlaGeometry,
    ceil_div,
    split_length,
    stage1_rounds,
    stage1_workgroups,
)

# Keys per stage-1 iteration. Compiled for gfx950 with 4 warps: 32 keys take 236 VGPRs and 36 KB of
# LDS, so two workgroups share a compute unit and 72 KB are in flight; 64 keys take 312 VGPRs, one
# workgroup and the same 72 KB, with nothing to run while it waits; 8 warps spill.
BLOCK_N = 32
STAGE1_WARPS = 4
# One tile in registers on its way to LDS while the one before is multiplied. A third stage would
# need a second LDS buffer and bring no more bytes in flight.
STAGE1_STAGES = 2

# Elements of one stage-2 tile: 32 floats a thread of 4 warps, all loaded at once.
STAGE2_TILE = 8192
STAGE2_WARPS = 4
# Columns of a stage-2 tile: 128 bytes at least, a memory line.
STAGE2_LEAST_COLUMNS = 32

# The figures the split count is chosen with, for MI355X. Achievable bandwidth; one iteration of a
# stage-1 workgroup that has the device to itself (2,956 cycles at 2.4 GHz, as published for a
# paged 32-key tile); and one dependent memory access, of which a workgroup's start has three
# (length, page, keys).
BANDWIDTH_BYTES_PER_S = 6.8e12
ITERATION_S = 1.23e-6
ROUND_TRIP_S = 0.475e-6
PROLOGUE_ROUND_TRIPS = 3

# Splits of every sequence in batch-invariant mode. Enough to fill half a device at batch 1; a
# sequence's arithmetic then depends on its own length alone.
BATCH_INVARIANT_SPLITS = 128


@dataclass(frozen=True)
class DecodePlan:
    """One decode launch.

    Attributes:
        num_kv_splits: splits that each context is cut into; short contexts write fewer.
        block_h: query heads of a stage-1 workgroup.
        block_n: keys of a stage-1 iteration; split lengths are multiples of it.
        block_s: splits that stage 2 reduces at once, a power of two.
        block_d: columns of a stage-2 workgroup, a power of two.
    """

    num_kv_splits: int
    block_h: int
    block_n: int
    block_s: int
    block_d: int


def plan_decode(
    context_lengths: Sequence[int],
    geometry: MlaGeometry,
    *,
    num_kv_splits: int | None = None,
    compute_units: int = MI355X_COMPUTE_UNITS,
    batch_invariant: bool = False,
) -> DecodePlan:
    """The launch for a batch of contexts.

    Args:
        context_lengths: cached tokens of each sequence.
        geometry: head count and widths.
        num_kv_splits: given splits, or None to choose.
        compute_units: of the device or partition (256, or 32 in CPX mode).
        batch_invariant: choose without looking at the batch: a sequence's result is then the same
            bits alone and in any company.

    Raises:
        MlaArgumentError: if a count is below 1.
    """
    for name, value in (("num_kv_splits", num_kv_splits), ("compute_units", compute_units)):
        if value is not None and value < 1:
            raise MlaArgumentError(f"{name} is {value}: give 1 or more")
    if num_kv_splits is None:
        if batch_invariant:
            num_kv_splits = BATCH_INVARIANT_SPLITS
        else:
            num_kv_splits = choose_splits(
                max(context_lengths, default=0), len(context_lengths), geometry.heads, compute_units
            )
    block_s = power_of_two(min(num_kv_splits, MAX_KV_SPLITS))
    widest = power_of_two(geometry.latent)
    block_d = min(widest, max(STAGE2_LEAST_COLUMNS, STAGE2_TILE // block_s))
    return DecodePlan(num_kv_splits, HEADS_PER_WORKGROUP, BLOCK_N, block_s, block_d)


def choose_splits(
    longest: int, batch: int, heads: int, compute_units: int = MI355X_COMPUTE_UNITS
) -> int:
    """The split count with the least estimated time; the smaller of two equal ones.

    A larger count fills the device and shortens each split, until another round of workgroups
    starts or stage 2's traffic outweighs it.
    """
    candidates = range(1, min(MAX_KV_SPLITS, ceil_div(longest, BLOCK_N)) + 1)
    return min(
        candidates,
        key=lambda splits: (estimated_s(longest, batch, heads, splits, compute_units), splits),
        default=1,
    )


def estimated_s(
    longest: int, batch: int, heads: int, num_kv_splits: int, compute_units: int
) -> float:
    """Estimated seconds of both stages, launches apart; only the order of the values is used.

    Each iteration takes its own latency or the resident workgroups' share of the bandwidth,
    whichever is longer; near the crossing both count (root of the sum of squares).
    """
    geometry = MlaGeometry(heads=heads)
    rounds = stage1_rounds(batch, heads, num_kv_splits, compute_units)
    per_round = ceil_div(stage1_workgroups(batch, heads, num_kv_splits), rounds)
    tile_bytes = BLOCK_N * geometry.cache_bytes_per_token()
    bandwidth = BANDWIDTH_BYTES_PER_S * compute_units / MI355X_COMPUTE_UNITS
    iteration = math.hypot(ITERATION_S, per_round * tile_bytes / bandwidth)
    iterations = ceil_div(split_length(longest, num_kv_splits), BLOCK_N)
    stage1 = rounds * (PROLOGUE_ROUND_TRIPS * ROUND_TRIP_S + iterations * iteration)
    partial_bytes = batch * heads * num_kv_splits * geometry.latent * 4
    return stage1 + 2 * partial_bytes / bandwidth


def power_of_two(value: int) -> int:
    """The smallest power of two that is not below ``value``, 1 or more."""
    return 1 << max(0, value - 1).bit_length()
