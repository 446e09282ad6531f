"""The rungs of the ladder as implementations."""

import functools

from kda_tpu.interface import Implementation
from kda_tpu.ladder.bind import bind_ladder
from kda_tpu.original import can_run
from kda_tpu.switches import RUNGS

_SUMMARIES = {
    "mxu_port": "original with strip GEMMs and the solve on the MXU (safe_gate)",
    "fused": "mxu_port in two kernels: gate to intra-chunk, recurrence and output (fuse)",
    "unified": "fused on one transposed layout, without gather and scatter (unified_layout)",
    "flat": "unified with the recurrence on a grid of the real chunks (flat_grid)",
    "optimized": "all heads of a chunk in one step of one kernel, native layout (head_block)",
}

LADDER: dict[str, Implementation] = {
    name: Implementation(name, summary, can_run, functools.partial(bind_ladder, RUNGS[name]))
    for name, summary in _SUMMARIES.items()
}
