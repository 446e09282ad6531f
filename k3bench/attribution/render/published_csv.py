"""Compositions as CSV in the published column layout, column for column.

The layout is that of decode-composition.csv and prefill-composition.csv of the published Kimi K3
study: ms rounded to 4 (decode) or 1 (prefill) decimals, shares of the compute without collectives
in per cent. Blocks that the layout has no column for are part of "other".
"""

import csv
import io
from collections.abc import Sequence

from k3bench.attribution.composition import Composition
from k3bench.attribution.render.names import RenderError, visible

COLLECTIVE_BLOCKS = ("collective", "collectives")

DECODE_COLUMNS = (
    "context",
    "input_tokens",
    "decode_steps_profiled",
    "kda_ms_per_step",
    "full_attn_ms_per_step",
    "moe_ms_per_step",
    "attn_residual_ms_per_step",
    "other_ms_per_step",
    "device_compute_ms_per_step",
    "measured_ms_per_step_cudagraph",
    "kda_pct",
    "full_attn_pct",
    "moe_pct",
    "attn_residual_pct",
    "other_pct",
)
PREFILL_COLUMNS = (
    "context",
    "input_tokens",
    "chunks",
    "ttft_ms_measured",
    "tokens_per_s",
    "gpu_kernel_ms_total",
    "gpu_busy_over_ttft",
    "collective_ms",
    "kda_ms",
    "full_attn_ms",
    "moe_ms",
    "other_ms",
    "kda_pct",
    "full_attn_pct",
    "moe_pct",
    "other_pct",
    "kda_us_per_token",
    "full_attn_us_per_token",
    "moe_us_per_token",
    "kda_ms_per_layer",
    "full_attn_ms_per_layer",
    "full_attn_over_kda",
)
_DECODE_BLOCKS = ("kda", "full_attn", "moe", "attn_residual")
_PREFILL_BLOCKS = ("kda", "full_attn", "moe")


def published_csv(compositions: Sequence[Composition]) -> str:
    """The table of one phase, a row a composition in the given order; lines end in a newline.

    A figure that the composition lacks (no ITL or TTFT was given) is an empty cell. Raises
    RenderError if there is none, phases are mixed, or a block that the layout names is missing.
    """
    phases = {composition.phase for composition in compositions}
    if len(phases) != 1:
        raise RenderError(
            "the published layout has one table a phase: give decode or prefill compositions, "
            f"not {' and '.join(sorted(phases)) or 'none'}"
        )
    decode = phases == {"decode"}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(DECODE_COLUMNS if decode else PREFILL_COLUMNS)
    for composition in compositions:
        writer.writerow(_decode_row(composition) if decode else _prefill_row(composition))
    return text.getvalue()


def _decode_row(composition: Composition) -> list[str]:
    ms, total = _split(composition, _DECODE_BLOCKS)
    measured = composition.measured_us
    return [
        _cell(composition.label),
        _whole(composition.input_tokens),
        str(composition.steps),
        *(f"{value:.4f}" for value in ms.values()),
        f"{total:.4f}",
        "" if measured is None else f"{measured / 1e3:.3f}",
        *(_percent(value, total) for value in ms.values()),
    ]


def _prefill_row(composition: Composition) -> list[str]:
    ms, compute = _split(composition, _PREFILL_BLOCKS)
    collective = composition.excluded_us / 1e3 + sum(
        block.us / 1e3 for block in composition.blocks if block.name in COLLECTIVE_BLOCKS
    )
    kernels = compute + collective
    tokens, ttft_us = composition.input_tokens, composition.measured_us
    kda, full = (_per_layer_ms(composition, name) for name in ("kda", "full_attn"))
    return [
        _cell(composition.label),
        _whole(tokens),
        _whole(composition.chunks),
        "" if ttft_us is None else f"{ttft_us / 1e3:.0f}",
        "" if not (ttft_us and tokens) else f"{tokens / ttft_us * 1e6:.0f}",
        f"{kernels:.1f}",
        "" if not ttft_us else f"{kernels * 1e3 / ttft_us:.3f}",
        f"{collective:.1f}",
        *(f"{value:.1f}" for value in ms.values()),
        *(_percent(value, compute) for value in ms.values()),
        *(f"{ms[name] * 1e3 / tokens:.2f}" if tokens else "" for name in _PREFILL_BLOCKS),
        "" if kda is None else f"{kda:.4f}",
        "" if full is None else f"{full:.4f}",
        "" if not kda or full is None else f"{full / kda:.3f}",
    ]


def _split(composition: Composition, columns: Sequence[str]) -> tuple[dict[str, float], float]:
    """Ms of every column's block and of "other", and their sum."""
    missing = [name for name in columns if composition.block(name) is None]
    if missing:
        raise RenderError(
            f"{visible(composition.label)}: no block {', '.join(missing)}, which the published "
            "layout has a column for: use the block definition kimi-k3, or --json"
        )
    ms = {block.name: block.us / 1e3 for block in composition.blocks}
    compute = sum(value for name, value in ms.items() if name not in COLLECTIVE_BLOCKS)
    named = {name: ms[name] for name in columns}
    return {**named, "other": compute - sum(named.values())}, compute


def _per_layer_ms(composition: Composition, name: str) -> float | None:
    block = composition.block(name)
    per_layer = None if block is None else block.us_per_layer
    return None if per_layer is None else per_layer / 1e3


def _percent(part: float, total: float) -> str:
    return f"{100 * part / total:.2f}" if total else ""


def _whole(value: int | None) -> str:
    return "" if value is None else str(value)


def _cell(text: str) -> str:
    """A label as a cell; spreadsheets would run one that starts like a formula."""
    shown = visible(text)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") else shown
