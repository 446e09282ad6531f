"""What to run: one MLA decode step or one prefill, described by numbers alone (no tensors)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import MlaGeometry, ceil_div

Table = Literal["contiguous", "shuffled", "shared"]
DtypeName = Literal["float32", "float16", "bfloat16"]

TABLES: tuple[str, ...] = get_args(Table)
DTYPES: tuple[str, ...] = get_args(DtypeName)
PAGE_SIZES = (1, 16, 64)


@dataclass(frozen=True)
class MlaDecodeCase:
    """One decode step: one new query token per sequence over its cached context.

    Attributes:
        context_lengths: cached tokens of each sequence (0 allowed); its length is the batch.
        heads: local query heads.
        page_size: tokens per cache page: 1, 16 or 64.
        num_kv_splits: splits of each context, or None to let the implementation choose.
        dtype: of queries, cache and outputs: ``float32``, ``float16`` or ``bfloat16``.
        seed: of every random number in the inputs.
        table: how sequences' pages lie in the pool: in order (``contiguous``), in random order
            (``shuffled``), or in random order with the first pages of all non-empty sequences
            physically the same (``shared``, as a common prompt prefix makes them).

    Raises:
        MlaArgumentError: on any value outside these.
    """

    context_lengths: tuple[int, ...]
    heads: int = 12
    page_size: int = 64
    num_kv_splits: int | None = None
    dtype: DtypeName = "bfloat16"
    seed: int = 0
    table: Table = "shuffled"

    def __post_init__(self) -> None:
        _check_lengths("context_lengths", self.context_lengths)
        _check_common(self.heads, self.page_size, self.dtype, self.table)
        if self.num_kv_splits is not None and self.num_kv_splits < 1:
            raise MlaArgumentError(
                f"num_kv_splits is {self.num_kv_splits}: give 1 or more, or None to choose"
            )
        if self.table == "shared":
            shared_pages(self.context_lengths, self.page_size)

    @property
    def batch(self) -> int:
        """Number of sequences, empty ones included."""
        return len(self.context_lengths)

    @property
    def geometry(self) -> MlaGeometry:
        """K3's widths with this case's head count."""
        return MlaGeometry(heads=self.heads)

    @property
    def tokens(self) -> int:
        """Cached tokens that the step attends to, over all sequences."""
        return sum(self.context_lengths)

    @property
    def id(self) -> str:
        """A readable name, e.g. ``decode-B4-L16384-H12-page64-splitsauto-bfloat16-shuffled``."""
        return (
            f"decode-B{self.batch}-L{_lengths_id(self.context_lengths)}-H{self.heads}"
            f"-page{self.page_size}-splits{self.num_kv_splits or 'auto'}-{self.dtype}-{self.table}"
        )


@dataclass(frozen=True)
class MlaPrefillCase:
    """One varlen prefill: new tokens of each sequence, after a cached prefix or none.

    Attributes:
        new_lengths: new tokens of each sequence (0 allowed).
        prefix_lengths: cached tokens before them; empty means no sequence has any.
        heads: local query heads.
        dtype: of activations, weights, cache and outputs.
        seed: of every random number in the inputs.
        page_size: tokens per page of the prefix cache: 1, 16 or 64.
        table: page order of the prefix cache, as in ``MlaDecodeCase``.

    Raises:
        MlaArgumentError: on any value outside these.
    """

    new_lengths: tuple[int, ...]
    prefix_lengths: tuple[int, ...] = ()
    heads: int = 12
    dtype: DtypeName = "bfloat16"
    seed: int = 0
    page_size: int = 64
    table: Table = "shuffled"

    def __post_init__(self) -> None:
        _check_lengths("new_lengths", self.new_lengths)
        if not self.prefix_lengths:
            object.__setattr__(self, "prefix_lengths", (0,) * len(self.new_lengths))
        _check_lengths("prefix_lengths", self.prefix_lengths)
        if len(self.prefix_lengths) != len(self.new_lengths):
            raise MlaArgumentError(
                f"prefix_lengths has {len(self.prefix_lengths)} entries for "
                f"{len(self.new_lengths)} sequences: give one each, or none at all"
            )
        _check_common(self.heads, self.page_size, self.dtype, self.table)
        if self.table == "shared":
            shared_pages(self.prefix_lengths, self.page_size)

    @property
    def batch(self) -> int:
        """Number of sequences, empty ones included."""
        return len(self.new_lengths)

    @property
    def geometry(self) -> MlaGeometry:
        """K3's widths with this case's head count."""
        return MlaGeometry(heads=self.heads)

    @property
    def tokens(self) -> int:
        """New tokens, over all sequences."""
        return sum(self.new_lengths)

    @property
    def id(self) -> str:
        """A readable name, e.g. ``prefill-B1-T512-P512-H12-page64-bfloat16-shuffled``."""
        return (
            f"prefill-B{self.batch}-T{_lengths_id(self.new_lengths)}"
            f"-P{_lengths_id(self.prefix_lengths)}-H{self.heads}-page{self.page_size}"
            f"-{self.dtype}-{self.table}"
        )


def shared_pages(lengths: Sequence[int], page_size: int) -> int:
    """Pages that the non-empty sequences of a ``shared`` table have in common.

    Half of the shortest one's full pages, and at least one. Sharing needs two non-empty sequences
    and a full page in each; asking for it otherwise is an error, since the benchmark would claim
    a sharing that is not there.
    """
    used = [length for length in lengths if length > 0]
    full_pages = min(used) // page_size if used else 0
    if len(used) < 2 or full_pages < 1:
        raise MlaArgumentError(
            f"table 'shared' with lengths {tuple(lengths)} and page_size {page_size} shares "
            "nothing: give two or more sequences of a full page, or another table"
        )
    return ceil_div(full_pages, 2)


def _check_lengths(name: str, lengths: Sequence[int]) -> None:
    if not lengths:
        raise MlaArgumentError(f"{name} is empty: give one length per sequence")
    for index, length in enumerate(lengths):
        if not isinstance(length, int) or isinstance(length, bool) or length < 0:
            raise MlaArgumentError(f"{name}[{index}] is {length!r}: give an integer of 0 or more")


def _check_common(heads: int, page_size: int, dtype: str, table: str) -> None:
    MlaGeometry(heads=heads)
    for name, value, allowed in (
        ("page_size", page_size, PAGE_SIZES),
        ("dtype", dtype, DTYPES),
        ("table", table, TABLES),
    ):
        if value not in allowed:
            choices = ", ".join(str(choice) for choice in allowed)
            raise MlaArgumentError(f"{name} is {value!r}: give one of {choices}")


def _lengths_id(lengths: Sequence[int]) -> str:
    if len(set(lengths)) == 1:
        return str(lengths[0])
    return f"{min(lengths)}..{max(lengths)}"
