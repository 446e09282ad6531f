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
# Parts of a whole that the same kernel states, and causes of nothing but it: stalls are cycles of
# the kernel, and registers cost what they take from occupancy (spills are figures of their own).
# Where both sides state one of the wholes, it decides, and the part only explains it.
_WHOLES = {
    "stall_cycles": ("kernel_cycles", "cycles"),
    "vgpr": ("occupancy", "resident_workgroups"),
    "agpr": ("occupancy", "resident_workgroups"),
    "sgpr": ("occupancy", "resident_workgroups"),
}
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


def decided_by(figure: str, base: str | None, head: str | None) -> str | None:
    """The figure that decides in place of ``figure``; None where that decides itself.

    ``base`` and ``head``: all figures of both sides, canonical JSON.
    """
    prefix, dot, name = figure.rpartition(".")
    if name not in _WHOLES:
        return None
    stated = _decoded(base).keys() & _decoded(head).keys()
    return next((whole for of in _WHOLES[name] if (whole := f"{prefix}{dot}{of}") in stated), None)


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
