"""Manifests for the pages: every leaf with its path, and whether a difference there decides."""

from collections.abc import Mapping
from typing import Any

import manifests

# Equal to no value that a manifest holds, so that every leaf shows up as a difference.
_OTHER = "\x00another value"


def leaves_of(document: Mapping[str, Any]) -> list[list[Any]]:
    """Every leaf of a manifest: [path, value, decisive, why], the decisive ones first.

    ``manifests.diff`` is asked about a copy in which every leaf is another: so the pages hold two
    manifests against each other by the rules of the manifests room, without a copy of them.
    """
    return [
        [difference.path, difference.a, not difference.comparable, difference.why]
        for difference in manifests.diff(document, _changed(document))
    ]


def summary_of(document: Mapping[str, Any]) -> str:
    """What a reader tells manifests apart by, in a line: host and when."""
    environment = document.get("environment", {})
    host = environment.get("host", {}) if isinstance(environment, Mapping) else {}
    state = document.get("state", {})
    parts = [
        str(found)
        for found in (
            host.get("name") if isinstance(host, Mapping) else None,
            state.get("captured_at") if isinstance(state, Mapping) else None,
        )
        if found
    ]
    return ", ".join(parts)


def _changed(value: Any) -> Any:
    if isinstance(value, Mapping) and value:
        return {name: _changed(inner) for name, inner in value.items()}
    if isinstance(value, list) and value:
        return [_changed(inner) for inner in value]
    return _OTHER
