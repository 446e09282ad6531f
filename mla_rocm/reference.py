"""The oracles: MLA decode and prefill in float32, written to be read rather than to be fast.

Only the order of float32 sums separates these from exact arithmetic on the given inputs. Products
run in full float32 unless torch's global matmul precision was lowered, which they refuse.
"""

import torch
from torch import Tensor

from mla_rocm.base import Outputs
from mla_rocm.errors import MlaArgumentError
from mla_rocm.inputs import MlaDecodeInputs, MlaPrefillInputs
from mla_rocm.paging import gather_context

# Query rows scored at a time: bounds the score matrix at heads x 256 x keys.
_QUERY_ROWS = 256


def reference_decode(inputs: MlaDecodeInputs) -> Outputs:
    """Each sequence's softmax over its cached rows, all in float32.

    Returns:
        o [B, H, 512] and lse [B, H], float32; a sequence without keys gives 0 and -inf.
    """
    _require_full_float32()
    geometry = inputs.geometry
    batch, heads, _ = inputs.q.shape
    o = torch.zeros((batch, heads, geometry.latent), device=inputs.q.device)
    lse = torch.full((batch, heads), float("-inf"), device=inputs.q.device)
    for sequence, length in enumerate(inputs.seq_lens.tolist()):
        if length == 0:
            continue
        rows = gather_context(inputs.kv_cache, inputs.block_table, sequence, length).float()
        scores = inputs.q[sequence].float() @ rows.T * geometry.scale
        o[sequence] = scores.softmax(-1) @ rows[:, : geometry.latent]
        lse[sequence] = scores.logsumexp(-1)
    return Outputs(o, lse)


def reference_prefill(inputs: MlaPrefillInputs) -> Outputs:
    """Every key and value decompressed in float32; causal softmax over prefix and new tokens.

    Returns:
        o [T, H, 128] and lse [T, H], float32.
    """
    _require_full_float32()
    geometry = inputs.geometry
    tokens, heads, _ = inputs.q.shape
    o = torch.zeros((tokens, heads, geometry.v_head_dim), device=inputs.q.device)
    lse = torch.zeros((tokens, heads), device=inputs.q.device)
    bounds = inputs.cu_seqlens.tolist()
    for sequence, prefix in enumerate(inputs.prefix_lens.tolist()):
        begin, end = bounds[sequence], bounds[sequence + 1]
        cached = gather_context(inputs.kv_cache, inputs.block_table, sequence, prefix)
        rows = torch.cat([cached, inputs.latent_kv[begin:end]]).float()
        key, value = _decompress(rows, inputs)
        key_position = torch.arange(len(rows), device=rows.device)
        for first in range(begin, end, _QUERY_ROWS):
            last = min(first + _QUERY_ROWS, end)
            query = inputs.q[first:last].float().transpose(0, 1)
            scores = query @ key.transpose(1, 2) * geometry.scale
            query_position = prefix + torch.arange(first - begin, last - begin, device=rows.device)
            scores[:, key_position > query_position[:, None]] = float("-inf")
            o[first:last] = (scores.softmax(-1) @ value).transpose(0, 1)
            lse[first:last] = scores.logsumexp(-1).T
    return Outputs(o, lse)


def _decompress(rows: Tensor, inputs: MlaPrefillInputs) -> tuple[Tensor, Tensor]:
    """Cache rows [S, 576] to keys [H, S, 192] and values [H, S, 128]."""
    latent, rotary = rows.split([inputs.geometry.latent, inputs.geometry.rope], -1)
    key = torch.einsum("sl,hnl->hsn", latent, inputs.w_uk.float())
    value = torch.einsum("sl,hlv->hsv", latent, inputs.w_uv.float())
    return torch.cat([key, rotary.expand(len(key), -1, -1)], -1), value


def _require_full_float32() -> None:
    if torch.get_float32_matmul_precision() != "highest":
        raise MlaArgumentError(
            "torch's float32 matmul precision is lowered, so this reference would not be one: "
            "call torch.set_float32_matmul_precision('highest')"
        )
