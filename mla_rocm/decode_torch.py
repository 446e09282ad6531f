"""Absorbed MLA decode in torch: split-KV with a log-sum-exp merge, and one dense softmax."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mla_rocm.base import Bound, Implementation, Outputs, Partials, Support
from mla_rocm.cases import MlaDecodeCase
from mla_rocm.geometry import (
    MI355X_COMPUTE_UNITS,
    MlaGeometry,
    choose_num_kv_splits,
    split_bounds,
)
from mla_rocm.inputs import MlaDecodeInputs
from mla_rocm.numerics import NEG_INF, bmm_fp32, merge_partials, to_operand
from mla_rocm.paging import slot_indices
from mla_rocm.platforms import torch_support

# Keys gathered at a time in stage 1. On a CPU 2,048 keys (2.4 MB in bf16, 4.7 MB as float32
# operands) stay in the caches between the gather and the two products: batch 4 at 16K took 60 ms
# on one Zen 4 core, 71 ms with 8,192 keys, 215 ms with 65,536. A GPU gets few, large launches
# (unmeasured).
STAGE1_KEYS = {"cpu": 2048, "cuda": 2**20}

# Splits of one gather differ in length by at most this factor: bounds the padding at a third.
SHORTEST_IN_GATHER = 0.75

# torch_dense holds every context at once, padded to the longest; beyond this it is not run.
MAX_DENSE_BYTES = 8 * 2**30


@dataclass(frozen=True)
class SplitGather:
    """Splits of similar length whose keys are gathered together.

    Attributes:
        sequence: int64 [N], the sequence of each split.
        split: int64 [N], its number within the sequence.
        position: int64 [N, W], token positions; past a split's end its last token is repeated, so
            that nothing outside the context is ever read.
        past_end: bool [N, W], which positions are such repeats; None if there are none.
    """

    sequence: Tensor
    split: Tensor
    position: Tensor
    past_end: Tensor | None


def plan_gathers(
    context_lengths: Sequence[int], num_kv_splits: int, keys_per_gather: int, device: torch.device
) -> list[SplitGather]:
    """Groups all non-empty splits of all sequences into gathers of bounded size."""
    splits = [
        (end - start, sequence, split, start)
        for sequence, context in enumerate(context_lengths)
        for split, (start, end) in enumerate(split_bounds(context, num_kv_splits))
    ]
    # Longest first, so that a gather is as wide as its first split.
    splits.sort(key=lambda item: (-item[0], item[1], item[2]))
    groups: list[list[tuple[int, int, int, int]]] = []
    for item in splits:
        if groups:
            width = groups[-1][0][0]
            fits = (len(groups[-1]) + 1) * width <= keys_per_gather
            if fits and item[0] >= SHORTEST_IN_GATHER * width:
                groups[-1].append(item)
                continue
        groups.append([item])
    return [_gather(group, device) for group in groups]


def _gather(group: list[tuple[int, int, int, int]], device: torch.device) -> SplitGather:
    length, sequence, split, start = torch.tensor(group, device=device).unbind(1)
    width = group[0][0]
    step = torch.arange(width, device=device)
    ragged = group[-1][0] < width
    return SplitGather(
        sequence=sequence,
        split=split,
        position=start[:, None] + torch.minimum(step, length[:, None] - 1),
        past_end=step >= length[:, None] if ragged else None,
    )


def softmax_over_slots(
    q: Tensor, kv_cache: Tensor, slots: Tensor, past_end: Tensor | None, geometry: MlaGeometry
) -> tuple[Tensor, Tensor]:
    """Absorbed attention of each row of queries over its own row of cache slots.

    Args:
        q: [N, H, 576].
        kv_cache: [pages, page_size, 576].
        slots: int64 [N, W].
        past_end: bool [N, W], slots to leave out, or None.
        geometry: widths and scale.

    Returns:
        o [N, H, 512] and lse [N, H], float32; o is acc / sum, lse is max + log(sum).
    """
    rows = kv_cache.flatten(0, 1).index_select(0, slots.flatten())
    keys = to_operand(rows.view(*slots.shape, -1))
    scores = bmm_fp32(to_operand(q), keys.transpose(1, 2)) * geometry.scale
    if past_end is not None:
        scores.masked_fill_(past_end[:, None, :], NEG_INF)
    highest = scores.amax(-1, keepdim=True)
    # Subtracting 0 where every key is masked keeps -inf minus -inf out of the exponent.
    weights = scores.sub_(highest.masked_fill(highest == NEG_INF, 0.0)).exp_()
    total = weights.sum(-1, keepdim=True)
    acc = bmm_fp32(weights, keys[..., : geometry.latent])
    lse = highest + total.log()
    return acc.div_(total.masked_fill(total == 0.0, 1.0)), lse.squeeze(-1)


def bind_splitkv(inputs: MlaDecodeInputs) -> Bound:
    """Stage 1 per split, stage 2 over splits; splits past a context's end are never written."""
    device = inputs.q.device
    contexts = inputs.seq_lens.tolist()
    splits = inputs.num_kv_splits or choose_num_kv_splits(
        contexts, inputs.geometry.heads, compute_units=_compute_units(device)
    )
    gathers = plan_gathers(contexts, splits, STAGE1_KEYS[device.type], device)

    def stage1() -> Partials:
        q, geometry = inputs.q, inputs.geometry
        batch, heads, _ = q.shape
        # Not cleared: merge_partials ignores the output of a part whose lse is -inf.
        partial_o = torch.empty((batch, splits, heads, geometry.latent), device=device)
        partial_lse = torch.full((batch, splits, heads), NEG_INF, device=device)
        for gather in gathers:
            slots = slot_indices(
                inputs.block_table, gather.sequence[:, None], gather.position, inputs.page_size
            )
            o, lse = softmax_over_slots(
                q[gather.sequence], inputs.kv_cache, slots, gather.past_end, geometry
            )
            partial_o[gather.sequence, gather.split] = o
            partial_lse[gather.sequence, gather.split] = lse
        return Partials(partial_o, partial_lse, dim=1)

    def stage2(partials: Partials) -> Outputs:
        o, lse = merge_partials(partials.o, partials.lse, partials.dim)
        return Outputs(o.to(inputs.q.dtype), lse)

    # Kept for a stage 2 that is run by itself.
    kept: list[Partials] = []

    def stage1_alone() -> Partials:
        kept[:] = [stage1()]
        return kept[0]

    return Bound(
        lambda: stage2(stage1()),
        executed_tokens=sum(gather.position.numel() for gather in gathers),
        stages={"stage1": stage1_alone, "stage2": lambda: stage2(kept[0])},
    )


def bind_dense(inputs: MlaDecodeInputs) -> Bound:
    """All non-empty contexts gathered at once, padded to the longest, under one softmax."""
    device = inputs.q.device
    contexts = inputs.seq_lens.tolist()
    # An empty sequence owns no page, so there is nothing of its own that could be gathered.
    used = [sequence for sequence, length in enumerate(contexts) if length > 0]
    width = max(contexts)
    sequence = torch.tensor(used, dtype=torch.int64, device=device)
    step = torch.arange(width, device=device)
    length = inputs.seq_lens[sequence, None].long()
    position = torch.minimum(step, length - 1)
    past_end = step >= length if used and min(contexts[b] for b in used) < width else None

    def run() -> Outputs:
        q, geometry = inputs.q, inputs.geometry
        o = q.new_zeros((*q.shape[:2], geometry.latent))
        lse = torch.full(q.shape[:2], NEG_INF, device=device)
        if used:
            slots = slot_indices(inputs.block_table, sequence[:, None], position, inputs.page_size)
            used_o, used_lse = softmax_over_slots(
                q[sequence], inputs.kv_cache, slots, past_end, geometry
            )
            o[sequence] = used_o.to(q.dtype)
            lse[sequence] = used_lse
        return Outputs(o, lse)

    return Bound(run, executed_tokens=position.numel())


def _compute_units(device: torch.device) -> int:
    """Compute units of a GPU; of an MI355X on a CPU, which then walks that device's launch."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return MI355X_COMPUTE_UNITS


def _splitkv_can_run(platform: str, case: MlaDecodeCase) -> Support:
    del case  # any lengths, pages, heads and dtypes of a valid case
    return torch_support(platform)


def _dense_can_run(platform: str, case: MlaDecodeCase) -> Support:
    support = torch_support(platform)
    if not support.ok:
        return support
    if case.num_kv_splits not in (None, 1):
        return Support(False, f"one softmax without splits, and {case.num_kv_splits} are asked for")
    itemsize = getattr(torch, case.dtype).itemsize
    # The gathered rows, the CPU's float32 copy of them, and slot numbers in int64.
    row_bytes = case.geometry.absorbed_qk_dim * (itemsize + 4) + 8
    needed = case.batch * max(case.context_lengths) * row_bytes
    if needed > MAX_DENSE_BYTES:
        return Support(
            False, f"gathers {needed / 2**30:.1f} GiB, over its bound of {MAX_DENSE_BYTES >> 30}"
        )
    return Support(True)


TORCH_SPLITKV = Implementation(
    name="torch_splitkv",
    operation="decode",
    summary="absorbed, split-KV over the paged cache, log-sum-exp merge; torch products",
    can_run=_splitkv_can_run,
    bind=bind_splitkv,
    can_run_stages=_splitkv_can_run,
)

TORCH_DENSE = Implementation(
    name="torch_dense",
    operation="decode",
    summary="absorbed, one softmax over the gathered, padded contexts; torch products",
    can_run=_dense_can_run,
    bind=bind_dense,
)
