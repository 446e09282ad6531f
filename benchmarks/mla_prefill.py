"""MLA prefill: decompressed and absorbed form, whole and as the last chunk after a prefix."""

import workloads
from benchmarks._mla import prefill_experiment
from benchmarks._points import by_preset
from k3bench.measure import Experiment
from mla_rocm import PREFILL_IMPLEMENTATIONS
from workloads.mla import CHUNKED_CONTEXTS, PREFILL_BATCH_SIZES, WHOLE_PREFILLS


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


class LastChunk:
    """The last chunk of a prompt over its cached prefix: where the absorbed form costs most."""

    version = "1"
    timeout = 7200
    param_names = ("context", "implementation")
    params = (
        by_preset(smoke=("2K",), full=tuple(CHUNKED_CONTEXTS)),
        list(PREFILL_IMPLEMENTATIONS),
    )

    def device_prefill(self, context: str, implementation: str) -> Experiment:
        return prefill_experiment(workloads.get(f"mla-chunk/ctx{context}_last"))
