"""Kernels beside the ladder: other execution forms, chunk sizes and switch combinations, by name.

They answer what a choice of the ladder costs, so they are looked up and compiled like a rung but
are no rung: ``IMPLEMENTATIONS`` and ``auto`` do not know them.
"""

import functools
from typing import Any

from kda_tpu.interface import Implementation
from kda_tpu.ladder.bind import bind_ladder
from kda_tpu.original import can_run
from kda_tpu.switches import RUNGS, Switches

_OPTIMIZED = RUNGS["optimized"]


def _variant(name: str, summary: str, switches: Switches, **choices: Any) -> Implementation:
    return Implementation(
        name, summary, can_run, functools.partial(bind_ladder, switches, **choices)
    )


VARIANTS: dict[str, Implementation] = {
    variant.name: variant
    for variant in (
        _variant(
            "heads_on_grid",
            "head loop, first form: one head a grid step (the rung flat)",
            RUNGS["flat"],
        ),
        _variant(
            "heads_serial",
            "head loop, second form: head_block with the heads one after another",
            _OPTIMIZED,
            head_loop="serial",
        ),
        _variant(
            "heads_interleaved",
            "head loop, third form: the stages of all heads interleaved (the rung optimized)",
            _OPTIMIZED,
        ),
        _variant("optimized_chunk32", "optimized in chunks of 32 tokens", _OPTIMIZED, chunk=32),
        _variant("optimized_chunk128", "optimized in chunks of 128 tokens", _OPTIMIZED, chunk=128),
        _variant(
            "head_block_any_gate",
            "head_block without safe_gate: the pairwise decays of all heads outgrow VMEM",
            Switches(False, True, True, True, True),
        ),
    )
}
