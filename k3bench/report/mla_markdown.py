"""The MLA report's words and tables; every figure carries its kind."""

from collections.abc import Sequence

from k3bench.report.markdown import table
from k3bench.report.mla import Launched, MlaReport
from mla_rocm import MlaPrefillCase
from mla_rocm.prefill_plan import (
    choose_prefill_form,
    least_prefix_for_absorbed,
    most_new_tokens_for_absorbed,
    sglang_prefill_form,
)
from mla_rocm.work import prefill_work

CHUNK = 16_384
HBM_PEAK = "8 TB/s"


def document(report: MlaReport) -> str:
    """The whole report."""
    stated = report.stated
    parts = [
        "# MLA on MI355X, judged without one",
        "Written by `k3bench report` from the ledger; do not edit. No GPU was used. Registers, "
        "scratch, LDS, rounds, round trips and bytes are **compiled**: read from the code objects "
        f"that Triton {report.triton} makes for gfx950. Times are **modelled** from them, with a "
        f"mean error of {stated['mean']:.0%} and {stated['worst']:.0%} at worst on published "
        "points; two kernels closer than that are not ordered by them. **Published** times are "
        "other people's, with their source below. Kimi K3 at TP8: 12 heads, latent 512 + 64, bf16.",
        "## Decode at batch 1",
        decode_table([item for item in report.decode if item.shape["B"] == 1]),
        _speedups(report),
        f"![Decode over context](plots/mla_decode.svg)\n\n![Bandwidth over context, against "
        f"{HBM_PEAK}](plots/mla_bandwidth.svg)",
        "## The code (compiled)",
        "Of the kernel that moves most bytes, at the longest context compiled.",
        code_table(_longest(report.decode)),
        "## Splits at 68K: the cliff",
        "One workgroup more than the device holds costs a whole round. The exact metric is "
        "`rounds`; a gate may rest on it.",
        cliff_table(report.cliff),
        "## The form of the prefix",
        _form_words(),
        form_table(report.last_chunk),
        _form_ratio(report.last_chunk),
        "![FLOPs of attending a prefix of 16K, by form, over new tokens](plots/mla_form.svg)",
        "## KDA decode",
        "One token of each sequence; the launch of 48 workgroups at batch 1 is bound by latency.",
        kda_table(report.kda_decode),
        "## How true the model is",
        "modelled / published - 1 at every published point. Each was judged with constants fitted "
        "on the half that it is not in; the halves alternate within each kernel's points.",
        error_table(report),
        "![Modelled against published](plots/mla_model.svg)",
        _means(report),
        "\n".join(f"- {name}: {text}." for name, text in report.sources.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def decode_table(items: Sequence[Launched]) -> str:
    """Both stages over contexts."""
    header = ["context", "implementation", "stage 1 us", "stage 2 us", "both us (modelled)",
              "bound us", "TB/s (modelled)", f"of {HBM_PEAK}"]  # fmt: skip
    rows = [
        [
            str(item.shape["context"]),
            f"`{item.implementation}`",
            *(f"{item.stage_us[stage]:.1f}" for stage in ("stage1", "stage2")),
            f"{item.modelled_us:.1f}",
            f"{item.bound_us:.1f}",
            f"{item.hbm_bytes_per_s / 1e12:.2f}",
            f"{item.hbm_bytes_per_s / 8e12:.0%}",
        ]
        for item in items
    ]
    return table(header, rows)


def _speedups(report: MlaReport) -> str:
    ours = {item.shape["context"]: item for item in report.decode if _is(item, "triton")}
    lines = [
        f"- {item.shape['context']}: `triton` takes 1/{item.modelled_us / beside.modelled_us:.1f} "
        "of `sglang`'s modelled time"
        for item in report.decode
        if _is(item, "sglang") and (beside := ours.get(item.shape["context"])) is not None
    ]
    return "\n".join(lines)


def _is(item: Launched, implementation: str) -> bool:
    return item.implementation == implementation and item.shape["B"] == 1


def _longest(items: Sequence[Launched]) -> list[Launched]:
    newest: dict[str, Launched] = {}
    for item in items:  # in the order of their bytes
        newest[item.implementation] = item
    return list(newest.values())


def code_table(items: Sequence[Launched]) -> str:
    """Exact metrics of the main kernel."""
    header = ["implementation", "context", "VGPR", "AGPR", "scratch B", "LDS B", "resident",
              "rounds", "round trips", "KiB in flight/CU", "MFMA"]  # fmt: skip
    keys = ("vgpr", "agpr", "scratch_bytes", "lds_bytes", "resident_workgroups", "rounds")
    return table(
        header,
        [
            [
                f"`{item.implementation}`",
                str(item.shape["context"]),
                *(f"{int(item.compiled[key]):,}" for key in keys),
                f"{float(item.compiled['round_trips']):g}",
                f"{int(item.compiled['bytes_in_flight_per_cu']) / 1024:.0f}",
                str(item.compiled["mfma"]),
            ]
            for item in items
        ],
    )


def cliff_table(items: Sequence[Launched]) -> str:
    """Rounds over split counts."""
    ordered = sorted(items, key=lambda i: (i.implementation, i.shape["B"], i.shape["splits"]))
    return table(
        ["implementation", "B", "splits", "workgroups", "resident", "rounds", "us (modelled)"],
        [
            [
                f"`{item.implementation}`",
                str(item.shape["B"]),
                str(item.shape["splits"]),
                f"{int(item.compiled['stage1.workgroups']):,}",
                f"{int(item.compiled['resident_workgroups']):,}",
                str(item.compiled["rounds"]),
                f"{item.modelled_us:.0f}",
            ]
            for item in ordered
        ],
    )


def _form_words() -> str:
    case = MlaPrefillCase((CHUNK,), (CHUNK,))
    first = prefill_work(MlaPrefillCase((CHUNK,)), "decompressed")
    forms = {
        "our rule": choose_prefill_form(CHUNK, CHUNK),
        "sglang's rule": sglang_prefill_form(CHUNK),
    }
    costs = "; ".join(
        f"{who} takes `{form}`, {prefill_work(case, form).attention_flops:.3g} FLOPs, "
        f"{prefill_work(case, form).attention_flops / first.attention_flops:.1f} times the first "
        "chunk's"
        for who, form in forms.items()
    )
    never = most_new_tokens_for_absorbed(1 << 40)
    least = least_prefix_for_absorbed(128)
    return (
        f"A 32K prompt in two chunks of 16K: {costs}. A prefix attended as latents (576/512 a "
        "pair) needs no up-projection, but each pair costs 3.4 times the decompressed one "
        f"(192/128). By FLOPs it pays only for at most {never} new tokens, however long the "
        f"prefix; with 128 new tokens it takes a prefix of {least:,} tokens."
    )


def form_table(items: Sequence[Launched]) -> str:
    """Attention launches of the last chunk, by form."""
    ordered = sorted(items, key=lambda i: (str(i.shape["context"]), i.modelled_us))
    return table(
        ["prompt", "implementation", "FLOPs", "bytes", "MFMA", "rounds", "scratch B",
         "us (modelled)", "TFLOP/s (modelled)"],
        [
            [
                str(item.shape["context"]),
                f"`{item.implementation}`",
                f"{float(item.compiled['flops']):.3g}",
                f"{int(item.compiled['hbm_bytes']):,}",
                str(item.compiled["mfma"]),
                str(item.compiled["rounds"]),
                f"{int(item.compiled['scratch_bytes']):,}",
                f"{item.modelled_us:,.0f}",
                f"{float(item.compiled['flops']) / item.modelled_us / 1e6:.0f}",
            ]
            for item in ordered
        ],
    )  # fmt: skip


def _form_ratio(items: Sequence[Launched]) -> str:
    by_name = {item.implementation: item for item in items if item.shape["context"] == "32K"}
    ours, absorbed = (
        by_name.get(f"triton_chunked_{form}") for form in ("decompressed", "absorbed")
    )
    if ours is None or absorbed is None:
        return ""
    longer = absorbed.modelled_us / ours.modelled_us
    return (
        "Attention launches only; the up-projections of the decompressed form are GEMMs of the "
        f"vendor's library. Absorbing the prefix takes {longer:.1f} times as long (modelled)."
    )


def kda_table(items: Sequence[Launched]) -> str:
    """One step over batch."""
    return table(
        ["B", "implementation", "workgroups", "resident", "us (modelled)", "bound us"],
        [
            [
                str(item.shape["B"]),
                f"`{item.implementation}`",
                f"{int(item.compiled['step.workgroups']):,}",
                f"{int(item.compiled['resident_workgroups']):,}",
                f"{item.modelled_us:.1f}",
                f"{item.bound_us:.2f}",
            ]
            for item in items
        ],
    )


def error_table(report: MlaReport) -> str:
    """Every published point."""
    return table(
        ["point", "us (published)", "us (modelled)", "error", "half"],
        [
            [
                point.id,
                f"{point.measured_us:,.1f}",
                f"{point.measured_us * (1 + point.error):,.1f}",
                f"{point.error:+.0%}",
                "held out" if point.held_out else "fitted",
            ]
            for point in report.published
        ],
    )


def _means(report: MlaReport) -> str:
    means = report.mean_errors
    return (
        f"Mean error: {means['held out']:.1%} on the held-out half, {means['fitted']:.1%} on the "
        f"fitted one; with the halves swapped {means['swapped: held out']:.1%} and "
        f"{means['swapped: fitted']:.1%}. Published times:"
    )
