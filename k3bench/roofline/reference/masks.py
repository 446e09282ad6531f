"""Who sees whom, element by element: the masks that k3bench/roofline/pairs.py counts."""

from collections.abc import Sequence

import torch
from torch import Tensor


def positions(new: int, prefix: int) -> tuple[Tensor, Tensor]:
    """[new, 1] positions of queries and [1, prefix + new] of keys."""
    return torch.arange(prefix, prefix + new)[:, None], torch.arange(prefix + new)[None, :]


def causal(new: int, prefix: int = 0) -> Tensor:
    """bool [new, prefix + new]: keys at or before the query."""
    query, key = positions(new, prefix)
    return key <= query


def window(new: int, width: int, prefix: int = 0, sinks: int = 0) -> Tensor:
    """The last ``width`` keys, the query's own included, and the first ``sinks`` (StreamingLLM)."""
    query, key = positions(new, prefix)
    return (key <= query) & ((query - key < width) | (key < sinks))


def blocks(new: int, block: int, visible: Sequence[Sequence[bool]], prefix: int = 0) -> Tensor:
    """Causal, inside the visible blocks of query and key positions."""
    query, key = positions(new, prefix)
    chosen = torch.tensor(visible, dtype=torch.bool)
    return (key <= query) & chosen[query // block, key // block]


def compressed(new: int, block: int, stride: int, prefix: int = 0) -> Tensor:
    """bool [new, C]: compressed keys, of tokens c stride to c stride + block - 1, that are over."""
    context = prefix + new
    count = 0 if context < block else (context - block) // stride + 1
    query = torch.arange(prefix, context)[:, None]
    return torch.arange(count)[None, :] * stride + block - 1 <= query


def ring_share(new: int, devices: int, layout: str) -> list[Tensor]:
    """Token positions of every device: contiguous runs, or every ``devices``-th token."""
    tokens = torch.arange(new)
    if layout == "striped":
        return [tokens[device::devices] for device in range(devices)]
    return list(tokens.reshape(devices, -1))
