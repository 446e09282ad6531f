"""Figures that a compiler or a count states: equal, or changed, with no noise to allow for."""

import json
from collections.abc import Mapping
from typing import Literal

Direction = Literal["lower", "higher"]

# By the last part of a figure's dotted name ("stage1.vgpr" is judged as "vgpr").
_LOWER = frozenset(
    {
        "kernel_cycles",
        "stall_cycles",
        "cycles",
        "spill_stores",
        "spill_fills",
        "scratch_bytes",
        "scratch_operations_in_loops",
        "hbm_bytes",
        "vmem_bytes",
        "lds_bytes",
        "flops",
        "vgpr",
        "agpr",
        "sgpr",
        "rounds",
        "round_trips",
        "padded_tokens",
        "median_s",
        "max_abs_error",
    }
)
_HIGHER = frozenset({"occupancy", "resident_workgroups", "tokens_per_s"})
# What decides whether two compiled figures may be compared at all.
VERSIONS = frozenset({"jax", "libtpu", "triton", "llvm", "parser", "rocm", "pinned"})
# Counts of what the parser had to assume: more of them makes other figures bounds, not worse.
_ASSUMED = frozenset({"assumed", "estimated", "regions", "dmas"})


def direction(figure: str) -> Direction | None:
    """Which way is better; None where a change is neither (shares, slots, hashes, names)."""
    first, _, _ = figure.partition(".")
    name = figure.rpartition(".")[2]
    if first in ("slot", "share", "assumed") or name in _ASSUMED:
        return None
    if name in _LOWER:
        return "lower"
    return "higher" if name in _HIGHER else None


def is_worse(figure: str, base: float, head: float) -> bool | None:
    """True if ``head`` is worse, False if better, None if equal or of no known direction."""
    way = direction(figure)
    if way is None or base == head:
        return None
    return (head > base) == (way == "lower")


def changed_figures(base: str | None, head: str | None) -> dict[str, tuple[object, object]]:
    """Figures that differ, as (base, head), from canonical JSON; None where a side lacks it.

    Versions are left out: they decide about comparability.
    """
    if base == head:
        return {}
    before, after = _decoded(base), _decoded(head)
    return {
        name: (before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if name not in VERSIONS and before.get(name) != after.get(name)
    }


def changed_versions(base: str | None, head: str | None) -> dict[str, tuple[object, object]]:
    """Versions that differ, as (base, head)."""
    if base == head:
        return {}
    before, after = _decoded(base), _decoded(head)
    names = sorted((before.keys() | after.keys()) & VERSIONS)
    return {
        name: (before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    }


def _decoded(figures: str | None) -> Mapping[str, object]:
    if figures is None:
        return {}
    decoded: Mapping[str, object] = json.loads(figures)
    return decoded
