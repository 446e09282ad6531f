"""How many splits sglang's server asks its decode for, as pure functions of integers.

The server sizes its buffers for a bound, a scheduler kernel of its own gives each sequence a count
up to it, and on gfx950 newer releases put one count for the whole batch in its place.
"""

import math
from collections.abc import Sequence

from mla_rocm.decode_plan import power_of_two
from mla_rocm.geometry import HEADS_PER_WORKGROUP, ceil_div

# --triton-attention-num-kv-splits where nobody gives it.
DEFAULT_MAX_KV_SPLITS = {"cpu": 8, "cuda": 8, "rocm": 16}
# For MLA the bound is raised to the compute units, rounded up to a power of two; MI300X's 304
# would give 512, which the server pins to 256.
LARGEST_MAX_KV_SPLITS = 256
# Contexts whose longest is less than this many times the shortest count as equal.
_EVEN = 10 / 8


def server_max_splits(platform: str, compute_units: int, *, raised_for_mla: bool = True) -> int:
    """The bound on splits, that is, the size of the split dimension of the partial results.

    Args:
        platform: ``cpu`` (the interpreter), ``cuda`` or ``rocm``.
        compute_units: of the device; 0 where there is none.
        raised_for_mla: whether the release raises the bound for MLA models.
    """
    base = DEFAULT_MAX_KV_SPLITS[platform]
    if not raised_for_mla or compute_units < 1:
        return base
    return max(base, min(power_of_two(compute_units), LARGEST_MAX_KV_SPLITS))


def scheduled_splits(
    lengths: Sequence[int], heads: int, max_splits: int, compute_units: int, *, kv_heads: int = 1
) -> tuple[int, ...]:
    """Splits of each sequence: enough workgroups for the device, more of them for long contexts.

    Args:
        lengths: cached tokens of each sequence, 1 or more.
        heads: query heads over the one latent head.
        kv_heads: as the model's configuration states them, which is as many as ``heads`` for K3:
            the scheduler then counts a workgroup a head.
        max_splits: the bound.
        compute_units: of the device; 0 gives every sequence the bound.
    """
    if compute_units < 1:
        return (max_splits,) * len(lengths)
    longest, shortest = max(lengths), min(lengths)
    if longest < _EVEN * shortest:
        shortest = longest
    by_spread = min(ceil_div(longest, shortest), max_splits)
    # Half as many workgroups again for every doubling past 256 tokens, roughly.
    wanted = int(compute_units * max(math.log2(longest / 64), 1.0))
    together = min(HEADS_PER_WORKGROUP, heads // kv_heads)
    workgroups = len(lengths) * ceil_div(heads, together)
    by_device = min(ceil_div(wanted, workgroups), max_splits)
    chunks = ceil_div(longest, by_spread), ceil_div(longest, by_device)
    return tuple(max(ceil_div(length, chunk) for chunk in chunks) for length in lengths)
