"""DSA's indexer and top-k, and NSA's three gated branches."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from k3bench.roofline.reference.masks import causal, compressed, window
from k3bench.roofline.reference.softmax import Partial, attend


def index_scores(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
    """[M, N]: sum over index heads of w relu(q k). q: [H, M, D]; k: [N, D]; w: [M, H]."""
    return torch.einsum("mh,hmn->mn", w, torch.relu(q @ k.T))


def top_k_mask(scores: Tensor, visible: Tensor, k: int) -> Tensor:
    """The k best visible keys of every query, all where fewer are visible; ties to the earlier."""
    masked = scores.masked_fill(~visible, -math.inf)
    best = torch.sort(masked, dim=-1, descending=True, stable=True).indices[..., :k]
    return torch.zeros_like(visible).scatter(-1, best, True) & visible


def dsa(q: Tensor, k: Tensor, v: Tensor, scores: Tensor, top_k: int, prefix: int = 0) -> Partial:
    """Attention over each query's best keys. q: [H, M, K]; k, v: [H, N, ...]; scores: [M, N]."""
    mask = top_k_mask(scores, causal(q.shape[-2], prefix), top_k)
    return attend(q, k, v, mask, q.shape[-1] ** -0.5)


@dataclass(frozen=True)
class NsaSizes:
    """Tokens of a compressed block, its stride, of a selected block, how many, and the window."""

    compress: int
    stride: int
    select_block: int
    selected: int
    window: int


def compress_rows(rows: Tensor, block: int, stride: int) -> Tensor:
    """[N, D] to [C, D]: the mean of every block, in place of the model's learned map."""
    if len(rows) < block:
        return rows.new_zeros(0, rows.shape[-1])
    return rows.unfold(0, block, stride).mean(-1)


def nsa_branches(q: Tensor, k: Tensor, v: Tensor, sizes: NsaSizes) -> tuple[Partial, ...]:
    """Compressed, selected and window attention of one group: q [H, T, K]; k, v [T, ...].

    Blocks are chosen by the compressed branch's probabilities summed over the group's heads, each
    compressed block giving to every selected block the share of it that lies there; the query's own
    block always counts as chosen, so that it sees at least itself.
    """
    tokens, scale = q.shape[-2], q.shape[-1] ** -0.5
    small_k = compress_rows(k, sizes.compress, sizes.stride)
    small_v = compress_rows(v, sizes.compress, sizes.stride)
    over = compressed(tokens, sizes.compress, sizes.stride)
    first = attend(q, small_k, small_v, over, scale)
    weights = torch.exp(
        (scale * q @ small_k.T).masked_fill(~over, -math.inf)
        - first.lse.masked_fill(first.lse == -math.inf, 0.0).unsqueeze(-1)
    ).sum(0)
    blocks = -(-tokens // sizes.select_block)
    overlap = q.new_zeros(small_k.shape[0], blocks)
    for row in range(small_k.shape[0]):
        for token in range(row * sizes.stride, row * sizes.stride + sizes.compress):
            overlap[row, token // sizes.select_block] += 1 / sizes.compress
    own = torch.arange(tokens) // sizes.select_block
    block_scores = weights @ overlap
    block_scores[torch.arange(tokens), own] = math.inf
    past = torch.arange(blocks)[None, :] <= own[:, None]
    chosen = top_k_mask(block_scores, past, sizes.selected)
    seen = chosen.repeat_interleave(sizes.select_block, 1)[:, :tokens] & causal(tokens)
    return (
        first,
        attend(q, k, v, seen, scale),
        attend(q, k, v, window(tokens, sizes.window), scale),
    )


def nsa(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, sizes: NsaSizes) -> Tensor:
    """[H, T, V]: the branches weighted by gates [3, H, T], each between 0 and 1."""
    branches = nsa_branches(q, k, v, sizes)
    return sum(
        (gate.unsqueeze(-1) * branch.o for gate, branch in zip(gates, branches, strict=True)),
        torch.zeros_like(q[..., :1]),
    )
