"""MLA prefill without a prefix: decompressed and absorbed form of whole prompts."""

import workloads
from benchmarks._mla import prefill_experiment
from benchmarks._points import by_preset
from k3bench.measure import Experiment
from mla_rocm import PREFILL_IMPLEMENTATIONS
from workloads.mla import PREFILL_BATCH_SIZES, WHOLE_PREFILLS


class Whole:
    """B prompts of T tokens, no prefix."""

    version = "1"
    timeout = 3600
    param_names = ("T", "B", "implementation")
    params = (
        by_preset(smoke=("1K",), full=tuple(WHOLE_PREFILLS)),
        by_preset(smoke=(1,), full=PREFILL_BATCH_SIZES),
        list(PREFILL_IMPLEMENTATIONS),
    )

    def device_prefill(self, T: str, B: int, implementation: str) -> Experiment:
        return prefill_experiment(workloads.get(f"mla-prefill/T{T}_B{B}"))
