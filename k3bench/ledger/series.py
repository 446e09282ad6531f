"""Series: results that answer the same question at different commits, and the key that says so."""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from k3bench.canonical import canonical_json

# A result's fields that make its series; what differs in any of them is another series.
SERIES_FIELDS = (
    "kind", "benchmark", "parameters", "implementation", "device", "clock", "preset",
    "workload_id", "workload_sha256",
)  # fmt: skip


def series_key(
    kind: str,
    benchmark: str,
    parameters: Mapping[str, Any],
    implementation: str,
    device: str,
    clock: str | None,
    preset: str | None,
    workload_id: str,
    workload_sha256: str,
) -> int:
    """A signed 64-bit hash of the fields, so that an index finds a series' newest result.

    Two of a million series share a key with a probability of 3e-8.
    """
    return _key(
        kind, benchmark, canonical_scalars(parameters), implementation, device, clock, preset,
        workload_id, workload_sha256,
    )  # fmt: skip


# What has equal texts where it is equal and of the same type; floats do not: 0.0 and -0.0.
_EXACT = {str, int, bool}


def canonical_scalars(values: Mapping[str, Any]) -> str:
    """``canonical_json`` of a record's parameters or figures; the text of the former is kept, as a
    run's records have them in common."""
    types = tuple(map(type, values.values()))
    if _EXACT.issuperset(types):
        return _canonical_exact(tuple(values.items()), types)
    return canonical_json(values)


@lru_cache(maxsize=8192)
def _canonical_exact(items: tuple[tuple[str, Any], ...], types: tuple[type, ...]) -> str:
    """By the types too: 1 and True are equal."""
    return canonical_json(dict(items))


# A run has some hundreds of series, each at many commits: looking one up costs less than hashing.
@lru_cache(maxsize=8192)
def _key(*fields: str | None) -> int:
    """The hash of the fields as one canonical JSON array; ``parameters`` is JSON text already."""
    at = SERIES_FIELDS.index("parameters")
    texts = [field if n == at else canonical_json(field) for n, field in enumerate(fields)]
    digest = sha256(f"[{','.join(map(str, texts))}]".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
