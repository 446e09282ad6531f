"""aiter's MLA decode (AMD's hand-written kernels for MI300X and MI355X), on our inputs."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from mla_rocm.base import Bound, Implementation, Outputs, Support
from mla_rocm.cases import MlaDecodeCase
from mla_rocm.inputs import MlaDecodeInputs, owned_slots
from mla_rocm.platforms import torch_support

# Head counts that aiter has bfloat16 single-token kernels for; others are padded up to the next.
HEAD_COUNTS = (16, 32, 64, 128)

NOT_INSTALLED = (
    "aiter is not installed: AMD's ROCm images of sglang and vLLM have it, or build it with "
    "pip install --no-build-isolation git+https://github.com/ROCm/aiter"
)


def padded_heads(heads: int) -> int | None:
    """The least head count of aiter's that holds ``heads``; None if there is none."""
    return next((count for count in HEAD_COUNTS if count >= heads), None)


def load() -> Callable[..., Any]:
    """aiter's ``mla_decode_fwd``; ImportError, in one line, where it cannot be had."""
    try:
        module = importlib.import_module("aiter.mla")
    except ImportError as error:
        # The package index has another package of that name, without kernels.
        raise ImportError(f"aiter is installed but aiter.mla does not import: {error}") from error
    return module.mla_decode_fwd  # type: ignore[no-any-return]


def bind_decode(inputs: MlaDecodeInputs) -> Bound:
    """One call of ``mla_decode_fwd`` in its split-KV (not persistent) form.

    The cache is passed as pages of one token, as sglang and vLLM pass it: then one index a token,
    and every release agrees on what the index arrays mean. Queries are copied into zero-padded
    heads once, here: an engine that pads has its projection write them so. Padded heads cost
    arithmetic, and partial results, but no cache traffic.
    """
    decode = load()
    q, device, geometry = inputs.q, inputs.q.device, inputs.geometry
    batch, heads, width = q.shape
    kernel_heads = padded_heads(heads)
    padded = q.new_zeros((batch, kernel_heads, width))
    padded[:, :heads] = q
    kv_buffer = inputs.kv_cache.view(-1, 1, 1, width)
    slots = owned_slots(inputs.block_table, inputs.seq_lens, inputs.page_size)
    kv_indices = torch.cat(slots).to(torch.int32)
    kv_indptr = torch.zeros(batch + 1, dtype=torch.int32, device=device)
    kv_indptr[1:] = inputs.seq_lens.cumsum(0)
    qo_indptr = torch.arange(batch + 1, dtype=torch.int32, device=device)
    kv_last_page_lens = torch.ones(batch, dtype=torch.int32, device=device)

    def run() -> Outputs:
        o = q.new_empty((batch, kernel_heads, geometry.latent))
        decode(
            padded,
            kv_buffer,
            o,
            qo_indptr,
            kv_indptr,
            kv_indices,
            kv_last_page_lens,
            1,
            # By name: releases differ in what stands between. aiter's own default is 576^-0.5.
            sm_scale=geometry.scale,
            num_kv_splits=inputs.num_kv_splits,
        )
        # aiter keeps the log-sum-exps per split to itself: with return_lse it looks for another
        # kernel, which it lacks for 16 heads.
        return Outputs(o[:, :heads], None)

    return Bound(run, executed_tokens=len(kv_indices))


def _can_run(platform: str, case: MlaDecodeCase) -> Support:
    if padded_heads(case.heads) is None:
        return Support(False, f"{case.heads} heads: aiter has kernels for up to {HEAD_COUNTS[-1]}")
    if case.dtype != "bfloat16":
        return Support(False, f"{case.dtype}: aiter's kernels take bfloat16 (or 8-bit) alone")
    if min(case.context_lengths) == 0:
        return Support(False, "aiter's merge divides by zero on an empty context: gives NaN")
    if importlib.util.find_spec("aiter") is None:
        return Support(False, NOT_INSTALLED)
    if platform != "rocm":
        return Support(False, "aiter's kernels are AMD code objects: they run on ROCm alone")
    support = torch_support(platform)
    if not support.ok:
        return support
    try:
        load()
    except (ImportError, AttributeError) as error:
        return Support(False, str(error))
    return Support(True)


AITER_DECODE = Implementation(
    name="aiter",
    operation="decode",
    summary="aiter's split-KV decode over token indices, heads padded to 16, splits chosen by it",
    can_run=_can_run,
    bind=bind_decode,
)
