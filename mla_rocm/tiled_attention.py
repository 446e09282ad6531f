"""Attention by tiles with an online softmax: memory bounded whatever the lengths."""

import torch
from torch import Tensor

from mla_rocm.numerics import NEG_INF, bmm_fp32, to_operand

# Query rows (over all heads) and keys of one score tile. On a CPU 3 MB of float32 scores: 1,024
# tokens took 115 ms decompressed and 250 ms absorbed on one Zen 4 core; four times the rows took
# 10% and 35% longer, other key counts the same within 10%. A GPU gets few, large launches
# (unmeasured; 256 MiB of scores).
TILES = {"cpu": (1536, 512), "cuda": (16384, 4096)}


def attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, first_position: int | None
) -> tuple[Tensor, Tensor]:
    """Softmax attention with G key heads, each shared by R query heads.

    Args:
        q: [G, R, Tq, Dk].
        k: [G, Tk, Dk].
        v: [G, Tk, Dv].
        scale: what scores are multiplied by.
        first_position: query i sees keys 0 .. first_position + i; None means all keys.

    Returns:
        o [G, R, Tq, Dv] and lse [G, R, Tq], float32; 0 and -inf if there are no keys.
    """
    groups, shared, queries, _ = q.shape
    keys, v_dim = v.shape[1:]
    o = torch.zeros((groups, shared, queries, v_dim), device=q.device)
    lse = torch.full((groups, shared, queries), NEG_INF, device=q.device)
    tile_rows, tile_keys = TILES[q.device.type]
    step = max(1, tile_rows // (groups * shared))
    for begin in range(0, queries, step):
        end = min(begin + step, queries)
        visible = keys if first_position is None else min(keys, first_position + end)
        if visible == 0:
            continue
        query = to_operand(q[:, :, begin:end].reshape(groups, shared * (end - begin), -1))
        highest = torch.full((*query.shape[:2], 1), NEG_INF, device=q.device)
        total = torch.zeros_like(highest)
        acc = torch.zeros((*query.shape[:2], v_dim), device=q.device)
        for key_begin in range(0, visible, tile_keys):
            key_end = min(key_begin + tile_keys, visible)
            key = to_operand(k[:, key_begin:key_end])
            scores = bmm_fp32(query, key.transpose(1, 2)).mul_(scale)
            if first_position is not None and key_end > first_position + begin + 1:
                hidden = _hidden(first_position + begin, end - begin, key_begin, key_end, q.device)
                scores.view(groups, shared, end - begin, -1).masked_fill_(hidden, NEG_INF)
            # Key 0 is visible to every query, so after the first tile the maximum is finite and
            # no exponent is -inf minus -inf.
            raised = torch.maximum(highest, scores.amax(-1, keepdim=True))
            kept = (highest - raised).exp_()
            weights = scores.sub_(raised).exp_()
            total = total.mul_(kept).add_(weights.sum(-1, keepdim=True))
            acc = acc.mul_(kept).add_(bmm_fp32(weights, to_operand(v[:, key_begin:key_end])))
            highest = raised
        shape = (groups, shared, end - begin)
        o[:, :, begin:end] = (acc / total).view(*shape, v_dim)
        lse[:, :, begin:end] = (highest + total.log()).view(shape)
    return o, lse


def _hidden(
    first_query: int, queries: int, key_begin: int, key_end: int, device: torch.device
) -> Tensor:
    """Bool [queries, keys]: which keys lie after each query."""
    query_position = torch.arange(first_query, first_query + queries, device=device)
    key_position = torch.arange(key_begin, key_end, device=device)
    return key_position > query_position[:, None]
