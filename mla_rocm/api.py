"""The public functions: validate once, pick an implementation that can run, run it."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from mla_rocm.base import Implementation
from mla_rocm.cases import DtypeName, MlaDecodeCase, MlaPrefillCase
from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import MlaGeometry
from mla_rocm.implementations import DECODE_IMPLEMENTATIONS, PREFILL_IMPLEMENTATIONS
from mla_rocm.inputs import MlaDecodeInputs, MlaPrefillInputs
from mla_rocm.platforms import platform_of
from mla_rocm.validate import validate_decode, validate_prefill


def mla_decode(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    geometry: MlaGeometry,
    num_kv_splits: int | None = None,
    implementation: str = "auto",
) -> tuple[Tensor, Tensor | None]:
    """One absorbed MLA decode step over a paged latent cache.

    Reads ``seq_lens`` and the used part of ``block_table`` on the host to validate them, which
    waits for the device: benchmarks time ``Implementation.bind(...).fn`` instead.

    Args:
        q: [B, H, 576] float32, float16 or bfloat16: absorbed queries, rotary part last, rotated.
        kv_cache: [pages, page_size, 576], q's dtype, contiguous; page_size 1, 16 or 64.
        block_table: int32 [B, max_pages]; entries past a sequence's length may hold anything.
        seq_lens: int32 [B]; 0 is allowed.
        geometry: widths and the scale, (nope + rope)^-0.5.
        num_kv_splits: splits of each context, or None to let the implementation choose.
        implementation: a name from ``DECODE_IMPLEMENTATIONS``, or ``auto``: the first that can.

    Returns:
        o [B, H, 512] in q's dtype, in latent space, and lse [B, H] float32. A sequence of length 0
        gives 0 and -inf. The lse is None from an implementation that returns none (aiter).

    Raises:
        MlaArgumentError: an argument is wrong; the message names it.
        NotImplementedError: the named implementation cannot run this, or none can; with reasons.
    """
    inputs = MlaDecodeInputs(geometry, q, kv_cache, block_table, seq_lens, num_kv_splits)
    validate_decode(inputs)
    case = MlaDecodeCase(
        context_lengths=tuple(seq_lens.tolist()),
        heads=geometry.heads,
        page_size=inputs.page_size,
        num_kv_splits=num_kv_splits,
        dtype=_dtype_name(q.dtype),
    )
    chosen = select(DECODE_IMPLEMENTATIONS, implementation, platform_of(q.device), case)
    outputs = chosen.bind(inputs).fn()
    return outputs.o, outputs.lse


def mla_prefill(
    q: Tensor,
    latent_kv: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
    cu_seqlens: Tensor,
    *,
    geometry: MlaGeometry,
    kv_cache: Tensor | None = None,
    block_table: Tensor | None = None,
    prefix_lens: Tensor | None = None,
    implementation: str = "auto",
) -> tuple[Tensor, Tensor | None]:
    """One varlen causal MLA prefill, after a cached prefix or none.

    Waits for the device to validate, as ``mla_decode`` does.

    Args:
        q: [T, H, 192] float32, float16 or bfloat16: 128 without, then 64 with rotation.
        latent_kv: [T, 576], q's dtype: the new tokens' latents, rotated key last.
        w_uk: [H, 128, 512], q's dtype: latents to keys.
        w_uv: [H, 512, 128], q's dtype: latents to values.
        cu_seqlens: int32 [B + 1], from 0 to T, non-decreasing.
        geometry: widths and the scale, (nope + rope)^-0.5.
        kv_cache, block_table, prefix_lens: the paged prefix, as in ``mla_decode``; all three, or
            none for no prefix.
        implementation: a name from ``PREFILL_IMPLEMENTATIONS``, or ``auto``: the first that can.

    Returns:
        o [T, H, 128] in q's dtype and lse [T, H] float32.

    Raises:
        MlaArgumentError: an argument is wrong; the message names it.
        NotImplementedError: the named implementation cannot run this, or none can; with reasons.
    """
    if kv_cache is None and block_table is None and prefix_lens is None:
        batch = max(0, cu_seqlens.numel() - 1)
        kv_cache = q.new_empty((0, 1, geometry.absorbed_qk_dim))
        block_table = torch.zeros((batch, 1), dtype=torch.int32, device=q.device)
        prefix_lens = torch.zeros(batch, dtype=torch.int32, device=q.device)
    if kv_cache is None or block_table is None or prefix_lens is None:
        raise MlaArgumentError(
            "kv_cache, block_table and prefix_lens describe one prefix: give all three, or none"
        )
    inputs = MlaPrefillInputs(
        geometry, q, latent_kv, w_uk, w_uv, cu_seqlens, kv_cache, block_table, prefix_lens
    )
    validate_prefill(inputs)
    case = MlaPrefillCase(
        new_lengths=tuple(cu_seqlens.diff().tolist()),
        prefix_lengths=tuple(prefix_lens.tolist()),
        heads=geometry.heads,
        dtype=_dtype_name(q.dtype),
        page_size=inputs.page_size,
    )
    chosen = select(PREFILL_IMPLEMENTATIONS, implementation, platform_of(q.device), case)
    outputs = chosen.bind(inputs).fn()
    return outputs.o, outputs.lse


def select(
    implementations: Mapping[str, Implementation],
    name: str,
    platform: str,
    case: MlaDecodeCase | MlaPrefillCase,
) -> Implementation:
    """The implementation of that name, or with ``auto`` the first in the table that can run.

    Raises:
        MlaArgumentError: for a name that is not in the table.
        NotImplementedError: if it, or all of them, cannot run the case here; with every reason.
    """
    if name != "auto" and name not in implementations:
        raise MlaArgumentError(
            f"implementation {name!r} is unknown: give auto or one of {', '.join(implementations)}"
        )
    candidates = implementations.values() if name == "auto" else (implementations[name],)
    reasons = []
    for candidate in candidates:
        support = candidate.can_run(platform, case)
        if support.ok:
            return candidate
        reasons.append(f"{candidate.name}: {support.reason}")
    raise NotImplementedError(f"cannot run {case.id} on {platform}: {'; '.join(reasons)}")


def _dtype_name(dtype: torch.dtype) -> DtypeName:
    return cast(DtypeName, str(dtype).removeprefix("torch."))
