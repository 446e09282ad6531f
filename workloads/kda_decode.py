"""KDA decode shapes: one token of each of B sequences, a recurrent state in place of a context."""

from collections.abc import Iterator

from workloads.model import KdaGeometry, Workload, prefill
from workloads.registry import family

# 96 heads over eight chips, as for MLA: at batch 1 a launch of 48 workgroups, bound by latency.
K3_PER_CHIP = KdaGeometry(heads=12)

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@family("kda-decode")
def kda_decode() -> Iterator[Workload]:
    """One new token a sequence; a state has one size whatever came before."""
    for batch in BATCH_SIZES:
        yield Workload(
            id=f"kda-decode/B{batch}",
            kind="kda-decode",
            provenance="fixed",
            geometry=K3_PER_CHIP,
            calls=(prefill(*(1,) * batch),),
            label="fixed shape",
            description=f"KDA decode, one token of {batch} sequences",
        )
