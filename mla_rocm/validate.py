"""Checks the arguments of the public functions once, up front: one clear error each."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mla_rocm.base import PLATFORMS
from mla_rocm.cases import DTYPES, PAGE_SIZES
from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import ceil_div
from mla_rocm.inputs import MlaDecodeInputs, MlaPrefillInputs
from mla_rocm.platforms import platform_of


def validate_decode(inputs: MlaDecodeInputs) -> None:
    """Raises ``MlaArgumentError`` unless every decode kernel may trust the tensors."""
    geometry = inputs.geometry
    batch = _leading(inputs.q, "q", 3)
    _require_shape("q", inputs.q, (batch, geometry.heads, geometry.absorbed_qk_dim))
    _require_common(inputs.q, {"kv_cache": inputs.kv_cache})
    _require_indices(inputs.q, {"block_table": inputs.block_table, "seq_lens": inputs.seq_lens})
    if batch == 0:
        raise MlaArgumentError("q has no sequences: give a batch of 1 or more")
    splits = inputs.num_kv_splits
    if splits is not None and (not isinstance(splits, int) or splits < 1):
        raise MlaArgumentError(f"num_kv_splits is {splits!r}: give 1 or more, or None to choose")
    _require_paged(
        inputs.kv_cache,
        inputs.block_table,
        "seq_lens",
        inputs.seq_lens,
        batch,
        geometry.absorbed_qk_dim,
    )


def validate_prefill(inputs: MlaPrefillInputs) -> None:
    """Raises ``MlaArgumentError`` unless every prefill kernel may trust the tensors."""
    geometry = inputs.geometry
    tokens = _leading(inputs.q, "q", 3)
    _require_shape("q", inputs.q, (tokens, geometry.heads, geometry.decompressed_qk_dim))
    _require_shape("latent_kv", inputs.latent_kv, (tokens, geometry.absorbed_qk_dim))
    _require_shape("w_uk", inputs.w_uk, (geometry.heads, geometry.nope, geometry.latent))
    _require_shape("w_uv", inputs.w_uv, (geometry.heads, geometry.latent, geometry.v_head_dim))
    _require_common(
        inputs.q,
        {
            "latent_kv": inputs.latent_kv,
            "w_uk": inputs.w_uk,
            "w_uv": inputs.w_uv,
            "kv_cache": inputs.kv_cache,
        },
    )
    _require_indices(
        inputs.q,
        {
            "cu_seqlens": inputs.cu_seqlens,
            "block_table": inputs.block_table,
            "prefix_lens": inputs.prefix_lens,
        },
    )
    _require_cu_seqlens(inputs.cu_seqlens, tokens)
    _require_paged(
        inputs.kv_cache,
        inputs.block_table,
        "prefix_lens",
        inputs.prefix_lens,
        inputs.cu_seqlens.shape[0] - 1,
        geometry.absorbed_qk_dim,
    )


def _leading(tensor: Tensor, name: str, dimensions: int) -> int:
    if tensor.dim() != dimensions:
        raise MlaArgumentError(
            f"{name} has {tensor.dim()} dimensions {tuple(tensor.shape)}: give {dimensions}"
        )
    return int(tensor.shape[0])


def _require_shape(name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != expected:
        raise MlaArgumentError(f"{name} has shape {tuple(tensor.shape)}: give {expected}")


def _require_common(q: Tensor, others: Mapping[str, Tensor]) -> None:
    """One supported floating type and one supported device, that of ``q``."""
    dtype_name = str(q.dtype).removeprefix("torch.")
    if dtype_name not in DTYPES:
        raise MlaArgumentError(f"q has dtype {dtype_name}: give one of {', '.join(DTYPES)}")
    if platform_of(q.device) not in PLATFORMS:
        raise MlaArgumentError(f"q is on {q.device}: give tensors on one of {', '.join(PLATFORMS)}")
    for name, tensor in others.items():
        if tensor.dtype != q.dtype:
            raise MlaArgumentError(f"{name} has dtype {tensor.dtype}: give q's, {q.dtype}")
        if tensor.device != q.device:
            raise MlaArgumentError(f"{name} is on {tensor.device}: put it on q's {q.device}")


def _require_indices(q: Tensor, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype != torch.int32:
            raise MlaArgumentError(f"{name} has dtype {tensor.dtype}: give torch.int32")
        if tensor.device != q.device:
            raise MlaArgumentError(f"{name} is on {tensor.device}: put it on q's {q.device}")


def _require_cu_seqlens(cu_seqlens: Tensor, tokens: int) -> None:
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 2:
        raise MlaArgumentError(
            f"cu_seqlens has shape {tuple(cu_seqlens.shape)}: give [batch + 1], batch 1 or more"
        )
    bounds = cu_seqlens.tolist()
    if bounds[0] != 0:
        raise MlaArgumentError(f"cu_seqlens[0] is {bounds[0]}: start at 0")
    for index in range(1, len(bounds)):
        if bounds[index] < bounds[index - 1]:
            raise MlaArgumentError(
                f"cu_seqlens[{index}] is {bounds[index]}, below cu_seqlens[{index - 1}] = "
                f"{bounds[index - 1]}: give non-decreasing offsets"
            )
    if bounds[-1] != tokens:
        raise MlaArgumentError(
            f"cu_seqlens ends at {bounds[-1]}, q has {tokens} tokens: end at the token count"
        )


def _require_paged(
    kv_cache: Tensor,
    block_table: Tensor,
    lengths_name: str,
    lengths: Tensor,
    batch: int,
    width: int,
) -> None:
    """Table entries of cached tokens must name a page of the pool; others may hold anything."""
    pages = _leading(kv_cache, "kv_cache", 3)
    page_size = int(kv_cache.shape[1])
    if page_size not in PAGE_SIZES:
        raise MlaArgumentError(
            f"kv_cache has pages of {page_size} tokens: give one of "
            f"{', '.join(map(str, PAGE_SIZES))}"
        )
    _require_shape("kv_cache", kv_cache, (pages, page_size, width))
    if not kv_cache.is_contiguous():
        raise MlaArgumentError(
            "kv_cache is not contiguous: give a contiguous pool (a kernel would copy all of it)"
        )
    _require_shape(lengths_name, lengths, (batch,))
    if _leading(block_table, "block_table", 2) != batch:
        raise MlaArgumentError(
            f"block_table has {block_table.shape[0]} rows: give one per sequence, {batch}"
        )
    columns = int(block_table.shape[1])
    for index, length in enumerate(lengths.tolist()):
        if length < 0:
            raise MlaArgumentError(f"{lengths_name}[{index}] is {length}: give 0 or more")
        if length > columns * page_size:
            raise MlaArgumentError(
                f"{lengths_name}[{index}] is {length}, but block_table holds {columns} pages of "
                f"{page_size} tokens: give {ceil_div(length, page_size)} columns"
            )
    column = torch.arange(columns, device=block_table.device)
    used = column * page_size < lengths[:, None]
    outside = used & ((block_table < 0) | (block_table >= pages))
    if bool(outside.any()):
        row, entry = outside.nonzero()[0].tolist()
        raise MlaArgumentError(
            f"block_table[{row}, {entry}] is {int(block_table[row, entry])}, in use and outside "
            f"the cache's {pages} pages: give a page from 0 to {pages - 1}"
        )
