"""Bytes that a block must move in a decode step, and the bandwidth at which it moved them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.composition import Composition
from k3bench.attribution.errors import RequestError


@dataclass(frozen=True)
class TrafficRow:
    """One kind of traffic in one composition: bytes and microseconds per decode step.

    The bytes are modelled from the model's shapes, the time is measured; ``bytes_per_s`` is their
    quotient and ``share_of_peak`` that over the device's stated HBM peak, None where not stated.
    """

    label: str
    input_tokens: int
    block: str
    traffic: str
    bytes_per_step: float
    us_per_step: float
    share_of_peak: float | None

    @property
    def bytes_per_s(self) -> float | None:
        return self.bytes_per_step / (self.us_per_step * 1e-6) if self.us_per_step else None

    def to_json(self) -> dict[str, Any]:
        return {
            "context": self.label,
            "input_tokens": self.input_tokens,
            "block": self.block,
            "traffic": self.traffic,
            "bytes_per_step": self.bytes_per_step,
            "us_per_step": self.us_per_step,
            "bytes_per_s": self.bytes_per_s,
            "share_of_peak": self.share_of_peak,
        }


def mechanism(composition: Composition, definition: BlockDefinition) -> tuple[TrafficRow, ...]:
    """Every kind of traffic that the definition states, over one composition.

    Raises RequestError where the definition states none, the composition is a prefill, or its
    ``input_tokens`` are not known.
    """
    if not definition.traffic:
        raise RequestError(f"{definition.name} states no [[traffic]]")
    if composition.phase != "decode":
        raise RequestError("[[traffic]] is stated for a decode step: give a decode composition")
    if composition.input_tokens is None:
        raise RequestError("the context's length is not known: give --input-tokens")
    rows = []
    for traffic in definition.traffic:
        us = sum(
            row.us
            for row in composition.kernels
            if row.block == traffic.block and traffic.kernels.search(row.name)
        )
        moved = traffic.step_bytes(composition.input_tokens)
        peak = definition.hbm_peak_bytes_per_s
        share = moved / (us * 1e-6) / peak if peak and us else None
        rows.append(
            TrafficRow(
                composition.label,
                composition.input_tokens,
                traffic.block,
                traffic.label,
                moved,
                us,
                share,
            )
        )
    return tuple(rows)


def rows_as_cells(rows: Sequence[TrafficRow]) -> list[list[str]]:
    """A header and a row each, for a CSV file."""
    header = [
        "context",
        "input_tokens",
        "block",
        "traffic",
        "gb_per_step",
        "us_per_step",
        "achieved_tbps",
        "pct_of_peak",
    ]
    cells = [header]
    for row in rows:
        speed = row.bytes_per_s
        cells.append(
            [
                row.label,
                str(row.input_tokens),
                row.block,
                row.traffic,
                f"{row.bytes_per_step / 1e9:.3f}",
                f"{row.us_per_step:.1f}",
                "" if speed is None else f"{speed / 1e12:.3f}",
                "" if row.share_of_peak is None else f"{100 * row.share_of_peak:.1f}",
            ]
        )
    return cells


def published_cells(
    composition: Composition, definition: BlockDefinition
) -> list[list[str]] | None:
    """The published layout of decode-mechanism.csv, header first; None where blocks are missing."""
    kda, full = composition.block("kda"), composition.block("full_attn")
    by_block = {row.block: row for row in mechanism(composition, definition)}
    if kda is None or full is None or not {"kda", "full_attn"} <= by_block.keys():
        return None
    peak = definition.hbm_peak_bytes_per_s
    kda_layer, full_layer = kda.us_per_layer, full.us_per_layer
    if peak is None or not kda_layer or not full_layer:
        return None
    state, cache = by_block["kda"], by_block["full_attn"]
    speed, share = cache.bytes_per_s, cache.share_of_peak
    return [
        [
            *("context", "input_tokens", "kda_us_per_layer", "full_attn_us_per_layer"),
            *("full_attn_over_kda", "kda_recurrence_us_per_step", "mla_kv_scan_us_per_step"),
            *("mla_kv_read_gb_per_step", "mla_kv_scan_achieved_tbps"),
            f"mla_kv_scan_pct_of_{peak / 1e12:g}tbps_peak",
        ],
        [
            *(composition.label, str(composition.input_tokens)),
            *(f"{kda_layer:.2f}", f"{full_layer:.2f}", f"{full_layer / kda_layer:.2f}"),
            *(f"{state.us_per_step:.1f}", f"{cache.us_per_step:.1f}"),
            f"{cache.bytes_per_step / 1e9:.3f}",
            "" if speed is None else f"{speed / 1e12:.3f}",
            "" if share is None else f"{100 * share:.1f}",
        ],
    ]
