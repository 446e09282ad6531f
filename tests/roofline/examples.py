"""Settings and random tensors that the property tests share."""

import torch
from hypothesis import settings

# The first call into torch takes longer than hypothesis's deadline for one example.
quick = settings(deadline=None, max_examples=40)


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Standard normal numbers that depend on the seed alone."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
