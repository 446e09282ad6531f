"""Ring attention on simulated devices: blocks circulate, partial results merge as they come."""

import torch
from torch import Tensor

from k3bench.roofline.reference.masks import ring_share
from k3bench.roofline.reference.softmax import Partial, attend, merge


def ring_attention(q: Tensor, k: Tensor, v: Tensor, devices: int, layout: str) -> Partial:
    """Causal attention [T, K] over ``devices``, results in the order of the tokens.

    Every device starts with its own block of keys and values and passes it on after each round.
    """
    shares = ring_share(len(q), devices, layout)
    held = [(share, k[share], v[share]) for share in shares]
    scale = q.shape[-1] ** -0.5
    found: list[Partial | None] = [None] * devices
    for _ in range(devices):
        for device, share in enumerate(shares):
            where, keys, values = held[device]
            visible = where[None, :] <= share[:, None]
            part = attend(q[share], keys, values, visible, scale)
            before = found[device]
            found[device] = part if before is None else merge(before, part)
        held = [held[(device - 1) % devices] for device in range(devices)]
    order = torch.argsort(torch.cat(shares))
    parts = [part for part in found if part is not None]
    return Partial(
        torch.cat([part.o for part in parts])[order],
        torch.cat([part.lse for part in parts])[order],
    )
