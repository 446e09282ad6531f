"""sglang's Triton MLA decode and extend, on our inputs."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mla_rocm.base import Bound, Implementation, Outputs, Partials, Support
from mla_rocm.cases import MlaDecodeCase, MlaPrefillCase
from mla_rocm.inputs import MlaDecodeInputs, MlaPrefillInputs, owned_slots
from mla_rocm.numerics import NEG_INF
from mla_rocm.platforms import platform_of
from mla_rocm.providers.sglang_kernels import load, sglang_support
from mla_rocm.providers.sglang_splits import scheduled_splits, server_max_splits
from mla_rocm.triton_runtime import compute_units

# What decode_attention_fwd does, launch by launch, in the releases that plan an MLA launch first.
_PLAN = "_mla_launch_plan"
_STAGE1 = "_decode_grouped_att_m_fwd"
_STAGE2 = "_decode_softmax_reducev_fwd"


@dataclass(frozen=True)
class SplitOutputs:
    """``Outputs`` of a kernel that leaves its log-sum-exps per split, [B, H, splits].

    They are merged when asked for, so that a timed run holds sglang's own launches only.
    """

    o: Tensor
    partial_lse: Tensor

    @property
    def lse(self) -> Tensor:
        """[B, H] float32."""
        return self.partial_lse.logsumexp(-1)


def bind_decode(inputs: MlaDecodeInputs) -> Bound:
    """One call of sglang's decode as its server makes it for an MLA model.

    Index arrays and split counts are made once a step for all layers: here. Where the case gives a
    split count it takes the place of the server's bound and of every sequence's count (on gfx950
    with SGLANG_MLA_DECODE_TUNE=1 sglang may still take fewer).
    """
    decode = load("decode_attention_fwd")
    q, device, geometry = inputs.q.contiguous(), inputs.q.device, inputs.geometry
    batch, heads, _ = q.shape
    has_mla = "has_mla" in inspect.signature(decode).parameters
    splits, counts = _splits(inputs, raised_for_mla=has_mla)
    kv_indptr, kv_indices = _indices(inputs.block_table, inputs.seq_lens, inputs.page_size)
    keys = inputs.kv_cache.flatten(0, 1).unsqueeze(1)
    values = keys[..., : geometry.latent]
    partial_o = torch.empty((batch, heads, splits, geometry.latent), device=device)
    # Splits past a context's end are never written: -inf here leaves them out of the merge.
    partial_lse = torch.full((batch, heads, splits), NEG_INF, device=device)
    num_kv_splits = torch.tensor(counts, dtype=torch.int32, device=device)

    def run() -> SplitOutputs:
        o = q.new_empty((batch, heads, geometry.latent))
        decode(
            q,
            keys,
            values,
            o,
            kv_indptr,
            kv_indices,
            partial_o,
            partial_lse,
            num_kv_splits,
            splits,
            geometry.scale,
            1.0,
            1.0,
            # Latents are keys and values at once: the server says so, and each is loaded once.
            **({"has_mla": True} if has_mla else {}),
        )
        return SplitOutputs(o, partial_lse)

    stages: dict[str, Callable[[], Any]] = {}
    if hasattr(_decode_module(), _PLAN):
        stages = _stages(
            q, keys, values, kv_indptr, kv_indices, partial_o, partial_lse, num_kv_splits,
            geometry.scale,
        )  # fmt: skip
    return Bound(run, executed_tokens=len(kv_indices), stages=stages)


def _stages(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    partial_o: Tensor,
    partial_lse: Tensor,
    num_kv_splits: Tensor,
    scale: float,
) -> dict[str, Callable[[], Any]]:
    """sglang's two launches apart, with the one plan that its own entry gives both."""
    module = _decode_module()
    splits = partial_o.shape[2]
    tuned, forced = getattr(module, _PLAN)(q, keys, splits, True)

    def stage1() -> Partials:
        getattr(module, _STAGE1)(
            q, keys, values, partial_o, partial_lse, kv_indptr, kv_indices, num_kv_splits, splits,
            scale, 0.0, has_mla=True, tune_mla=tuned, forced_kv_splits=forced,
        )  # fmt: skip
        return Partials(partial_o, partial_lse, dim=2)

    def stage2() -> SplitOutputs:
        o = q.new_empty((*q.shape[:2], values.shape[-1]))
        getattr(module, _STAGE2)(
            partial_o, partial_lse, q, o, 1.0, values, kv_indptr, num_kv_splits, splits,
            forced_kv_splits=forced,
        )  # fmt: skip
        return SplitOutputs(o, partial_lse)

    return {"stage1": stage1, "stage2": stage2}


def _decode_module() -> Any:
    return importlib.import_module(load("decode_attention_fwd").__module__)


def _splits(inputs: MlaDecodeInputs, *, raised_for_mla: bool) -> tuple[int, tuple[int, ...]]:
    """The bound on splits and each sequence's count."""
    batch, heads, _ = inputs.q.shape
    if inputs.num_kv_splits is not None:
        return inputs.num_kv_splits, (inputs.num_kv_splits,) * batch
    device = inputs.q.device
    units = 0 if device.type == "cpu" else compute_units(device)
    bound = server_max_splits(platform_of(device), units, raised_for_mla=raised_for_mla)
    # The server counts key heads as K3's configuration states them: as many as query heads.
    return bound, scheduled_splits(inputs.seq_lens.tolist(), heads, bound, units, kv_heads=heads)


def bind_extend(inputs: MlaPrefillInputs) -> Bound:
    """As the server's triton backend does: decompressed without a prefix, else absorbed."""
    extend = load("extend_attention_fwd")
    geometry, device = inputs.geometry, inputs.q.device
    tokens, heads, _ = inputs.q.shape
    kv_indptr, kv_indices = _indices(inputs.block_table, inputs.prefix_lens, inputs.page_size)
    absorbed = len(kv_indices) > 0
    longest = int(inputs.cu_seqlens.diff().max())
    pool = inputs.kv_cache.flatten(0, 1).unsqueeze(1)
    w_kv = torch.cat([inputs.w_uk.transpose(1, 2), inputs.w_uv], -1).transpose(0, 1)
    w_kv = w_kv.reshape(geometry.latent, -1).contiguous()

    def run() -> Outputs:
        lse = torch.full((tokens, heads), NEG_INF, device=device)
        if absorbed:
            q = inputs.q.new_empty((tokens, heads, geometry.absorbed_qk_dim))
            nope = inputs.q[..., : geometry.nope].transpose(0, 1)
            q[..., : geometry.latent] = torch.bmm(nope, inputs.w_uk).transpose(0, 1)
            q[..., geometry.latent :] = inputs.q[..., geometry.nope :]
            k = inputs.latent_kv.unsqueeze(1)
            v = k[..., : geometry.latent]
            k_pool, v_pool = pool, pool[..., : geometry.latent]
        else:
            q = inputs.q.contiguous()
            kv = (inputs.latent_kv[:, : geometry.latent] @ w_kv).view(tokens, heads, -1)
            rotary = inputs.latent_kv[:, None, geometry.latent :].expand(-1, heads, -1)
            k = torch.cat([kv[..., : geometry.nope], rotary], -1)
            v = kv[..., geometry.nope :].contiguous()
            # Not read without a prefix.
            k_pool, v_pool = k[:0], v[:0]
        o = q.new_zeros((tokens, heads, v.shape[-1]))
        extend(
            q,
            k,
            v,
            o,
            k_pool,
            v_pool,
            inputs.cu_seqlens,
            kv_indptr,
            kv_indices,
            None,
            True,
            None,
            longest,
            1.0,
            1.0,
            sm_scale=geometry.scale,
            lse_extend=lse,
        )
        if absorbed:
            o = torch.bmm(o.transpose(0, 1), inputs.w_uv).transpose(0, 1)
        return Outputs(o, lse)

    return Bound(run, executed_tokens=tokens)


def _indices(block_table: Tensor, lengths: Tensor, page_size: int) -> tuple[Tensor, Tensor]:
    """sglang's kv_indptr int32 [B + 1] and kv_indices int64 [sum of lengths], a slot a token."""
    kv_indptr = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
    kv_indptr[1:] = lengths.cumsum(0)
    return kv_indptr, torch.cat(owned_slots(block_table, lengths, page_size))


def _decode_can_run(platform: str, case: MlaDecodeCase) -> Support:
    if case.heads == 1:
        return Support(False, "one query head takes another kernel of sglang's, not its MLA one")
    if min(case.context_lengths) == 0:
        return Support(False, "sglang's decode divides by zero on an empty context: gives NaN")
    return sglang_support(platform, "decode_attention_fwd")


def _decode_can_run_stages(platform: str, case: MlaDecodeCase) -> Support:
    support = _decode_can_run(platform, case)
    if support.ok and not hasattr(_decode_module(), _PLAN):
        return Support(False, f"this release of sglang has no {_PLAN}: its stages are not apart")
    return support


def _extend_can_run(platform: str, case: MlaPrefillCase) -> Support:
    if case.tokens == 0:
        return Support(False, "no new tokens: sglang launches no empty grid")
    return sglang_support(platform, "extend_attention_fwd")


SGLANG_DECODE = Implementation(
    name="sglang",
    operation="decode",
    summary="sglang's split-KV decode over token indices, split as its server does for MLA",
    can_run=_decode_can_run,
    bind=bind_decode,
    can_run_stages=_decode_can_run_stages,
)

SGLANG_EXTEND = Implementation(
    name="sglang_extend",
    operation="prefill",
    summary="sglang's extend: decompressed without a prefix, else absorbed, as its server does",
    can_run=_extend_can_run,
    bind=bind_extend,
)
