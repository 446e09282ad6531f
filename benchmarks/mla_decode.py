"""MLA decode: one token a sequence over a paged latent cache, at the published contexts."""

import workloads
from benchmarks._mla import decode_experiment, decode_stage_experiment
from benchmarks._points import by_preset
from k3bench.measure import Experiment
from mla_rocm import DECODE_IMPLEMENTATIONS
from workloads.mla import DECODE_BATCH_SIZES, DECODE_CONTEXTS


class Decode:
    """B sequences at one context, 12 heads, over pages of one size in one order.

    Pages of a sequence are its own, in order (``contiguous``) or not (``shuffled``); in a
    ``shared`` table the first half of the pages is physically the same for all sequences, as
    behind a common prompt, which takes two sequences or more.
    """

    version = "2"
    timeout = 3600
    param_names = ("context", "B", "page_size", "table", "implementation")
    params = (
        by_preset(smoke=("4K", "32K"), full=tuple(DECODE_CONTEXTS)),
        by_preset(smoke=(1, 4), full=DECODE_BATCH_SIZES),
        by_preset(smoke=(64,), full=(1, 16, 64)),
        by_preset(smoke=("shuffled",), full=("contiguous", "shuffled", "shared")),
        list(DECODE_IMPLEMENTATIONS),
    )

    def device_decode(
        self, context: str, B: int, page_size: int, table: str, implementation: str
    ) -> Experiment:
        workload = workloads.get(f"mla-decode/ctx{context}_B{B}")
        return decode_experiment(workload, page_size, table)


class Stages:
    """Stage 1 (split-KV) and stage 2 (merge) apart, for the implementations that have them.

    On a GPU the caches are flushed before each, so stage 2 alone reads from memory what it finds in
    a cache behind its stage 1: the two need not add up to the whole.
    """

    version = "1"
    timeout = 3600
    param_names = ("context", "B", "stage", "implementation")
    params = (
        by_preset(smoke=("4K",), full=tuple(DECODE_CONTEXTS)),
        by_preset(smoke=(1,), full=DECODE_BATCH_SIZES),
        ["stage1", "stage2"],
        list(DECODE_IMPLEMENTATIONS),
    )

    def device_stage(self, context: str, B: int, stage: str, implementation: str) -> Experiment:
        workload = workloads.get(f"mla-decode/ctx{context}_B{B}")
        return decode_stage_experiment(workload, stage)
