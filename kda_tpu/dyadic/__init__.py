"""``dyadic``: one kernel that steps from reference to reference by powers of two.

The fastest of the implementations for K3's bounded gate and bf16: see docs/kda-fastest.md for what
it is made of, what was tried beside it, and what stands between it and the machine's bounds.
"""

from kda_tpu.dyadic.bind import bind, why_not
from kda_tpu.inputs import KdaCase
from kda_tpu.interface import Implementation
from kda_tpu.original import can_run


def _instead(case: KdaCase) -> str | None:
    if case.dtype != "bfloat16":
        return f"{case.dtype} inputs: its operands are halves in bf16"
    return why_not(case.gate, case.heads, case.head_dim_k, case.head_dim_v)


IMPLEMENTATION = Implementation(
    name="dyadic",
    summary="strips of 32 a power of two apart, three tiles in flight in one kernel",
    can_run=can_run,
    bind=bind,
    instead=_instead,
    fuses=True,
)
