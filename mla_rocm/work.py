"""What one call must move and compute, for the rates beside its time.

Bytes are what is visited, each byte once: never the allocation, and shared pages once however many
sequences attend to them. FLOPs are multiply-adds as 2, without padding.
"""

from dataclasses import dataclass

from mla_rocm.cases import MlaDecodeCase, MlaPrefillCase, shared_pages
from mla_rocm.cost import (
    absorption_flops,
    decode_attention_flops,
    decompression_flops,
    flops_per_pair,
)
from mla_rocm.geometry import MlaGeometry, ceil_div
from mla_rocm.kda_case import KdaDecodeCase, packed_width
from mla_rocm.launch import ITEMSIZE
from mla_rocm.prefill_plan import CHUNK_TOKENS, Pass, PrefillForm, plan_prefill


@dataclass(frozen=True)
class StepWork:
    """Bytes to and from memory, and FLOPs, of one call of one layer."""

    hbm_bytes: int
    flops: int


@dataclass(frozen=True)
class PrefillWork:
    """One prefill in one form, its attention and its projections each a launch of its own.

    Attributes:
        hbm_bytes: every tensor between launches, written once and read once.
        attention_flops: of the query-key pairs.
        projection_flops: of keys and values made from latents, or of queries moved into latent
            space and outputs back.
    """

    hbm_bytes: int
    attention_flops: int
    projection_flops: int

    @property
    def flops(self) -> int:
        """All of them."""
        return self.attention_flops + self.projection_flops


def decode_work(case: MlaDecodeCase) -> StepWork:
    """A decode step as a whole: cache, queries, tables in; outputs out; nothing in between."""
    return StepWork(
        hbm_bytes=_decode_input_bytes(case) + _decode_output_bytes(case),
        flops=decode_attention_flops(case.geometry, case.tokens),
    )


def decode_stage_work(case: MlaDecodeCase, stage: str, partial_rows: int) -> StepWork:
    """One stage of a split-KV decode.

    Args:
        case: the step.
        stage: ``stage1`` or ``stage2``.
        partial_rows: written splits, summed over sequences and heads: what stage 1 leaves of one
            output row and one log-sum-exp each, in float32.
    """
    partial_bytes = partial_rows * (case.geometry.latent + 1) * 4
    if stage == "stage1":
        return StepWork(
            hbm_bytes=_decode_input_bytes(case) + partial_bytes,
            flops=decode_attention_flops(case.geometry, case.tokens),
        )
    return StepWork(
        hbm_bytes=partial_bytes + 4 * case.batch + _decode_output_bytes(case),
        flops=2 * partial_rows * case.geometry.latent,
    )


def distinct_pages(case: MlaDecodeCase) -> int:
    """Cache pages that the step visits, shared ones once."""
    pages = [ceil_div(length, case.page_size) for length in case.context_lengths]
    if case.table != "shared":
        return sum(pages)
    common = shared_pages(case.context_lengths, case.page_size)
    return common + sum(count - common for count in pages if count)


def distinct_tokens(case: MlaDecodeCase) -> int:
    """Cached tokens that the step visits, shared ones once."""
    if case.table != "shared":
        return case.tokens
    common = shared_pages(case.context_lengths, case.page_size) * case.page_size
    used = [length for length in case.context_lengths if length]
    return case.tokens - (len(used) - 1) * common


def _decode_input_bytes(case: MlaDecodeCase) -> int:
    itemsize, geometry = ITEMSIZE[case.dtype], case.geometry
    entries = sum(ceil_div(length, case.page_size) for length in case.context_lengths)
    return (
        distinct_tokens(case) * geometry.cache_bytes_per_token(itemsize)
        + case.batch * case.heads * geometry.absorbed_qk_dim * itemsize
        + 4 * (entries + case.batch)
    )


def _decode_output_bytes(case: MlaDecodeCase) -> int:
    return case.batch * case.heads * (case.geometry.latent * ITEMSIZE[case.dtype] + 4)


def kda_decode_work(case: KdaDecodeCase) -> StepWork:
    """A KDA decode step: each state in and out, packed rows in, outputs out.

    FLOPs: decay 1, prediction 2, update 2 and output 2 for every state element.
    """
    heads, k, v = case.heads, case.head_dim_k, case.head_dim_v
    itemsize = ITEMSIZE[case.dtype]
    state_bytes = case.tokens * heads * k * v * 4
    row_bytes = case.tokens * packed_width(heads, k, v) * itemsize
    return StepWork(
        hbm_bytes=2 * state_bytes
        + row_bytes
        + heads * (k + 1) * 4
        + case.batch * (4 + heads * v * itemsize),
        flops=7 * case.tokens * heads * k * v,
    )


def prefill_work(
    case: MlaPrefillCase, form: PrefillForm, chunk_tokens: int = CHUNK_TOKENS
) -> PrefillWork:
    """A prefill in one form, pass by pass as ``plan_prefill`` cuts it."""
    geometry, itemsize = case.geometry, ITEMSIZE[case.dtype]
    passes = plan_prefill(case.new_lengths, case.prefix_lengths, form, chunk_tokens)
    return PrefillWork(
        hbm_bytes=sum(_pass_bytes(step, geometry, itemsize) for step in passes),
        attention_flops=sum(step.pairs * flops_per_pair(geometry, step.form) for step in passes),
        projection_flops=sum(_projection_flops(step, geometry) for step in passes),
    )


def _pass_bytes(step: Pass, geometry: MlaGeometry, itemsize: int) -> int:
    queries, keys = _counts(step)
    heads, latent, rope = geometry.heads, geometry.latent, geometry.rope
    rows = keys * geometry.absorbed_qk_dim
    weights = heads * latent * (geometry.nope + geometry.v_head_dim)
    q = queries * heads * geometry.decompressed_qk_dim
    o = queries * heads * geometry.v_head_dim
    if step.form == "decompressed":
        # Latents in, keys and values out and in again beside the shared rotary key.
        key_values = keys * heads * (geometry.nope + geometry.v_head_dim)
        elements = rows + weights + 2 * key_values + q + keys * rope + o
    else:
        # Queries in, out in latent space and in again; outputs out in latent space, in, and out.
        latent_q = queries * heads * geometry.absorbed_qk_dim
        latent_o = queries * heads * latent
        elements = q + weights + 2 * latent_q + rows + 2 * latent_o + o
    return elements * itemsize + 4 * queries * heads


def _projection_flops(step: Pass, geometry: MlaGeometry) -> int:
    queries, keys = _counts(step)
    if step.form == "decompressed":
        return decompression_flops(geometry, keys)
    return absorption_flops(geometry, queries)


def _counts(step: Pass) -> tuple[int, int]:
    """Queries and keys of a pass, over its spans."""
    return sum(span.queries for span in step.spans), sum(span.keys for span in step.spans)


def decode_memory_bytes(case: MlaDecodeCase) -> int:
    """Memory that a checked decode point takes at most: its inputs, one oracle at a time, outputs.

    The oracle holds one sequence's rows as they are and in float32, with its scores and
    probabilities; the torch forms hold as much at the most.
    """
    itemsize, width = ITEMSIZE[case.dtype], case.geometry.absorbed_qk_dim
    longest = max(case.context_lengths)
    # The pool is whole pages, laid out in an order of 8 bytes each.
    pool = distinct_pages(case) * (case.page_size * width * itemsize + 8)
    table = case.batch * ceil_div(longest, case.page_size) * 4
    # Providers take an index a token: int64, made from positions and pages.
    indices = 3 * case.batch * ceil_div(longest, case.page_size) * case.page_size * 8
    oracle = longest * (width * (itemsize + 4) + 3 * case.heads * 4)
    return pool + table + indices + oracle


def prefill_memory_bytes(case: MlaPrefillCase) -> int:
    """As ``decode_memory_bytes``, for a prefill; the oracle decompresses a sequence in float32."""
    itemsize, geometry = ITEMSIZE[case.dtype], case.geometry
    keys = [new + prefix for new, prefix in zip(case.new_lengths, case.prefix_lengths, strict=True)]
    rows = sum(keys) * geometry.absorbed_qk_dim * itemsize
    per_query = geometry.heads * (geometry.decompressed_qk_dim * 8 + 3 * geometry.latent * 4)
    per_key = (
        geometry.absorbed_qk_dim * 8
        + geometry.heads * (2 * geometry.decompressed_qk_dim + geometry.v_head_dim + 2 * 256) * 4
    )
    return rows + case.tokens * per_query + max(keys) * per_key
