"""The form of a chunked prefill's prefix: where an engine that absorbs it pays 10.2x the FLOPs.

A prompt past one chunk is prefilled chunk by chunk. The last chunk attends itself and its cached
prefix, which may be decompressed (192/128 a pair) or attended as latents (576/512 a pair). Each
implementation's name says which form it takes; the record says which form our rule and sglang's
choose, and how many times the attention FLOPs of the first chunk this one takes.
"""

import importlib
from typing import Any

import workloads
from benchmarks._mla import prefill_experiment
from benchmarks._points import by_preset
from k3bench.measure import Experiment
from mla_rocm import PREFILL_IMPLEMENTATIONS
from workloads.mla import CHUNKED_CONTEXTS


class LastChunk:
    """The last chunk of a prompt over its cached prefix; 32K is 16K + 16K."""

    version = "1"
    timeout = 7200
    param_names = ("context", "implementation")
    params = (
        by_preset(smoke=("2K",), full=tuple(CHUNKED_CONTEXTS)),
        list(PREFILL_IMPLEMENTATIONS),
    )

    def device_prefill(self, context: str, implementation: str) -> Experiment:
        workload = workloads.get(f"mla-chunk/ctx{context}_last")
        return prefill_experiment(workload, notes=form_notes(workload))


def form_notes(workload: workloads.Workload) -> dict[str, Any]:
    """What both rules choose for the workload's one sequence, and the FLOPs of each choice.

    Multiples are of the attention FLOPs of a first chunk of as many tokens, decompressed.
    """
    plan = importlib.import_module("mla_rocm.prefill_plan")
    if not hasattr(plan, "choose_prefill_form"):
        return {}  # a commit from before the rules
    from mla_rocm import MlaPrefillCase
    from mla_rocm.work import prefill_work

    [new], [prefix] = workload.call.new_tokens, workload.call.cached_tokens
    case = MlaPrefillCase((new,), (prefix,), heads=workload.geometry.heads)
    first = prefill_work(MlaPrefillCase((new,), heads=workload.geometry.heads), "decompressed")
    ours = plan.choose_prefill_form(new, prefix, case.geometry)
    theirs = plan.sglang_prefill_form(prefix)
    return {
        "form_by_our_rule": ours,
        "form_by_sglang": theirs,
        "first_chunks_by_our_rule": prefill_work(case, ours).attention_flops
        / first.attention_flops,
        "first_chunks_by_sglang": prefill_work(case, theirs).attention_flops
        / first.attention_flops,
    }
