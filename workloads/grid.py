"""Fixed-length KDA prefill shapes: the 56-point grid, the headline, and the single-sequence series.

Sequences of equal length are packed through cu_seqlens. Source of the shapes: the published TPU v6e
results, which the same shapes allow comparing with.
"""

from collections.abc import Iterator

from workloads.model import KdaGeometry, Workload, prefill
from workloads.registry import family

GRID_SEQUENCE_LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)
GRID_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
SERIES_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)

# Kimi K3 has 96 KDA heads; one of four chips (TP=4) holds 24 of them.
K3_PER_CHIP = KdaGeometry(heads=24)
# The headline was published for 16 heads.
HEADLINE_GEOMETRY = KdaGeometry(heads=16)

_LABEL = "fixed shape"


@family("kda-headline")
def kda_headline() -> Iterator[Workload]:
    """T = 8192 packed as 4 x 2048, H = 16: the shape of the published ladder."""
    yield Workload(
        id="kda-headline",
        kind="kda-prefill",
        provenance="fixed",
        geometry=HEADLINE_GEOMETRY,
        calls=(prefill(*(2048,) * 4),),
        label=_LABEL,
        description="KDA prefill, T = 8192 as 4 x 2048 packed, H = 16",
    )


@family("kda-grid")
def kda_grid() -> Iterator[Workload]:
    """S x B: B sequences of S tokens in one packed call, K3 per-chip geometry."""
    for length in GRID_SEQUENCE_LENGTHS:
        for batch in GRID_BATCH_SIZES:
            yield Workload(
                id=f"kda-grid/S{length}_B{batch}",
                kind="kda-prefill",
                provenance="fixed",
                geometry=K3_PER_CHIP,
                calls=(prefill(*(length,) * batch),),
                label=_LABEL,
                description=f"KDA prefill, {batch} x {length} tokens packed, H = 24",
            )


@family("kda-series")
def kda_series() -> Iterator[Workload]:
    """One sequence of growing length, K3 per-chip geometry."""
    for length in SERIES_LENGTHS:
        yield Workload(
            id=f"kda-series/T{length}",
            kind="kda-prefill",
            provenance="fixed",
            geometry=K3_PER_CHIP,
            calls=(prefill(length),),
            label=_LABEL,
            description=f"KDA prefill, one sequence of {length} tokens, H = 24",
        )
