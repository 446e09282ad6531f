"""The paged latent cache: how pages are laid out, and where each token of a sequence lies."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mla_rocm.cases import Table, shared_pages
from mla_rocm.geometry import ceil_div

# Pages of the pool that no sequence owns: there is always somewhere wrong to read from.
SPARE_PAGES = 8


def lay_out_pages(
    lengths: Sequence[int], page_size: int, table: Table, generator: torch.Generator
) -> tuple[Tensor, int]:
    """Gives every sequence its own pages of a pool, drawn without replacement.

    Args:
        lengths: cached tokens of each sequence.
        page_size: tokens per page.
        table: ``contiguous``, ``shuffled`` or ``shared`` (see ``MlaDecodeCase``).
        generator: a CPU generator.

    Returns:
        block_table, int32 [B, max(1, most pages of a sequence)], unused entries 0, on the CPU;
        and the number of pages in the pool, ``SPARE_PAGES`` more than are used.
    """
    pages = [ceil_div(length, page_size) for length in lengths]
    common = shared_pages(lengths, page_size) if table == "shared" else 0
    pool = common + sum(max(0, count - common) for count in pages) + SPARE_PAGES
    order = (
        torch.arange(pool) if table == "contiguous" else torch.randperm(pool, generator=generator)
    )
    block_table = torch.zeros((len(pages), max(1, *pages)), dtype=torch.int32)
    taken = common
    for row, count in zip(block_table, pages, strict=True):
        if count:
            row[:common] = order[:common]
            row[common:count] = order[taken : taken + count - common]
            taken += count - common
    return block_table, pool


def slot_indices(block_table: Tensor, sequence: Tensor, position: Tensor, page_size: int) -> Tensor:
    """Cache slots of tokens: page x page_size + position in the page, in int64.

    Args:
        block_table: int32 [B, P]. Only the entries of the given positions are read.
        sequence: int64, which row of the table; broadcasts with ``position``.
        position: int64, token positions in their sequences.
        page_size: tokens per page.

    Returns:
        int64, the broadcast shape. A page number times the page size overflows int32 in a pool of
        2^31 slots or more, so the product is made in int64.
    """
    page = block_table[sequence, position // page_size].long()
    return page * page_size + position % page_size


def gather_context(kv_cache: Tensor, block_table: Tensor, sequence: int, length: int) -> Tensor:
    """The first ``length`` cached rows of one sequence, in order: [length, width].

    Args:
        kv_cache: [pages, page_size, width].
        block_table: int32 [B, P].
        sequence: row of the table.
        length: tokens to gather; nothing past them is read.
    """
    page_size = kv_cache.shape[1]
    position = torch.arange(length, device=kv_cache.device)
    own_table = block_table[sequence : sequence + 1]
    slots = slot_indices(own_table, torch.zeros_like(position), position, page_size)
    return kv_cache.flatten(0, 1).index_select(0, slots)
