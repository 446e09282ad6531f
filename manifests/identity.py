"""A manifest's name and fingerprint, both SHA-256 of canonical JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from manifests.canonical import canonical_json
from manifests.comparability import decisive_part


def manifest_id(manifest: Mapping[str, Any]) -> str:
    """64 hex digits that name this manifest: the SHA-256 of all of it, whatever its key order."""
    return _sha256(manifest)


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """64 hex digits that name what decides about comparability.

    Two manifests have the same fingerprint exactly where `comparable` holds for them: a query can
    group by it instead of comparing pairs.
    """
    return _sha256(decisive_part(manifest))


def _sha256(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()
