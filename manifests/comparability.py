"""Which differences between two manifests make their timings incomparable.

Whatever is under "environment" decides, unless a rule below says why it does not; "state" and
"source" never do. A field that nobody thought of therefore makes timings incomparable: the gate
then says that it could not judge, and never judges wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manifests.canonical import canonical_json

# Stands for a field that one side does not have at all (null is "could not be read").
ABSENT = "<absent>"

Path = tuple[str | int, ...]

# Exceptions, by path ("*" stands for one step): the reason is shown beside the difference.
_NOT_DECISIVE: Mapping[tuple[str, ...], str] = {
    ("state",): "the state of the moment, not of the machine",
    ("source",): "what is being compared; each record carries its workload's SHA-256",
    ("environment", "host", "name"): "a name; the hardware is compared itself",
    ("environment", "distributions"): "not on the timed path; those are under libraries",
    ("environment", "accelerators", "tpu", "device_kind"): "follows from the PCI device id",
    ("environment", "accelerators", "tpu", "devices", "*", "pci_address"): "which slot",
    ("environment", "accelerators", "amd", "devices", "*", "pci_address"): "which slot",
    ("environment", "accelerators", "amd", "devices", "*", "unique_id"): "which specimen",
    ("environment", "accelerators", "amd", "devices", "*", "name"): "follows from the PCI ids",
    ("environment", "accelerators", "nvidia", "devices", "*", "pci_address"): "which slot",
    ("environment", "accelerators", "nvidia", "devices", "*", "uuid"): "which specimen",
    ("environment", "variables", "TPU_NAME"): "a name; the hardware is compared itself",
    ("environment", "variables", "TPU_WORKER_ID"): "which host of its slice",
}


@dataclass(frozen=True)
class Difference:
    """One field in which two manifests differ.

    `path` as in "environment.accelerators.amd.devices[0].vbios"; `a` and `b` are JSON values, or
    ABSENT; `comparable` is False where timings cannot be compared across this difference; `why`
    gives the reason in a few words.
    """

    path: str
    a: Any
    b: Any
    comparable: bool
    why: str


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Every field in which `a` and `b` differ: the incomparable ones first, then by path."""
    found = [_difference(path, left, right) for path, left, right in _walk((), a, b)]
    return sorted(found, key=lambda difference: (difference.comparable, difference.path))


def comparable(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[bool, list[Difference]]:
    """Whether timings made under `a` and `b` may be compared, and all the differences."""
    differences = diff(a, b)
    return all(difference.comparable for difference in differences), differences


def decisive_part(manifest: Mapping[str, Any]) -> Any:
    """The manifest without every field that a rule declares harmless."""
    return _pruned((), manifest)


def _difference(path: Path, a: Any, b: Any) -> Difference:
    harmless = _why_harmless(path)
    why = harmless or "part of the environment that is measured"
    return Difference(_readable(path), a, b, comparable=harmless is not None, why=why)


def _why_harmless(path: Path) -> str | None:
    for pattern, reason in _NOT_DECISIVE.items():
        if len(path) >= len(pattern) and all(
            wanted in ("*", step) for wanted, step in zip(pattern, path, strict=False)
        ):
            return reason
    return None


def _walk(path: Path, a: Any, b: Any) -> list[tuple[Path, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        steps: Sequence[str | int] = sorted(a.keys() | b.keys())
        pairs = [(step, a.get(step, ABSENT), b.get(step, ABSENT)) for step in steps]
    elif isinstance(a, list) and isinstance(b, list):
        length = max(len(a), len(b))
        left, right = (side + [ABSENT] * (length - len(side)) for side in (a, b))
        pairs = list(zip(range(length), left, right, strict=True))
    else:
        # Not ==, for which true is 1 and 1.0: the fingerprint, over canonical JSON, knows better.
        return [] if canonical_json(a) == canonical_json(b) else [(path, a, b)]
    return [found for step, left, right in pairs for found in _walk((*path, step), left, right)]


def _pruned(path: Path, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _pruned((*path, key), inner)
            for key, inner in value.items()
            if _why_harmless((*path, key)) is None
        }
    if isinstance(value, list):
        return [_pruned((*path, index), inner) for index, inner in enumerate(value)]
    return value


def _readable(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
