"""Linear attention with a constant decay a head: recurrent, chunked and parallel.

d = 1 is linear attention, other decays are RetNet's and Lightning Attention-2's. Shapes: q, k
[H, T, K]; v [H, T, V]; decay [H] in (0, 1]; state [H, K, V]; o [H, T, V].
"""

import torch
from torch import Tensor


def retnet_decays(heads: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """1 - 2^(-5 - h): RetNet's."""
    return 1 - 2 ** (-5 - torch.arange(heads, dtype=dtype))


def lightning_decays(heads: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """exp(-2^(-8 (h + 1) / H)): the slopes of ALiBi, which Lightning Attention-2 decays by."""
    slopes = 2 ** (-8 * (torch.arange(heads, dtype=dtype) + 1) / heads)
    return torch.exp(-slopes)


def recurrent(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """S <- d S + k v^T; o = q^T S, token by token; o and the final state."""
    rows = []
    for token in range(q.shape[1]):
        state = decay[:, None, None] * state + k[:, token, :, None] * v[:, token, None, :]
        rows.append(torch.einsum("hk,hkv->hv", q[:, token], state))
    return (torch.stack(rows, 1) if rows else torch.zeros_like(v)), state


def parallel(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """All pairs at once from an empty state: (q k^T * d^(i - j)) v below the diagonal."""
    return _inside(q, k, v, decay)


def chunked(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Pairs inside a chunk through scores, everything before it through the state."""
    rows = []
    for start in range(0, q.shape[1], chunk):
        part = [x[:, start : start + chunk] for x in (q, k, v)]
        length = part[0].shape[1]
        step = torch.arange(length, dtype=q.dtype, device=q.device)
        reach = decay[:, None] ** (step + 1)  # from the state to each token
        left = decay[:, None] ** (length - 1 - step)  # from each token to the chunk's end
        across = torch.einsum("htk,hkv->htv", part[0] * reach[..., None], state)
        rows.append(_inside(part[0], part[1], part[2], decay) + across)
        gained = torch.einsum("htk,htv->hkv", part[1] * left[..., None], part[2])
        state = decay[:, None, None] ** length * state + gained
    return (torch.cat(rows, 1) if rows else torch.zeros_like(v)), state


def _inside(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    step = torch.arange(q.shape[1], device=q.device)
    distance = (step[:, None] - step[None, :]).clamp(min=0)
    weights = torch.where(step[:, None] >= step[None, :], decay[:, None, None] ** distance, 0.0).to(
        q.dtype
    )
    return (q @ k.transpose(-1, -2) * weights) @ v
