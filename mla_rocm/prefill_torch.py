"""MLA prefill in torch: decompressed, absorbed, and chunked with the prefix in either form.

All four are the same function. They differ in where the up-projection is spent: on keys and
values, whose products are then 192 and 128 wide, or on queries and outputs, whose products with
the latents are then 576 and 512 wide.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mla_rocm.base import Bound, Implementation, Outputs, Support
from mla_rocm.cases import MlaPrefillCase
from mla_rocm.inputs import MlaPrefillInputs
from mla_rocm.numerics import bmm_fp32, merge_partials, to_operand
from mla_rocm.paging import gather_context
from mla_rocm.platforms import torch_support
from mla_rocm.tiled_attention import attend

# New tokens per chunk, and prefix tokens decompressed at a time, in the chunked forms: bounds the
# decompressed keys and values at 126 MB for K3's 12 heads in bf16.
CHUNK_TOKENS = 16384

# Queries absorbed at a time: bounds latent outputs at 50 MB of float32 for 12 heads.
ABSORB_TOKENS = 2048

# [Tq, H, 192] queries against [Tk, 576] cache rows to o [Tq, H, 128] and lse [Tq, H], float32.
# The last argument is the position of the first query among the keys; None hides no key.
Form = Callable[[MlaPrefillInputs, Tensor, Tensor, int | None], tuple[Tensor, Tensor]]


def attend_decompressed(
    inputs: MlaPrefillInputs, q: Tensor, rows: Tensor, first_position: int | None
) -> tuple[Tensor, Tensor]:
    """Up-projects every row to per-head keys and values, then attends 192/128 wide."""
    geometry = inputs.geometry
    heads, tokens = q.shape[1], rows.shape[0]
    latent = to_operand(rows[:, : geometry.latent]).expand(heads, -1, -1)
    key = rows.new_empty((heads, tokens, geometry.decompressed_qk_dim))
    key[..., : geometry.nope] = bmm_fp32(latent, to_operand(inputs.w_uk).transpose(1, 2))
    key[..., geometry.nope :] = rows[:, geometry.latent :]
    value = bmm_fp32(latent, to_operand(inputs.w_uv)).to(rows.dtype)
    # One query head per key head.
    o, lse = attend(q.transpose(0, 1).unsqueeze(1), key, value, geometry.scale, first_position)
    return o.squeeze(1).transpose(0, 1), lse.squeeze(1).T


def attend_absorbed(
    inputs: MlaPrefillInputs, q: Tensor, rows: Tensor, first_position: int | None
) -> tuple[Tensor, Tensor]:
    """Moves queries into latent space, attends the rows as they are 576/512 wide, moves back."""
    geometry = inputs.geometry
    tokens, heads, _ = q.shape
    w_uk, w_uv = to_operand(inputs.w_uk), to_operand(inputs.w_uv)
    o = torch.empty((tokens, heads, geometry.v_head_dim), device=q.device)
    lse = torch.empty((tokens, heads), device=q.device)
    for begin in range(0, tokens, ABSORB_TOKENS):
        block = q[begin : begin + ABSORB_TOKENS].transpose(0, 1)
        absorbed = q.new_empty((*block.shape[:2], geometry.absorbed_qk_dim))
        absorbed[..., : geometry.latent] = bmm_fp32(to_operand(block[..., : geometry.nope]), w_uk)
        absorbed[..., geometry.latent :] = block[..., geometry.nope :]
        # All query heads share the one key head, which is the cache row itself.
        o_latent, lse_block = attend(
            absorbed.unsqueeze(0),
            rows.unsqueeze(0),
            rows[:, : geometry.latent].unsqueeze(0),
            geometry.scale,
            None if first_position is None else first_position + begin,
        )
        end = begin + block.shape[1]
        o[begin:end] = bmm_fp32(to_operand(o_latent.squeeze(0).to(q.dtype)), w_uv).transpose(0, 1)
        lse[begin:end] = lse_block.squeeze(0).T
    return o, lse


def attend_prefix(
    inputs: MlaPrefillInputs, q: Tensor, rows: Tensor, form: Form, chunk_tokens: int
) -> tuple[Tensor, Tensor]:
    """All queries over all prefix rows, ``chunk_tokens`` rows at a time, merged."""
    parts = [form(inputs, q, piece, None) for piece in rows.split(chunk_tokens)]
    return _merge(parts)


def bind_single_softmax(inputs: MlaPrefillInputs, form: Form) -> Bound:
    """Prefix and new tokens of each sequence under one causal softmax, all in ``form``."""

    def attend_sequence(q: Tensor, prefix: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        return form(inputs, q, torch.cat([prefix, new]), prefix.shape[0])

    return _bind(inputs, attend_sequence)


def bind_chunked(
    inputs: MlaPrefillInputs, prefix_form: Form, chunk_tokens: int = CHUNK_TOKENS
) -> Bound:
    """New tokens in chunks; each attends itself decompressed and what came before it apart.

    What came before (the cached prefix and the earlier chunks, as latents) is attended in
    ``prefix_form`` and merged with the chunk's own part by log-sum-exp.
    """

    def attend_sequence(q: Tensor, prefix: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.cat([prefix, new])
        outputs = []
        for begin in range(0, q.shape[0], chunk_tokens):
            chunk = q[begin : begin + chunk_tokens]
            before = prefix.shape[0] + begin
            own_rows = rows[before : before + chunk.shape[0]]
            part = attend_decompressed(inputs, chunk, own_rows, 0)
            if before:
                earlier = attend_prefix(inputs, chunk, rows[:before], prefix_form, chunk_tokens)
                part = _merge([earlier, part])
            outputs.append(part)
        o, lse = zip(*outputs, strict=True)
        return torch.cat(o), torch.cat(lse)

    return _bind(inputs, attend_sequence)


def _bind(
    inputs: MlaPrefillInputs,
    attend_sequence: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Bound:
    bounds = inputs.cu_seqlens.tolist()
    prefixes = inputs.prefix_lens.tolist()

    def run() -> Outputs:
        q = inputs.q
        o = q.new_empty((*q.shape[:2], inputs.geometry.v_head_dim))
        lse = torch.empty(q.shape[:2], device=q.device)
        for sequence, prefix in enumerate(prefixes):
            begin, end = bounds[sequence], bounds[sequence + 1]
            if begin == end:
                continue
            cached = gather_context(inputs.kv_cache, inputs.block_table, sequence, prefix)
            o[begin:end], lse[begin:end] = attend_sequence(
                q[begin:end], cached, inputs.latent_kv[begin:end]
            )
        return Outputs(o, lse)

    return Bound(run, executed_tokens=bounds[-1])


def _merge(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if len(parts) == 1:
        return parts[0]
    o, lse = zip(*parts, strict=True)
    return merge_partials(torch.stack(o), torch.stack(lse), dim=0)


def _can_run(platform: str, case: MlaPrefillCase) -> Support:
    del case  # any lengths, pages, heads and dtypes of a valid case
    return torch_support(platform)


TORCH_DECOMPRESSED = Implementation(
    name="torch_decompressed",
    operation="prefill",
    summary="prefix and new tokens decompressed (192/128), one softmax; tiled torch products",
    can_run=_can_run,
    bind=lambda inputs: bind_single_softmax(inputs, attend_decompressed),
)

TORCH_ABSORBED = Implementation(
    name="torch_absorbed",
    operation="prefill",
    summary="prefix and new tokens as latents (576/512), one softmax; tiled torch products",
    can_run=_can_run,
    bind=lambda inputs: bind_single_softmax(inputs, attend_absorbed),
)

TORCH_CHUNKED_DECOMPRESSED = Implementation(
    name="torch_chunked_decompressed",
    operation="prefill",
    summary="chunks decompressed, prefix decompressed apart (192/128), log-sum-exp merge",
    can_run=_can_run,
    bind=lambda inputs: bind_chunked(inputs, attend_decompressed),
)

TORCH_CHUNKED_ABSORBED = Implementation(
    name="torch_chunked_absorbed",
    operation="prefill",
    summary="chunks decompressed, prefix as latents apart (576/512), log-sum-exp merge",
    can_run=_can_run,
    bind=lambda inputs: bind_chunked(inputs, attend_absorbed),
)
