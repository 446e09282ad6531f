"""The MLA report's plots."""

import functools
from collections.abc import Sequence
from typing import Any

from k3bench.report.mla import Launched, MlaReport
from k3bench.report.svg import BLUE, GREEN, GREY, ORANGE, RED, svg
from mla_rocm import MlaGeometry
from mla_rocm.prefill_plan import most_new_tokens_for_absorbed, prefix_flops

_COLOURS = {"triton": BLUE, "triton_batch_invariant": GREEN, "sglang": ORANGE}
_MARKERS = {"triton": "o", "triton_batch_invariant": "s", "sglang": "^"}
_PEAK_TB_S = 8.0
_PREFIX = 16_384


def draw_plots(report: MlaReport) -> dict[str, str]:
    """File name to SVG text."""
    return {
        "mla_decode.svg": svg(functools.partial(_decode, items=report.decode)),
        "mla_bandwidth.svg": svg(functools.partial(_bandwidth, items=report.decode)),
        "mla_form.svg": svg(_form),
        "mla_model.svg": svg(functools.partial(_model, report=report)),
    }


def _lines(items: Sequence[Launched]) -> dict[str, list[Launched]]:
    lines: dict[str, list[Launched]] = {}
    for item in items:
        if item.shape["B"] == 1:
            lines.setdefault(item.implementation, []).append(item)
    return lines


def _contexts(axes: Any, items: Sequence[Launched]) -> None:
    ticks = {float(item.compiled["hbm_bytes"]): str(item.shape["context"]) for item in items
             if item.shape["B"] == 1 and item.implementation == "triton"}  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.set_xlabel("context, batch 1")


def _place(item: Launched, items: Sequence[Launched]) -> float:
    """Implementations of one context share a place: that of our kernel's bytes."""
    return next(
        float(other.compiled["hbm_bytes"])
        for other in items
        if other.implementation == "triton" and other.shape == item.shape
    )


def _decode(axes: Any, items: Sequence[Launched]) -> None:
    for name, line in _lines(items).items():
        axes.plot(
            [_place(item, items) for item in line],
            [item.modelled_us for item in line],
            color=_COLOURS[name],
            marker=_MARKERS[name],
            label=f"{name}, modelled",
        )
    _contexts(axes, items)
    axes.set_yscale("log")
    axes.set_ylabel("us a step, both stages (log)")
    axes.legend(frameon=False)


def _bandwidth(axes: Any, items: Sequence[Launched]) -> None:
    for name, line in _lines(items).items():
        axes.plot(
            [_place(item, items) for item in line],
            [item.hbm_bytes_per_s / 1e12 for item in line],
            color=_COLOURS[name],
            marker=_MARKERS[name],
            label=f"{name}, modelled",
        )
    axes.axhline(_PEAK_TB_S, color=GREY, linestyle="--", label="8 TB/s, HBM peak")
    _contexts(axes, items)
    axes.set_ylabel("TB/s, bytes moved over modelled time")
    axes.legend(frameon=False)


def _form(axes: Any) -> None:
    geometry = MlaGeometry()
    counts = [2**power for power in range(4, 15)]
    for form, colour, marker in (("decompressed", BLUE, "o"), ("absorbed", RED, "^")):
        axes.plot(
            counts,
            [prefix_flops(geometry, new, _PREFIX, form) for new in counts],
            color=colour,
            marker=marker,
            label=f"prefix of 16K {form}",
        )
    crossing = most_new_tokens_for_absorbed(_PREFIX, geometry)
    axes.axvline(crossing, color=GREY, linestyle="--", label=f"they cross at {crossing}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(counts, [f"{new // 1024}K" if new >= 1024 else str(new) for new in counts])
    axes.set_xlabel("new tokens attending the prefix")
    axes.set_ylabel("FLOPs a layer and rank (modelled)")
    axes.legend(frameon=False)


def _model(axes: Any, report: MlaReport) -> None:
    for held_out, colour, marker in ((True, BLUE, "o"), (False, ORANGE, "^")):
        points = [point for point in report.published if point.held_out is held_out]
        axes.plot(
            [point.measured_us for point in points],
            [point.measured_us * (1 + point.error) for point in points],
            marker,
            color=colour,
            label="held out" if held_out else "fitted; judged with the halves swapped",
        )
    ends = [min(p.measured_us for p in report.published), max(p.measured_us for p in
            report.published)]  # fmt: skip
    axes.plot(ends, ends, color=GREY)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("us, published")
    axes.set_ylabel("us, modelled")
    axes.legend(frameon=False)
