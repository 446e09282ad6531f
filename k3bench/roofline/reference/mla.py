"""MLA both ways: keys and values made from latents, or the up-projections moved into q and o."""

from dataclasses import dataclass

import torch
from torch import Tensor

from k3bench.roofline.reference.softmax import Partial, attend, merge


@dataclass(frozen=True)
class Latents:
    """The cache and the up-projections of one layer.

    Attributes:
        c: [N, L], latents.
        k_rope: [N, R], the key part that all heads share.
        w_k, w_v: [H, L, D] and [H, L, V].
    """

    c: Tensor
    k_rope: Tensor
    w_k: Tensor
    w_v: Tensor

    @property
    def scale(self) -> float:
        """(D + R)^-0.5, in both forms: absorbing keeps the product's value."""
        return float((self.w_k.shape[-1] + self.k_rope.shape[-1]) ** -0.5)

    def rows(self, start: int, end: int) -> "Latents":
        """The cache from start to end."""
        return Latents(self.c[start:end], self.k_rope[start:end], self.w_k, self.w_v)


def decompressed(q_nope: Tensor, q_rope: Tensor, cache: Latents, visible: Tensor) -> Partial:
    """q_nope: [H, M, D]; q_rope: [H, M, R]; o [H, M, V]."""
    k = torch.cat(
        [cache.c @ cache.w_k, cache.k_rope.expand(q_rope.shape[0], *cache.k_rope.shape)], dim=-1
    )
    q = torch.cat([q_nope, q_rope], dim=-1)
    return attend(q, k, cache.c @ cache.w_v, visible, cache.scale)


def absorbed(q_nope: Tensor, q_rope: Tensor, cache: Latents, visible: Tensor) -> Partial:
    """The same, with every head attending the latents themselves."""
    q = torch.cat([q_nope @ cache.w_k.transpose(-1, -2), q_rope], dim=-1)
    k = torch.cat([cache.c, cache.k_rope], dim=-1)
    latent = attend(q, k, cache.c, visible, cache.scale)
    return Partial(latent.o @ cache.w_v, latent.lse)


def prefix_absorbed(
    q_nope: Tensor, q_rope: Tensor, cache: Latents, visible: Tensor, prefix: int
) -> Partial:
    """A chunk whose cached prefix is attended absorbed and whose new tokens are decompressed."""
    old = absorbed(q_nope, q_rope, cache.rows(0, prefix), visible[:, :prefix])
    rows = cache.rows(prefix, len(cache.c))
    return merge(old, decompressed(q_nope, q_rope, rows, visible[:, prefix:]))
