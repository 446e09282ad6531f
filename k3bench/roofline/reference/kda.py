"""KDA token by token, chunk by chunk, and all at once.

S <- diag(e^g) S; S <- S + beta k (v - k^T S)^T; o = scale q^T S. Shapes: q, k, g [H, T, K];
v [H, T, V]; beta [H, T]; state [H, K, V]; o [H, T, V]. A g that is equal over channels is the
gated delta rule.
"""

import torch
from torch import Tensor


def recurrent(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """From the definition; o and the final state."""
    scale = q.shape[-1] ** -0.5
    rows = []
    for token in range(q.shape[1]):
        state = torch.exp(g[:, token])[..., None] * state
        seen = torch.einsum("hk,hkv->hv", k[:, token], state)
        wrong = beta[:, token, None] * (v[:, token] - seen)
        state = state + k[:, token, :, None] * wrong[:, None, :]
        rows.append(scale * torch.einsum("hk,hkv->hv", q[:, token], state))
    return (torch.stack(rows, 1) if rows else torch.zeros_like(v)), state


def chunked(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """The corrections of a chunk from one triangular solve, the rest as products.

    With D_ij = exp(G_i - G_j), G the chunk's running sum of g: corrections u solve
    (I + L) u = beta (v - (k e^G)^T S) with L_ij = beta_i sum_c k_ic k_jc D_ijc below the diagonal.
    """
    scale = q.shape[-1] ** -0.5
    rows = []
    for start in range(0, q.shape[1], chunk):
        qc, kc, vc, gc, bc = (x[:, start : start + chunk] for x in (q, k, v, g, beta))
        total = gc.cumsum(1)
        # Differences first: exp(G_i) exp(-G_j) overflows under strong gates.
        decay = torch.exp((total[:, :, None] - total[:, None]).clamp(max=0.0))
        kk = torch.einsum("hic,hjc,hijc->hij", kc, kc, decay)
        qk = torch.einsum("hic,hjc,hijc->hij", qc, kc, decay).tril()
        lower = bc[..., None] * kk.tril(-1)
        identity = torch.eye(lower.shape[-1], dtype=q.dtype, device=q.device)
        reached = torch.exp(total)
        seen = torch.einsum("hik,hkv->hiv", kc * reached, state)
        u = torch.linalg.solve_triangular(
            lower + identity, bc[..., None] * (vc - seen), upper=False, unitriangular=True
        )
        across = torch.einsum("hik,hkv->hiv", qc * reached, state)
        rows.append(scale * (across + qk @ u))
        left = torch.exp(total[:, -1:] - total)
        state = torch.exp(total[:, -1])[..., None] * state + torch.einsum(
            "hik,hiv->hkv", kc * left, u
        )
    return (torch.cat(rows, 1) if rows else torch.zeros_like(v)), state


def parallel(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One chunk over everything: T x T products, no recurrence."""
    return chunked(q, k, v, g, beta, state, max(1, q.shape[1]))
