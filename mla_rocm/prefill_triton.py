"""MLA prefill by our Triton kernel: passes of one form bound to one set of inputs.

Attention runs in Triton. The up-projections are plain matrix products, which torch hands to the
vendor's library as a serving engine does.
"""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mla_rocm.base import Bound, Implementation, Outputs, Support
from mla_rocm.cases import MlaPrefillCase
from mla_rocm.inputs import MlaPrefillInputs
from mla_rocm.launches import prefill_launch
from mla_rocm.numerics import NEG_INF, merge_partials
from mla_rocm.paging import slot_indices
from mla_rocm.prefill_plan import CHUNK_TOKENS, Pass, PrefillForm, Span, plan_prefill
from mla_rocm.triton_runtime import launcher, triton_support

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class BoundPass:
    """A pass with what depends on lengths alone already on the device.

    Attributes:
        step: the pass.
        kernel: its attention launch.
        spans: int32 [spans, 4]: first query, queries, first key, keys.
        cached_row, cached_sequence, cached_position: int64; which gathered rows come from the
            cache, and which token of which sequence each is.
        new_row, new_source: int64; which come from the new tokens' latents, and from which row.
        keys: rows gathered.
    """

    step: Pass
    kernel: Callable[..., None]
    spans: Tensor
    cached_row: Tensor
    cached_sequence: Tensor
    cached_position: Tensor
    new_row: Tensor
    new_source: Tensor
    keys: int


def bind_prefill(
    inputs: MlaPrefillInputs, *, form: PrefillForm, chunk_tokens: int = CHUNK_TOKENS
) -> Bound:
    """All passes of ``form`` in order; parts over disjoint keys are merged by log-sum-exp."""
    q, geometry = inputs.q, inputs.geometry
    bounds = inputs.cu_seqlens.tolist()
    prefixes = inputs.prefix_lens.tolist()
    new_lengths = [end - begin for begin, end in itertools.pairwise(bounds)]
    plan = plan_prefill(new_lengths, prefixes, form, chunk_tokens)
    dtype = str(q.dtype).removeprefix("torch.")
    passes = []
    for step in plan:
        kernel = launcher(prefill_launch(step, geometry, dtype))
        passes.append(_bind_pass(step, kernel, bounds, prefixes, q.device))
    # One product for keys and values of all heads: [latent, H (nope + v)], laid out once as a
    # serving engine lays out its weights.
    w_kv = torch.cat([inputs.w_uk.transpose(1, 2), inputs.w_uv], -1)
    w_kv = w_kv.transpose(0, 1).reshape(geometry.latent, -1).contiguous()

    def run() -> Outputs:
        o = q.new_zeros((*q.shape[:2], geometry.v_head_dim))
        lse = torch.full(q.shape[:2], NEG_INF, device=q.device)
        absorbed = None
        for index, bound in enumerate(passes):
            rows = _gather_rows(inputs, bound)
            if bound.step.form == "decompressed":
                part = _attend_decompressed(inputs, bound, q.contiguous(), rows, w_kv)
            else:
                absorbed = _absorbed_queries(inputs) if absorbed is None else absorbed
                part = _attend_absorbed(inputs, bound, absorbed, rows)
            if index == 0:
                o, lse = part
            else:
                merged, lse = merge_partials(
                    torch.stack([o.float(), part[0].float()]), torch.stack([lse, part[1]]), dim=0
                )
                # Parts stay float32 until the last merge.
                o = merged
        return Outputs(o.to(q.dtype), lse)

    return Bound(run, executed_tokens=bounds[-1])


def _attend_decompressed(
    inputs: MlaPrefillInputs, bound: BoundPass, q: Tensor, rows: Tensor, w_kv: Tensor
) -> tuple[Tensor, Tensor]:
    """Up-projects the gathered rows to [Tk, H, nope + v] and attends 192/128 wide."""
    kv = rows[:, : inputs.geometry.latent] @ w_kv
    return _attend(inputs, bound, q, kv, rows, inputs.geometry.v_head_dim)


def _attend_absorbed(
    inputs: MlaPrefillInputs, bound: BoundPass, q: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """Attends the rows as they are, 576/512 wide, and moves the outputs out of latent space."""
    o, lse = _attend(inputs, bound, q, rows, rows, inputs.geometry.latent)
    return torch.bmm(o.transpose(0, 1), inputs.w_uv).transpose(0, 1), lse


def _attend(
    inputs: MlaPrefillInputs, bound: BoundPass, q: Tensor, kv: Tensor, rows: Tensor, v_dim: int
) -> tuple[Tensor, Tensor]:
    tokens, heads, _ = q.shape
    # Queries outside every span keep no keys: 0 and -inf.
    o = q.new_zeros((tokens, heads, v_dim))
    lse = torch.full((tokens, heads), NEG_INF, device=q.device)
    bound.kernel(
        q=q,
        kv=kv,
        rows=rows,
        o=o,
        lse=lse,
        spans=bound.spans,
        scale_log2=inputs.geometry.scale * LOG2_E,
    )
    return o, lse


def _absorbed_queries(inputs: MlaPrefillInputs) -> Tensor:
    """[T, H, 576]: each head's queries moved into latent space, the rotary part behind."""
    geometry, q = inputs.geometry, inputs.q
    absorbed = q.new_empty((*q.shape[:2], geometry.absorbed_qk_dim))
    latent = torch.bmm(q[..., : geometry.nope].transpose(0, 1), inputs.w_uk)
    absorbed[..., : geometry.latent] = latent.transpose(0, 1)
    absorbed[..., geometry.latent :] = q[..., geometry.nope :]
    return absorbed


def _gather_rows(inputs: MlaPrefillInputs, bound: BoundPass) -> Tensor:
    """The pass's cache rows [Tk, 576], packed in span order.

    A copy of 1,152 bytes a key beside at least 16,384 x 320 multiply-adds a key and head; what
    follows then reads rows in order, whatever the pages.
    """
    width = inputs.geometry.absorbed_qk_dim
    rows = inputs.latent_kv.new_empty((bound.keys, width))
    if len(bound.cached_row):
        slots = slot_indices(
            inputs.block_table, bound.cached_sequence, bound.cached_position, inputs.page_size
        )
        rows[bound.cached_row] = inputs.kv_cache.flatten(0, 1).index_select(0, slots)
    if len(bound.new_row):
        rows[bound.new_row] = inputs.latent_kv.index_select(0, bound.new_source)
    return rows


def _bind_pass(
    step: Pass,
    kernel: Callable[..., None],
    bounds: list[int],
    prefixes: list[int],
    device: torch.device,
) -> BoundPass:
    table, cached, new = [], [], []
    first_key = 0
    for span in step.spans:
        table.append((bounds[span.sequence] + span.query_begin, span.queries, first_key, span.keys))
        cached.append(_cached_rows(span, prefixes[span.sequence], first_key))
        new.append(_new_rows(span, prefixes[span.sequence], bounds[span.sequence], first_key))
        first_key += span.keys
    cached_row, cached_sequence, cached_position = (
        torch.cat(columns).to(device) for columns in zip(*cached, strict=True)
    )
    new_row, new_source = (torch.cat(columns).to(device) for columns in zip(*new, strict=True))
    return BoundPass(
        step=step,
        kernel=kernel,
        spans=torch.tensor(table, dtype=torch.int32, device=device),
        cached_row=cached_row,
        cached_sequence=cached_sequence,
        cached_position=cached_position,
        new_row=new_row,
        new_source=new_source,
        keys=first_key,
    )


def _cached_rows(span: Span, prefix: int, first_row: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gathered row, sequence and position of the span's keys that lie in the prefix."""
    position = torch.arange(span.key_begin, max(span.key_begin, min(_key_end(span), prefix)))
    row = first_row + torch.arange(len(position))
    return row, torch.full_like(position, span.sequence), position


def _new_rows(span: Span, prefix: int, first_token: int, first_row: int) -> tuple[Tensor, Tensor]:
    """Gathered row and source row of the span's keys that lie in the new tokens."""
    begin = max(span.key_begin, prefix)
    position = torch.arange(begin, max(begin, _key_end(span)))
    return first_row + position - span.key_begin, first_token + position - prefix


def _key_end(span: Span) -> int:
    return span.key_begin + span.keys


def _can_run(platform: str, case: MlaPrefillCase) -> Support:
    del case  # any lengths, pages, heads and dtypes of a valid case
    return triton_support(platform)


def _implementation(form: PrefillForm, summary: str) -> Implementation:
    return Implementation(
        name=f"triton_{form}",
        operation="prefill",
        summary=summary,
        can_run=_can_run,
        bind=functools.partial(bind_prefill, form=form),
    )


TRITON_DECOMPRESSED = _implementation(
    "decompressed", "prefix and new tokens decompressed (192/128), one softmax; Triton"
)
TRITON_ABSORBED = _implementation(
    "absorbed", "prefix and new tokens as latents (576/512), one softmax; Triton"
)
TRITON_CHUNKED_DECOMPRESSED = _implementation(
    "chunked_decompressed", "chunks decompressed, prefix decompressed apart (192/128); Triton"
)
TRITON_CHUNKED_ABSORBED = _implementation(
    "chunked_absorbed", "chunks decompressed, prefix as latents apart (576/512); Triton"
)
