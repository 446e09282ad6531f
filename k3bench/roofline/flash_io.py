"""FlashAttention's IO model: HBM reads and writes of a forward pass against on-chip memory.

Elements, per head, of N queries and N keys of width d with M elements of on-chip memory (Dao et
al. 2022, theorem 2): standard attention moves Theta(N d + N^2), tiles Theta(N^2 d^2 / M). Here the
constants are kept: what each loop order really reads and writes.
"""

from dataclasses import dataclass

from k3bench.roofline.cost import ceil_div, require_counts
from k3bench.roofline.errors import RooflineError


def score_matrix_bytes(queries: int, keys: int, heads: int, itemsize: int = 2) -> int:
    """Of all heads: what standard attention writes of scores, and as much of probabilities."""
    return queries * keys * heads * itemsize


@dataclass(frozen=True)
class FlashIo:
    """Traffic of one head's forward pass in elements, without a causal mask.

    Attributes:
        queries, keys: N and T.
        head_dim: d, of keys and values alike.
        on_chip_elements: M, what one head's tiles may take.
    """

    queries: int
    keys: int
    head_dim: int
    on_chip_elements: int

    def __post_init__(self) -> None:
        require_counts(
            self,
            queries=self.queries,
            keys=self.keys,
            head_dim=self.head_dim,
            on_chip_elements=self.on_chip_elements,
        )
        if self.on_chip_elements < 4 * self.head_dim:
            raise RooflineError(
                f"{self.on_chip_elements} elements hold no tile of a row of q, k, v and o each: "
                f"give at least {4 * self.head_dim}"
            )

    @property
    def query_rows(self) -> int:
        """Rows of q (and of the output) that stay on chip beside one row of k and v."""
        return max(1, (self.on_chip_elements - 2 * self.head_dim) // (2 * self.head_dim))

    def standard_elements(self) -> int:
        """Scores written and read, probabilities written and read, operands once."""
        scores = self.queries * self.keys
        return 4 * scores + (2 * self.queries + 2 * self.keys) * self.head_dim

    def query_stationary_elements(self) -> int:
        """FlashAttention-2's order: a tile of queries stays, keys and values pass by per tile."""
        passes = ceil_div(self.queries, self.query_rows)
        return 2 * self.queries * self.head_dim + passes * 2 * self.keys * self.head_dim

    def key_stationary_elements(self) -> int:
        """FlashAttention-1's order: a tile of k and v stays; q and o pass by, o in and out.

        The first pass writes o without reading it.
        """
        passes = ceil_div(self.keys, self.query_rows)
        rows = self.queries * self.head_dim
        return 2 * self.keys * self.head_dim + passes * 3 * rows - rows
