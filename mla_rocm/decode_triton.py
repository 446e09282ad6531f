"""Absorbed MLA decode by our Triton kernels: two launches bound to one set of inputs."""

import functools
import math

import torch

from mla_rocm.base import Bound, Implementation, Outputs, Partials, Support
from mla_rocm.cases import MlaDecodeCase
from mla_rocm.decode_plan import plan_decode
from mla_rocm.geometry import ceil_div, split_bounds
from mla_rocm.inputs import MlaDecodeInputs
from mla_rocm.launches import decode_plan_launches
from mla_rocm.numerics import NEG_INF
from mla_rocm.triton_runtime import compute_units, launcher, triton_support

LOG2_E = math.log2(math.e)


def bind_decode(inputs: MlaDecodeInputs, *, batch_invariant: bool = False) -> Bound:
    """Stage 1 per split and head block, stage 2 per head; workspace is made here, once."""
    q, device, geometry = inputs.q, inputs.q.device, inputs.geometry
    contexts = tuple(inputs.seq_lens.tolist())
    plan = plan_decode(
        contexts,
        geometry,
        num_kv_splits=inputs.num_kv_splits,
        compute_units=compute_units(device),
        batch_invariant=batch_invariant,
    )
    dtype = str(q.dtype).removeprefix("torch.")
    launches = decode_plan_launches(plan, contexts, geometry, inputs.page_size, dtype)
    first, second = map(launcher, launches)
    batch, heads, _ = q.shape
    partial_o = torch.empty((batch, heads, plan.num_kv_splits, geometry.latent), device=device)
    # Splits past a context's end are never written, and stage 2 never reads them; -inf tells them
    # from the written ones to whoever looks at stage 1 alone.
    partial_lse = torch.full((batch, heads, plan.num_kv_splits), NEG_INF, device=device)

    def stage1() -> Partials:
        first(
            q=q.contiguous(),
            kv_cache=inputs.kv_cache,
            block_table=inputs.block_table,
            seq_lens=inputs.seq_lens,
            partial_o=partial_o,
            partial_lse=partial_lse,
            scale_log2=geometry.scale * LOG2_E,
            num_kv_splits=plan.num_kv_splits,
            table_stride=inputs.block_table.stride(0),
        )
        return Partials(partial_o, partial_lse, dim=2)

    def stage2() -> Outputs:
        o = q.new_empty((batch, heads, geometry.latent))
        lse = torch.empty((batch, heads), device=device)
        second(
            partial_o=partial_o,
            partial_lse=partial_lse,
            seq_lens=inputs.seq_lens,
            o=o,
            lse=lse,
            num_kv_splits=plan.num_kv_splits,
        )
        return Outputs(o, lse)

    def run() -> Outputs:
        stage1()
        return stage2()

    executed = sum(
        ceil_div(end - start, plan.block_n) * plan.block_n
        for context in contexts
        for start, end in split_bounds(context, plan.num_kv_splits)
    )
    return Bound(run, executed_tokens=executed, stages={"stage1": stage1, "stage2": stage2})


def _can_run(platform: str, case: MlaDecodeCase) -> Support:
    del case  # any lengths, pages, heads and dtypes of a valid case
    return triton_support(platform)


TRITON = Implementation(
    name="triton",
    operation="decode",
    summary="absorbed, split-KV over the paged cache, blocked merge; Triton",
    can_run=_can_run,
    bind=bind_decode,
    can_run_stages=_can_run,
)

TRITON_BATCH_INVARIANT = Implementation(
    name="triton_batch_invariant",
    operation="decode",
    summary="the same kernels, every sequence split by its own length alone; Triton",
    can_run=_can_run,
    bind=functools.partial(bind_decode, batch_invariant=True),
    can_run_stages=_can_run,
)
