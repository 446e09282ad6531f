"""The ladder report's words and tables; every figure carries its kind."""

from collections.abc import Sequence

from k3bench.report.ladder import HEADLINE, LadderReport, Rung
from k3bench.report.markdown import table

README_BEGIN = "<!-- headline table: written by `k3bench report`; do not edit -->"
README_END = "<!-- end of the headline table -->"

_SHARES = ("mxu", "vector", "layout", "memory", "other", "stall")
_SLOTS = ("MXU", "XLU", "VALU", "EUP", "VLOAD", "VSTORE", "SALU")


def headline_table(report: LadderReport) -> str:
    """Our ladder beside the published one, at the headline shape."""
    rungs = report.workloads[HEADLINE]
    first = rungs[0]
    rows = []
    for rung in rungs:
        published = rung.published_ms
        rows.append(
            [
                f"`{rung.implementation}`",
                f"{int(rung.compiled['kernel_cycles']):,}",
                f"{rung.modelled_ms:.2f}",
                f"{first.modelled_ms / rung.modelled_ms:.2f}x",
                "" if published is None else f"{published:.2f}",
                ""
                if published is None or first.published_ms is None
                else f"{first.published_ms / published:.2f}x",
            ]
        )
    header = [
        "rung",
        "kernel cycles (compiled)",
        "ms (modelled)",
        "gain (modelled)",
        "ms (published)",
        "gain (published)",
    ]
    return table(header, rows)


def model_note(report: LadderReport) -> str:
    """One sentence on what a modelled time is worth."""
    model = report.model
    return (
        f"Modelled times are the cost model's, from libtpu {report.libtpu}'s schedule for TPU v6e "
        f"(jax {report.jax}): mean error {100 * model.mean_error:.1f}%, worst "
        f"{100 * model.worst_error:.1f}% over {model.judged_on} published points, none of which "
        "was judged with constants fitted on it. Published: " + report.source + "."
    )


def readme_section(report: LadderReport) -> str:
    """What stands between the README's markers."""
    return "\n".join([README_BEGIN, "", headline_table(report), "", model_note(report), README_END])


def document(report: LadderReport) -> str:
    """The whole report."""
    headline = report.workloads[HEADLINE]
    parts = [
        "# The KDA ladder as TPU v6e would run it",
        "Written by `k3bench report` from the ledger; do not edit. No TPU was used: cycles, slots, "
        "spills and bytes are **compiled** (read from libtpu's schedule), times are **modelled** "
        "from them, and medians of other kernels are **published** figures.",
        "## The headline: T = 8192 as 4 x 2048 packed, H = 16, bf16",
        headline_table(report),
        "The ladder ends at `optimized`; `dyadic` goes on from there and has no published sibling: "
        "[kda-fastest.md](kda-fastest.md).",
        model_note(report),
        "![The ladder, modelled beside published](plots/ladder.svg)",
        _distance(headline),
        "## Where the cycles go (compiled)",
        "Shares of all scheduled cycles; they sum to one.",
        table(["rung", *_SHARES], [_shares(rung) for rung in headline]),
        "![Breakdown of scheduled cycles](plots/breakdown.svg)",
        "Slot utilisation: the part of a slot's capacity that the schedule fills.",
        table(
            ["rung", *_SLOTS, "spill stores", "spill fills", "VMEM MiB", "HBM MB"],
            [_slots(rung) for rung in headline],
        ),
        "## Lower bounds (modelled)",
        "No schedule of the same program can beat these; the distance to them is what is left.",
        table(
            ["rung", *(f"{name} ms" for name in sorted(headline[0].bounds_ms)), "modelled ms"],
            [
                [
                    f"`{rung.implementation}`",
                    *(f"{rung.bounds_ms[name]:.3f}" for name in sorted(rung.bounds_ms)),
                    f"{rung.modelled_ms:.3f}",
                ]
                for rung in headline
            ],
        ),
        "## Other shapes (modelled)",
        _other_shapes(report),
        "## How true the model is",
        "Relative error, modelled / published - 1, at each published point of the public kernels. "
        "Each was judged with constants fitted on the half it is not in.",
        "![Model error by implementation](plots/model_error.svg)",
        _error_table(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _distance(rungs: Sequence[Rung]) -> str:
    lines = []
    for rung in rungs:
        if rung.published_ms is not None:
            ratio = rung.modelled_ms / rung.published_ms
            lines.append(f"- `{rung.implementation}`: {ratio:.2f} of the published rung's time")
    return (
        "How far each rung stands from the published rung of the same name. Ours were written "
        "from the maths, not from the published kernels, so the ratio compares two kernels, not "
        "the model with a measurement:\n\n" + "\n".join(lines)
        if lines
        else ""
    )


def _shares(rung: Rung) -> list[str]:
    return [
        f"`{rung.implementation}`",
        *(f"{100 * float(rung.compiled[f'share.{name}']):.1f}%" for name in _SHARES),
    ]


def _slots(rung: Rung) -> list[str]:
    figures = rung.compiled
    return [
        f"`{rung.implementation}`",
        *(f"{100 * float(figures[f'slot.{name}']):.1f}%" for name in _SLOTS),
        f"{int(figures['spill_stores']):,}",
        f"{int(figures['spill_fills']):,}",
        f"{int(figures['vmem_bytes']) / 2**20:.2f}",
        f"{int(figures['hbm_bytes']) / 1e6:,.0f}",
    ]


def _other_shapes(report: LadderReport) -> str:
    names = [rung.implementation for rung in report.workloads[HEADLINE]]
    rows = []
    for workload, rungs in report.workloads.items():
        times = {rung.implementation: rung.modelled_ms for rung in rungs}
        rows.append([f"`{workload}`", *(f"{times[n]:.3f}" if n in times else "" for n in names)])
    return table(["workload", *(f"{name} ms" for name in names)], rows)


def _error_table(report: LadderReport) -> str:
    by_name: dict[str, list[float]] = {}
    for point, error in report.errors.items():
        by_name.setdefault(point.partition("/")[0], []).append(error)
    rows = [
        [
            f"`{name}`",
            str(len(errors)),
            f"{100 * sum(abs(e) for e in errors) / len(errors):.1f}%",
            f"{100 * max(errors, key=abs):+.1f}%",
        ]
        for name, errors in sorted(by_name.items())
    ]
    return table(["public kernel", "points", "mean |error|", "worst"], rows)
