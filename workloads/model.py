"""The nouns: a Workload is a named, hashed sequence of kernel calls; a Call is lengths, no data."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from workloads.errors import WorkloadError
from workloads.padding import padded_length

Kind = Literal["kda-prefill", "kda-decode", "mla-decode", "mla-prefill"]
Provenance = Literal["fixed", "sharegpt-derived", "surrogate", "imported", "trace"]


@dataclass(frozen=True)
class KdaGeometry:
    """Shape of one KDA layer on one chip.

    ``heads`` H, ``key_dim`` K, ``value_dim`` V, ``chunk`` BT (tokens), ``dtype`` of q, k, v, beta.
    """

    heads: int
    key_dim: int = 128
    value_dim: int = 128
    chunk: int = 64
    dtype: str = "bfloat16"


@dataclass(frozen=True)
class MlaGeometry:
    """Shape of one MLA layer on one chip.

    The latent cache holds ``kv_lora_rank + rope_dim`` numbers a token (576 for K3), the absorbed
    form attends 576/512, the decompressed form ``nope_dim + rope_dim`` / ``value_dim`` (192/128).
    """

    heads: int
    kv_lora_rank: int = 512
    nope_dim: int = 128
    rope_dim: int = 64
    value_dim: int = 128
    dtype: str = "bfloat16"


@dataclass(frozen=True)
class Call:
    """One kernel call: sequence ``i`` brings ``new_tokens[i]`` on top of ``cached_tokens[i]``.

    KDA starts from no cached tokens (its state stands for them); a decode brings one new token a
    sequence.
    """

    new_tokens: tuple[int, ...]
    cached_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.new_tokens:
            raise WorkloadError("a call needs at least one sequence: new_tokens is empty")
        if len(self.new_tokens) != len(self.cached_tokens):
            raise WorkloadError(
                f"a call names {len(self.new_tokens)} new_tokens and "
                f"{len(self.cached_tokens)} cached_tokens: give one of each per sequence"
            )
        if min(self.new_tokens) < 0 or min(self.cached_tokens) < 0:
            raise WorkloadError("a call holds a negative length: lengths count tokens")

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return len(self.new_tokens)

    @property
    def tokens(self) -> int:
        """Tokens computed by this call, over all sequences."""
        return sum(self.new_tokens)

    @property
    def kv_lengths(self) -> tuple[int, ...]:
        """Tokens each sequence may attend to: cached ones and its own new ones."""
        return tuple(c + n for c, n in zip(self.cached_tokens, self.new_tokens, strict=True))

    @property
    def cu_seqlens(self) -> tuple[int, ...]:
        """Offsets of the packed sequences: ``batch + 1`` integers from 0 to ``tokens``."""
        offsets = [0]
        for length in self.new_tokens:
            offsets.append(offsets[-1] + length)
        return tuple(offsets)


def prefill(*lengths: int) -> Call:
    """A call that prefills sequences of these lengths from scratch, packed through cu_seqlens."""
    return Call(new_tokens=lengths, cached_tokens=(0,) * len(lengths))


@dataclass(frozen=True)
class Workload:
    """Pinned lengths under a name.

    ``id`` reads as a path (``kda-grid/S64_B4``); ``sha256`` is over ``content()``: kind, geometry
    and lengths, and not the prose. ``label`` goes next to every figure: a surrogate says so there.
    """

    id: str
    kind: Kind
    provenance: Provenance
    geometry: KdaGeometry | MlaGeometry
    calls: tuple[Call, ...] = field(repr=False)
    label: str
    description: str

    def __post_init__(self) -> None:
        if not self.calls:
            raise WorkloadError(f"workload {self.id!r} has no calls: give at least one")
        if self.provenance == "surrogate":
            for name in ("id", "label", "description"):
                if "surrogate" not in getattr(self, name).lower():
                    raise WorkloadError(
                        f"workload {self.id!r} comes from a surrogate and its {name} does not "
                        "say so: put the word there"
                    )

    @property
    def is_replay(self) -> bool:
        """Whether the workload is a list of calls rather than one call timed repeatedly."""
        return len(self.calls) > 1

    @property
    def call(self) -> Call:
        """The only call of a fixed shape; a replay has many and refuses."""
        if self.is_replay:
            raise WorkloadError(
                f"workload {self.id!r} replays {len(self.calls)} calls: iterate over .calls"
            )
        return self.calls[0]

    @property
    def tokens(self) -> int:
        """Tokens the workload really holds, over all calls: what throughput counts."""
        return sum(call.tokens for call in self.calls)

    def executed_lengths(self, multiple: int) -> tuple[tuple[int, ...], ...]:
        """New-token lengths of every call, each sequence padded up to ``multiple`` tokens."""
        return tuple(
            tuple(padded_length(length, multiple) for length in call.new_tokens)
            for call in self.calls
        )

    def executed_tokens(self, multiple: int) -> int:
        """Tokens a kernel executes when it pads each sequence up to ``multiple`` tokens."""
        return sum(sum(lengths) for lengths in self.executed_lengths(multiple))

    def content(self) -> dict[str, Any]:
        """What the hash covers, as plain JSON types."""
        return {
            "kind": self.kind,
            "geometry": asdict(self.geometry),
            "calls": [
                {"new_tokens": list(call.new_tokens), "cached_tokens": list(call.cached_tokens)}
                for call in self.calls
            ],
        }

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of ``content()``."""
        return sha256_json(self.content())


def canonical_json(value: Any) -> bytes:
    """One byte string per value: sorted keys, no white space, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def sha256_json(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
