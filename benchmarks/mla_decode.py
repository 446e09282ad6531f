"""MLA decode: one token a sequence over a paged latent cache, at the published contexts."""

import workloads
from benchmarks._mla import decode_experiment
from benchmarks._points import by_preset
from k3bench.measure import Experiment
from mla_rocm import DECODE_IMPLEMENTATIONS
from workloads.mla import DECODE_BATCH_SIZES, DECODE_CONTEXTS


class Decode:
    """B sequences at one context, 12 heads, pages of 64 tokens in random order."""

    version = "1"
    timeout = 3600
    param_names = ("context", "B", "implementation")
    params = (
        by_preset(smoke=("4K", "32K"), full=tuple(DECODE_CONTEXTS)),
        by_preset(smoke=(1, 4), full=DECODE_BATCH_SIZES),
        list(DECODE_IMPLEMENTATIONS),
    )

    def device_decode(self, context: str, B: int, implementation: str) -> Experiment:
        return decode_experiment(workloads.get(f"mla-decode/ctx{context}_B{B}"))
