"""`k3bench compile mla-decode|mla-prefill|kda-decode`: what Triton says for gfx950 without one."""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from k3bench.cli.compile_checks import asking, compiling
from k3bench.cli.errors import SOFTWARE, CliError

if TYPE_CHECKING:
    from k3bench.compiled.amdgpu import GpuPoint, GpuResult

_WIDTH_OF_A_PIPE = 140
_CODES = """

    Exit codes: 0 where the compiler answered; too much LDS (status oom) or a shape that the
    implementation refuses (status unsupported) is such an answer. 64 usage; 65 code that the
    analysis does not understand; 69 no Triton; 70 the compiler failed.
    """

_INSTEAD = "Of the first launch. [default: the implementation's choice]"


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """What all three commands take."""
    for option in reversed(
        [
            click.option(
                "--target", default="gfx950", show_default=True, help="gfx950, gfx942 or sm_90."
            ),
            click.option(
                "--implementation",
                required=True,
                metavar="NAME",
                help="As mla_rocm names it.",
            ),
            click.option("--batch", type=click.IntRange(1), required=True, metavar="B"),
            click.option(
                "--heads", type=click.IntRange(1), default=12, show_default=True, metavar="H"
            ),
            click.option(
                "--dtype",
                type=click.Choice(["bfloat16", "float16", "float32"]),
                default="bfloat16",
                show_default=True,
            ),
            click.option(
                "--compute-units",
                type=click.IntRange(1),
                metavar="N",
                help="Of a partition (32 in CPX mode). [default: the whole device]",
            ),
            click.option("--block-n", type=click.IntRange(1), metavar="N", help=_INSTEAD),
            click.option("--num-warps", type=click.IntRange(1), metavar="N", help=_INSTEAD),
            click.option("--num-stages", type=click.IntRange(1), metavar="N", help=_INSTEAD),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
            click.option("--no-cache", is_flag=True, help="Compile afresh and keep nothing."),
        ]
    ):
        command = option(command)
    return command


_context = click.option(
    "--context",
    type=click.IntRange(0),
    required=True,
    metavar="L",
    help="Cached tokens a sequence.",
)
_page_size = click.option(
    "--page-size", type=click.IntRange(1), default=64, show_default=True, metavar="P"
)


@click.command(
    "mla-decode", help="One MLA decode step: both stages, their code and launch." + _CODES
)
@_options
@_context
@_page_size
@click.option("--splits", type=click.IntRange(1), metavar="S", help="[default: chosen]")
def mla_decode(batch: int, context: int, splits: int | None, **options: Any) -> None:
    """One decode step of ``batch`` sequences with ``context`` cached tokens each."""
    _run("mla-decode", (context,) * batch, options, num_kv_splits=splits)


@click.command("mla-prefill", help="One MLA prefill after a cached prefix or none." + _CODES)
@_options
@click.option(
    "--context", type=click.IntRange(0), required=True, metavar="L", help="New tokens a sequence."
)
@click.option("--prefix", type=click.IntRange(0), default=0, show_default=True, metavar="P")
@_page_size
def mla_prefill(batch: int, context: int, prefix: int, **options: Any) -> None:
    """One prefill of ``batch`` sequences of ``context`` new tokens each."""
    prefixes = (prefix,) * batch if prefix else ()
    _run("mla-prefill", (context,) * batch, options, prefix_lengths=prefixes)


@click.command("kda-decode", help="One step of the KDA decode recurrence." + _CODES)
@_options
@click.option(
    "--context", type=click.IntRange(0), metavar="L", help="Without effect: the state has one size."
)
def kda_decode(batch: int, context: int | None, **options: Any) -> None:
    """One token of each of ``batch`` sequences; the cached context does not matter."""
    del context
    _run("kda-decode", (1,) * batch, options)


def _run(operation: str, lengths: tuple[int, ...], options: dict[str, Any], **shape: Any) -> None:
    from k3bench.compiled import amdgpu

    target_name, as_json = options.pop("target"), options.pop("as_json")
    no_cache = options.pop("no_cache")
    with asking():
        point = amdgpu.GpuPoint(operation, lengths=lengths, **options, **shape)
        target = amdgpu.get_gpu_target(target_name)
        _require_implementation(point)
    with compiling():
        [result] = amdgpu.compile_gpu_points([point], target, use_cache=not no_cache)
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=1))
    else:
        _print(result)
    if result.status == "error":
        raise CliError(f"{point.implementation}: {result.detail}", SOFTWARE)


def _require_implementation(point: "GpuPoint") -> None:
    from k3bench.compiled.amdgpu.launches import DESCRIBED, implementation_names
    from k3bench.compiled.errors import CompiledError

    if point.implementation in DESCRIBED[point.operation]:
        return
    known = implementation_names(point.operation)
    if point.implementation not in known:
        raise CompiledError(
            f"--implementation {point.implementation}: use one of {', '.join(known)}"
        )


def _print(result: "GpuResult") -> None:
    from k3bench.compiled.amdgpu.model import ADVICE

    console = Console(
        highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE, soft_wrap=True
    )
    title = f"{result.implementation} on {result.target} (Triton {result.triton}): {result.status}"
    if result.status != "ok":
        console.print(title, markup=False)
        console.print(f"  {result.detail}", markup=False)
        return
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    columns = ("kernel", "VGPR", "AGPR", "SGPR", "scratch B", "LDS B", "occupancy", "workgroups",
               "resident", "rounds", "round trips", "KiB in flight/CU", "modelled us")  # fmt: skip
    for heading in columns:
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for kernel in result.kernels:
        in_flight = kernel["bytes_in_flight_per_cu"]
        trips = kernel["round_trips"]
        table.add_row(
            kernel["name"],
            *(_plain(kernel[key]) for key in ("vgpr", "agpr", "sgpr", "scratch_bytes")),
            *(_plain(kernel[key]) for key in ("lds_bytes", "occupancy", "workgroups")),
            *(_plain(kernel[key]) for key in ("resident_workgroups", "rounds")),
            "-" if trips is None else f"{trips:g} per {kernel['round_trips_are_of']}",
            "-" if in_flight is None else f"{in_flight / 1024:.0f}",
            "-" if kernel["modelled_us"] is None else f"{kernel['modelled_us']:.1f}",
        )
    console.print(table)
    for kernel in result.kernels:
        path = kernel["main_loop"] or kernel["whole_pass"]
        if path is None:
            continue
        mfma = ", ".join(f"{count} x {shape}" for shape, count in path["mfma"].items()) or "none"
        widths = ", ".join(f"{count} x {width} B" for width, count in path["load_widths"].items())
        mix = ", ".join(f"{count} {name}" for name, count in path["mix"].items())
        console.print(
            f"{kernel['name']}, one {kernel['round_trips_are_of']}: MFMA {mfma}; loads "
            f"{widths or 'none'} a lane, {path['direct_to_lds_share']:.0%} direct to LDS; "
            f"{path['data_bytes']:,} bytes of data, {path['index_loads']} index loads; "
            f"{kernel['scratch_operations_in_loops']} scratch operations in loops; {mix}",
            markup=False,
        )
    console.print(
        f"{result.hbm_bytes:,} bytes, {result.flops:,} FLOPs; lower bound "
        f"{result.lower_bound_us:.1f} us"
    )
    if result.modelled_us is None:
        return
    error = result.modelled_error
    trust = (
        f"model error {error['mean']:.0%} on average, {error['worst']:.0%} at worst"
        if error
        else "the model was not judged on this target"
    )
    console.print(f"modelled {result.modelled_us:.1f} us ({trust}); {ADVICE}")


def _plain(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
