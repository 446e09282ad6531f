"""Compositions to render: K3's published figures where they are at hand, small ones elsewhere."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

from k3bench.attribution.composition import (
    CheckOutcome,
    Composition,
    KernelShare,
    Phase,
    SourceFile,
    Unmapped,
    make_blocks,
)

LAYERS = {"kda": 69, "full_attn": 24, "moe": 92}
# What a kernel's or a file's name can hold: markup, quotes, NUL, escape, newline, a right-to-left
# override, a lone surrogate, a line separator.
HOSTILE = "<script>alert(1)</script>\"'&\x00\x1b[31m\n\u202eevil\ud800\u2028]]>-->"
SHA = "ab" * 32


def composition(
    label: str = "4k",
    *,
    phase: Phase = "decode",
    us: dict[str, float] | None = None,
    input_tokens: int | None = 4096,
    **more: object,
) -> Composition:
    """A composition of K3's blocks with one trace behind it; every check passed."""
    times = us or {
        "kda": 3542.3,
        "full_attn": 3100.1,
        "moe": 10548.5,
        "attn_residual": 2287.7,
        "other": 1290.3,
    }
    blocks, total = make_blocks([(name, 100.0, t, 0.0) for name, t in times.items()], LAYERS)
    fields: dict[str, object] = {
        "label": label,
        "phase": phase,
        "device": "AMD Instinct MI355X",
        "steps": 24,
        "blocks": blocks,
        "total_us": total,
        "method": "map",
        "definition": "kimi-k3",
        "sources": (SourceFile("decode-4k-TP-0.trace.json.gz", 52_000_000, SHA),),
        "checks": (CheckOutcome("count of KDA recurrence", "ok", "69 a step, expected 69"),),
        "input_tokens": input_tokens,
    }
    return Composition(**{**fields, **more})  # type: ignore[arg-type]


def hostile() -> Composition:
    """Every text of it is hostile."""
    return composition(
        HOSTILE,
        us={HOSTILE: 5.0, "kda": 3.0, "full_attn": 1.0},
        device=HOSTILE,
        definition=HOSTILE,
        sources=(SourceFile(HOSTILE, 1, HOSTILE),),
        checks=(CheckOutcome(HOSTILE, "failed", HOSTILE),),
        notes=(HOSTILE,),
        unmapped=(Unmapped(HOSTILE, 1.0, 2.0),),
        kernels=(KernelShare(HOSTILE, HOSTILE, 1.0, 2.0, shared=True, split=HOSTILE),),
    )


def published_decode(find: Callable[[str], Path]) -> list[Composition]:
    """The study's five decode contexts, from its unrounded figures. ``find`` gives a file."""
    rows = json.loads(find("published/k3_mi355x/derived.json").read_text())["rows"]
    names = ("kda", "full_attn", "moe", "attn_residual", "other")
    return [
        composition(
            row["label"],
            us={name: row["groups_ms_per_step"][name] * 1e3 for name in names},
            input_tokens=row["isl"],
            measured_us=row["real_itl_ms"] * 1e3,
            excluded_us=row["groups_ms_per_step"]["collective"] * 1e3,
        )
        for row in rows
    ]


def published_prefill(find: Callable[[str], Path]) -> list[Composition]:
    """The study's four prefill lengths; TTFT from the server without ranges."""
    rows = json.loads(find("published/k3_mi355x/prefill_summary.json").read_text())["rows"]
    clocked = json.loads(find("published/k3_mi355x/prefill_ttft.json").read_text())["rows"]
    ttft = {row["isl"]: row["ttft_s_min"] * 1e6 for row in clocked}
    return [
        composition(
            row["label"],
            phase="prefill",
            us={name: ms * 1e3 for name, ms in row["groups_ms"].items()},
            input_tokens=row["isl"],
            steps=1,
            chunks=int(row["chunks"]),
            measured_us=ttft[row["isl"]],
            excluded_us=row["collective_ms"] * 1e3,
        )
        for row in rows
    ]


def published_table(find: Callable[[str], Path], phase: str) -> list[dict[str, str]]:
    """The published CSV, row by row."""
    with find(f"published/k3_mi355x/{phase}-composition.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))
