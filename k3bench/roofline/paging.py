"""Paged caches: rows that are allocated and never used, tables, and transactions to fetch them."""

from collections.abc import Sequence
from dataclasses import dataclass

from k3bench.roofline.cost import ceil_div, require_counts


@dataclass(frozen=True)
class PagedCache:
    """A pool of pages of ``page_tokens`` rows.

    Attributes:
        page_tokens: rows of a page, contiguous in memory.
        row_bytes: of one token's row in one layer.
        transaction_bytes: that memory moves at once, aligned (64 or 128).
        index_bytes: of one entry of the page table.
    """

    page_tokens: int
    row_bytes: int
    transaction_bytes: int = 128
    index_bytes: int = 4

    def __post_init__(self) -> None:
        require_counts(
            self,
            page_tokens=self.page_tokens,
            row_bytes=self.row_bytes,
            transaction_bytes=self.transaction_bytes,
            index_bytes=self.index_bytes,
        )

    def pages(self, lengths: Sequence[int]) -> int:
        """Allocated for sequences of these lengths."""
        return sum(ceil_div(length, self.page_tokens) for length in lengths)

    def waste_bytes(self, lengths: Sequence[int]) -> int:
        """Allocated and unused, in last pages: on average half a page a sequence."""
        rows = self.pages(lengths) * self.page_tokens - sum(lengths)
        return rows * self.row_bytes

    def table_bytes(self, lengths: Sequence[int]) -> int:
        """One entry a page, read by every step in every layer."""
        return self.pages(lengths) * self.index_bytes

    def transactions(self, lengths: Sequence[int]) -> int:
        """To read every row once, pages starting on a transaction and rows contiguous in them."""
        whole = ceil_div(self.page_tokens * self.row_bytes, self.transaction_bytes)
        total = 0
        for length in lengths:
            full, rest = divmod(length, self.page_tokens)
            total += full * whole + ceil_div(rest * self.row_bytes, self.transaction_bytes)
        return total

    def fetched_bytes(self, lengths: Sequence[int]) -> int:
        """What those transactions move; with small pages more than the rows hold."""
        return self.transactions(lengths) * self.transaction_bytes
