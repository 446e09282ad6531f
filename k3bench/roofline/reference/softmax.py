"""Attention in parts: partial results with their log-sum-exp, and how they merge in any order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Partial:
    """Attention over some of the keys.

    Attributes:
        o: [..., M, V], normalised over the keys that this part saw; zero where it saw none.
        lse: [..., M], log of the sum of exponentials of the scores; -inf where it saw none.
    """

    o: Tensor
    lse: Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> Partial:
    """Softmax attention over the visible keys.

    Args:
        q: [..., M, K].
        k, v: [..., N, K] and [..., N, V].
        visible: bool, broadcast against [..., M, N]; a row may see nothing.
        scale: of the scores.
    """
    scores = (scale * q @ k.transpose(-1, -2)).masked_fill(~visible, -math.inf)
    if k.shape[-2] == 0:
        rows = scores.shape[:-1]
        return Partial(q.new_zeros(*rows, v.shape[-1]), q.new_full(rows, -math.inf))
    lse = scores.logsumexp(-1)
    # -inf minus -inf is NaN: a row without keys gets weights of zero instead.
    reference = torch.where(lse == -math.inf, torch.zeros_like(lse), lse)
    weights = torch.exp(scores - reference.unsqueeze(-1))
    return Partial(weights @ v, lse)


def merge(one: Partial, other: Partial) -> Partial:
    """Attention over the keys of both, which must be disjoint; associative and commutative."""
    top = torch.maximum(one.lse, other.lse)
    reference = torch.where(top == -math.inf, torch.zeros_like(top), top)
    mass_one, mass_other = torch.exp(one.lse - reference), torch.exp(other.lse - reference)
    mass = mass_one + mass_other
    empty = mass == 0
    divisor = torch.where(empty, torch.ones_like(mass), mass)
    o = (mass_one.unsqueeze(-1) * one.o + mass_other.unsqueeze(-1) * other.o) / divisor.unsqueeze(
        -1
    )
    lse = torch.where(empty, torch.full_like(mass, -math.inf), reference + torch.log(divisor))
    return Partial(o, lse)


def merge_all(parts: Sequence[Partial]) -> Partial:
    """From left to right; at least one part."""
    merged = parts[0]
    for part in parts[1:]:
        merged = merge(merged, part)
    return merged


def split_kv(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float, bounds: Sequence[int]
) -> Partial:
    """Every split of the keys by itself, then merged.

    bounds: ends of the splits after a first start of 0; equal neighbours are an empty split, and
    the last is the number of keys.
    """
    starts = (0, *bounds[:-1])
    return merge_all(
        [
            attend(q, k[..., a:b, :], v[..., a:b, :], visible[..., a:b], scale)
            for a, b in zip(starts, bounds, strict=True)
        ]
    )
