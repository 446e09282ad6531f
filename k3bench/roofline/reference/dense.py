"""MHA, MQA and GQA: query heads in groups over shared keys, each with a softmax of its own."""

from torch import Tensor

from k3bench.roofline.reference.softmax import Partial, attend


def grouped_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float | None = None
) -> Partial:
    """o [H, M, V] and lse [H, M].

    q: [H, M, K]; k, v: [G, N, K] and [G, N, V] with H a multiple of G; visible: bool, broadcast
    against [M, N]. Query head h reads key/value head h // (H / G).
    """
    heads, groups = q.shape[0], k.shape[0]
    if heads % groups:
        raise ValueError(f"{heads} query heads over {groups} key/value heads: give a multiple")
    repeats = heads // groups
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return attend(
        q, k.repeat_interleave(repeats, 0), v.repeat_interleave(repeats, 0), visible, scale
    )
