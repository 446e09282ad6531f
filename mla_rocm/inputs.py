"""Makes the tensors of a case: seeded, paged, free of the traps of public MLA benchmarks.

Scale. Cache rows have unit variance, as the model's normalisation leaves them, the shared rotary
part included. Queries are scaled so that the softmax's scores have a standard deviation of
sqrt(ln(context / 16)), at least 1. With a fixed spread, attention over independent keys would grow
flat with the context and outputs would shrink as 1 / sqrt(context), until an absolute tolerance
accepted anything; with this one a handful of keys carry most of the weight at every context, as in
a trained model, outputs keep a standard deviation near 0.2 and reach 1 to 4, and a key that is
lost, doubled or taken from another sequence shows.
"""

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mla_rocm.cases import MlaDecodeCase, MlaPrefillCase
from mla_rocm.geometry import MlaGeometry
from mla_rocm.paging import lay_out_pages

# Rows drawn at a time: bounds the float32 scratch at 37 MB.
_ROWS_PER_DRAW = 16384

# Written into unused block-table entries by the poisoners: no pool has such pages.
GARBAGE_PAGES = (-1, 2**30, -(2**31), 2**31 - 1)


@dataclass(frozen=True)
class MlaDecodeInputs:
    """Tensors of one absorbed decode step.

    Attributes:
        geometry: head count and widths.
        q: [B, H, 576], absorbed queries: the latent part, then the rotary part, already rotated.
        kv_cache: [pages, page_size, 576], one row per token: the latent, then the rotary key.
        block_table: int32 [B, max_pages]; entry (b, i) is the page of tokens i * page_size on.
        seq_lens: int32 [B], cached tokens of each sequence.
        num_kv_splits: splits of each context, or None to let the implementation choose.
    """

    geometry: MlaGeometry
    q: Tensor
    kv_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor
    num_kv_splits: int | None = None

    @property
    def page_size(self) -> int:
        """Tokens per cache page."""
        return int(self.kv_cache.shape[1])


@dataclass(frozen=True)
class MlaPrefillInputs:
    """Tensors of one varlen prefill.

    Attributes:
        geometry: head count and widths.
        q: [T, H, 192], queries before absorption: 128 without, then 64 with rotation.
        latent_kv: [T, 576], the new tokens' cache rows.
        w_uk: [H, 128, 512], up-projection of latents to keys.
        w_uv: [H, 512, 128], up-projection of latents to values (transposed: latent first).
        cu_seqlens: int32 [B + 1], where each sequence's new tokens begin.
        kv_cache: [pages, page_size, 576], rows of the prefix tokens.
        block_table: int32 [B, max_pages] of the prefix.
        prefix_lens: int32 [B], cached tokens before the new ones.
    """

    geometry: MlaGeometry
    q: Tensor
    latent_kv: Tensor
    w_uk: Tensor
    w_uv: Tensor
    cu_seqlens: Tensor
    kv_cache: Tensor
    block_table: Tensor
    prefix_lens: Tensor

    @property
    def page_size(self) -> int:
        """Tokens per page of the prefix cache."""
        return int(self.kv_cache.shape[1])


def score_spread(context: int) -> float:
    """Standard deviation of a sequence's scores: sqrt(ln(context / 16)), at least 1."""
    return math.sqrt(max(1.0, math.log(max(context, 1) / 16)))


def make_decode_inputs(case: MlaDecodeCase, device: str = "cpu") -> MlaDecodeInputs:
    """Tensors of a decode case.

    Deterministic by the case's seed: the page layout on every device, the values per device type
    (they are drawn where they are used: a 10 GB cache drawn on a CPU would take minutes).

    Args:
        case: what to make.
        device: torch's name of the device to put them on.
    """
    geometry = case.geometry
    dtype = getattr(torch, case.dtype)
    generator = torch.Generator(device).manual_seed(case.seed)
    block_table, pool = lay_out_pages(
        case.context_lengths, case.page_size, case.table, torch.Generator().manual_seed(case.seed)
    )
    kv_cache = _normal((pool, case.page_size, geometry.absorbed_qk_dim), dtype, generator)

    # The latent part of an absorbed query is nope unit-variance entries through w_uk, whose
    # entries have variance 1 / latent: variance nope / latent. Scores then have variance 1.
    width_scale = torch.ones(geometry.absorbed_qk_dim, device=device)
    width_scale[: geometry.latent] = (geometry.nope / geometry.latent) ** 0.5
    spread = torch.tensor([score_spread(n) for n in case.context_lengths], device=device)
    q = torch.randn(
        (case.batch, case.heads, geometry.absorbed_qk_dim), generator=generator, device=device
    )
    q *= width_scale * spread[:, None, None]
    return MlaDecodeInputs(
        geometry=geometry,
        q=q.to(dtype),
        kv_cache=kv_cache,
        block_table=block_table.to(device),
        seq_lens=torch.tensor(case.context_lengths, dtype=torch.int32, device=device),
        num_kv_splits=case.num_kv_splits,
    )


def make_prefill_inputs(case: MlaPrefillCase, device: str = "cpu") -> MlaPrefillInputs:
    """Tensors of a prefill case; deterministic as ``make_decode_inputs`` is.

    Weights have variance 1 / latent, so decompressed keys and values have unit variance.
    """
    geometry = case.geometry
    dtype = getattr(torch, case.dtype)
    generator = torch.Generator(device).manual_seed(case.seed)
    block_table, pool = lay_out_pages(
        case.prefix_lengths, case.page_size, case.table, torch.Generator().manual_seed(case.seed)
    )
    kv_cache = _normal((pool, case.page_size, geometry.absorbed_qk_dim), dtype, generator)
    latent_kv = _normal((case.tokens, geometry.absorbed_qk_dim), dtype, generator)
    weight_std = geometry.latent**-0.5
    heads, latent = geometry.heads, geometry.latent
    w_uk = _normal((heads, geometry.nope, latent), dtype, generator, weight_std)
    w_uv = _normal((heads, latent, geometry.v_head_dim), dtype, generator, weight_std)

    new_lengths = torch.tensor(case.new_lengths, device=device)
    spread = torch.tensor(
        [
            score_spread(new + prefix)
            for new, prefix in zip(case.new_lengths, case.prefix_lengths, strict=True)
        ],
        device=device,
    ).repeat_interleave(new_lengths)
    q = torch.randn(
        (case.tokens, heads, geometry.decompressed_qk_dim), generator=generator, device=device
    )
    q *= spread[:, None, None]
    cu_seqlens = torch.zeros(case.batch + 1, dtype=torch.int32, device=device)
    cu_seqlens[1:] = new_lengths.cumsum(0)
    return MlaPrefillInputs(
        geometry=geometry,
        q=q.to(dtype),
        latent_kv=latent_kv,
        w_uk=w_uk,
        w_uv=w_uv,
        cu_seqlens=cu_seqlens,
        kv_cache=kv_cache,
        block_table=block_table.to(device),
        prefix_lens=torch.tensor(case.prefix_lengths, dtype=torch.int32, device=device),
    )


def poison_decode_inputs(inputs: MlaDecodeInputs) -> MlaDecodeInputs:
    """The same inputs with all that no sequence owns made lethal to a kernel that uses it.

    Cache slots outside every context become NaN; unused block-table entries become negative or
    huge page numbers.
    """
    kv_cache, block_table = _poison(inputs.kv_cache, inputs.block_table, inputs.seq_lens)
    return dataclasses.replace(inputs, kv_cache=kv_cache, block_table=block_table)


def poison_prefill_inputs(inputs: MlaPrefillInputs) -> MlaPrefillInputs:
    """As ``poison_decode_inputs``, for the prefix cache."""
    kv_cache, block_table = _poison(inputs.kv_cache, inputs.block_table, inputs.prefix_lens)
    return dataclasses.replace(inputs, kv_cache=kv_cache, block_table=block_table)


def owned_slots(block_table: Tensor, lengths: Tensor, page_size: int) -> list[Tensor]:
    """Each sequence's cache slots in token order: one int64 [length] per sequence."""
    position = torch.arange(block_table.shape[1] * page_size, device=block_table.device)
    slots = block_table.long().repeat_interleave(page_size, 1) * page_size + position % page_size
    return [row[:length] for row, length in zip(slots, lengths.tolist(), strict=True)]


def _poison(kv_cache: Tensor, block_table: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    pages, page_size, _ = kv_cache.shape
    owned = torch.zeros(pages * page_size, dtype=torch.bool, device=kv_cache.device)
    owned[torch.cat(owned_slots(block_table, lengths, page_size))] = True
    poisoned = kv_cache.clone()
    poisoned.view(pages * page_size, -1)[~owned] = float("nan")

    column = torch.arange(block_table.shape[1], device=block_table.device)
    unused = column * page_size >= lengths[:, None]
    garbage = torch.tensor(GARBAGE_PAGES, dtype=torch.int32, device=block_table.device)
    return poisoned, torch.where(unused, garbage[column % len(garbage)], block_table)


def _normal(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, std: float = 1.0
) -> Tensor:
    """Normal values drawn in float32 and then rounded: 16-bit draws are visibly not normal."""
    values = torch.empty(shape, dtype=dtype, device=generator.device)
    rows = values.view(math.prod(shape[:-1]), shape[-1])
    for block in rows.split(_ROWS_PER_DRAW):
        block.copy_(torch.randn(block.shape, generator=generator, device=generator.device) * std)
    return values
