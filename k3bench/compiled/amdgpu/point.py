"""What is compiled for a GPU: one operation of mla_rocm at one shape, without importing Triton."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from k3bench.compiled.errors import CompiledError

OPERATIONS = ("mla-decode", "mla-prefill", "kda-decode")
_DTYPES = ("float32", "float16", "bfloat16")
_MAX_SEQUENCES = 1 << 16


@dataclass(frozen=True)
class GpuPoint:
    """One call of an operation.

    Attributes:
        operation: ``mla-decode``, ``mla-prefill`` or ``kda-decode``.
        implementation: as mla_rocm names it.
        lengths: cached tokens of each sequence for mla-decode, new tokens for mla-prefill, one
            token each for kda-decode.
        prefix_lengths: cached tokens before the new ones, mla-prefill only; empty for none.
        heads: on this device.
        page_size: tokens of a cache page.
        num_kv_splits: None lets the implementation choose.
        dtype: of activations and cache.
        compute_units: of the device or partition; None takes the target's.
        block_n: keys of a main-loop iteration, in place of the implementation's own choice; with
            the two below, for asking what a launch that nobody made would be. None: its own.
        num_warps: of the first launch's workgroups.
        num_stages: of the first launch's software pipeline.

    Raises CompiledError naming the field that is wrong.
    """

    operation: str
    implementation: str
    lengths: tuple[int, ...]
    prefix_lengths: tuple[int, ...] = ()
    heads: int = 12
    page_size: int = 64
    num_kv_splits: int | None = None
    dtype: str = "bfloat16"
    compute_units: int | None = None
    block_n: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None

    def __post_init__(self) -> None:
        for name in ("lengths", "prefix_lengths"):
            object.__setattr__(self, name, tuple(int(n) for n in getattr(self, name)))
        if self.operation not in OPERATIONS:
            raise CompiledError(
                f"operation is {self.operation!r}: use one of {', '.join(OPERATIONS)}"
            )
        if not 1 <= len(self.lengths) <= _MAX_SEQUENCES:
            raise CompiledError(
                f"lengths has {len(self.lengths)} entries: give 1 to {_MAX_SEQUENCES} sequences"
            )
        if min((*self.lengths, *self.prefix_lengths)) < 0:
            raise CompiledError("lengths or prefix_lengths is negative: counts are zero or more")
        if self.prefix_lengths and self.operation != "mla-prefill":
            raise CompiledError(f"prefix_lengths belongs to mla-prefill, not to {self.operation}")
        if self.prefix_lengths and len(self.prefix_lengths) != len(self.lengths):
            raise CompiledError("prefix_lengths and lengths differ in number: give one each")
        for name in (
            "heads", "page_size", "num_kv_splits", "compute_units", "block_n", "num_warps",
            "num_stages",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CompiledError(f"{name} is {value}: must be at least 1")
        if self.num_kv_splits is not None and self.operation != "mla-decode":
            raise CompiledError(f"num_kv_splits belongs to mla-decode, not to {self.operation}")
        if self.dtype not in _DTYPES:
            raise CompiledError(f"dtype is {self.dtype!r}: use one of {', '.join(_DTYPES)}")

    @property
    def tokens(self) -> int:
        """Cached tokens read (mla-decode), new tokens (mla-prefill), sequences (kda-decode)."""
        return len(self.lengths) if self.operation == "kda-decode" else sum(self.lengths)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; ``from_json`` is the inverse."""
        return {
            **asdict(self),
            "lengths": list(self.lengths),
            "prefix_lengths": list(self.prefix_lengths),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "GpuPoint":
        """The point that ``to_json`` described."""
        return cls(**document)
