"""What a point's workload is to the figures: which family, which S, B or context, whose lengths."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import workloads
from workloads.mla import K3_PER_CHIP

_K = {"K": 1024, "M": 1024 * 1024}

# Workload ids by family; the groups' names become the shape's fields.
_FAMILIES = (
    ("kda-grid", re.compile(r"kda-grid/S(?P<S>\d+)_B(?P<B>\d+)")),
    ("kda-headline", re.compile(r"kda-headline")),
    ("kda-series", re.compile(r"kda-series/T(?P<T>\d+)")),
    ("kda-decode", re.compile(r"kda-decode/B(?P<B>\d+)")),
    ("mla-decode", re.compile(r"(?:mla-decode|compiled-mla)/ctx(?P<context>\d+[KM]?)_B(?P<B>\d+)")),
    ("mla-prefill", re.compile(r"mla-prefill/T(?P<T>\d+[KM]?)_B(?P<B>\d+)")),
    ("mla-chunk", re.compile(r"mla-chunk/ctx(?P<context>\d+[KM]?)_last")),
    ("forms", re.compile(r"forms/[a-z-]+")),
    ("composition", re.compile(r"k3-(?:decode|prefill)/L(?P<context>\d+)_B(?P<B>\d+)")),
    ("replay", re.compile(r"(?P<lengths>[^/]+)/B(?P<B>\d+)")),
)

# Parameters that say again what the workload's id says; others make a variant of the point.
_SHAPE_PARAMETERS = frozenset(
    {
        *("S", "B", "T", "context", "lengths", "chunk", "heads", "seqlen", "sequences", "batch"),
        *("block", "form"),
    }
)


@dataclass(frozen=True)
class Shape:
    """A workload id as the figures read it.

    Attributes:
        family: which figure it belongs to; ``other`` where to none.
        numbers: S, B, T or context, as integers (tokens, sequences).
        lengths: the name of a replay's list.
        provenance: ``fixed``, ``sharegpt-derived``, ``surrogate``, ``imported``, ``trace``, or
            ``unknown`` for an id that no workload here has.
        label: what must stand beside its figures.
        latent_bytes: MLA decode: the latent cache, read once; None otherwise.
    """

    family: str
    numbers: Mapping[str, int]
    lengths: str | None
    provenance: str
    label: str
    latent_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """Flat; None left out."""
        whole = {
            "family": self.family,
            **self.numbers,
            "lengths": self.lengths,
            "provenance": self.provenance,
            "label": self.label,
            "latent_bytes": self.latent_bytes,
        }
        return {name: value for name, value in whole.items() if value is not None}


@cache
def shape_of(workload_id: str) -> Shape:
    """The shape behind a workload id, read from the id and, where it is pinned, the registry."""
    workload = _registered(workload_id)
    for family, pattern in _FAMILIES:
        match = pattern.fullmatch(workload_id)
        if match is None:
            continue
        fields = match.groupdict()
        lengths = fields.pop("lengths", None)
        numbers = {name: tokens(value) for name, value in fields.items()}
        if family == "mla-decode" and "context" in numbers and workload is not None:
            numbers["context"] = max(workload.call.kv_lengths)
        return Shape(
            family,
            numbers,
            lengths,
            _provenance(workload, family, workload_id),
            workload.label if workload is not None else workload_id,
            _latent_bytes(family, numbers, workload),
        )
    provenance = workload.provenance if workload is not None else "unknown"
    return Shape("other", {}, None, provenance, workload_id, None)


def variant_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the workload's id does not say already, such as a number of splits."""
    return {name: value for name, value in parameters.items() if name not in _SHAPE_PARAMETERS}


def tokens(text: str) -> int:
    """``64``, ``32K`` or ``1M`` as a count."""
    return int(text[:-1]) * _K[text[-1]] if text[-1] in _K else int(text)


def _registered(workload_id: str) -> workloads.Workload | None:
    try:
        return workloads.get(workload_id)
    except workloads.WorkloadError:
        return None


def _provenance(workload: workloads.Workload | None, family: str, workload_id: str) -> str:
    if workload is not None:
        return workload.provenance
    if family == "replay":
        return "surrogate" if "surrogate" in workload_id else "unknown"
    return "fixed"


def _latent_bytes(
    family: str, numbers: Mapping[str, int], workload: workloads.Workload | None
) -> int | None:
    """Bytes of latent cache that a decode step cannot but read: every token's latent and rope."""
    if family != "mla-decode":
        return None
    geometry = K3_PER_CHIP
    attended = numbers["context"] * numbers["B"]
    if workload is not None and isinstance(workload.geometry, workloads.MlaGeometry):
        geometry = workload.geometry
        attended = sum(workload.call.kv_lengths)
    itemsize = 4 if geometry.dtype == "float32" else 2
    return attended * (geometry.kv_lora_rank + geometry.rope_dim) * itemsize
