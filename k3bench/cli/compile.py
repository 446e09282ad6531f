"""`k3bench compile`: what a compiler says of a kernel, on a machine without its device."""

import json
import sys
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.table import Table

from k3bench.cli.compile_checks import asking, compiling, require_kda
from k3bench.cli.compile_mla import kda_decode, mla_decode, mla_prefill
from k3bench.cli.compile_sweep import kda_sweep
from k3bench.cli.errors import SOFTWARE, USAGE, CliError

if TYPE_CHECKING:
    from k3bench.compiled.tpu import CompiledResult

HEADLINE_LENGTHS = (2048,) * 4
HEADLINE_HEADS = 16
DEFAULT_HEADS = 24
_WIDTH_OF_A_PIPE = 120


@click.group()
def compile() -> None:  # the command's own name
    """Compile kernels for an accelerator and read what the compiler says."""


for _command in (mla_decode, mla_prefill, kda_decode):
    compile.add_command(_command)


@compile.command()
@click.option("--target", default="v6e", show_default=True, help="v6e or tpu7x.")
@click.option(
    "--implementation",
    required=True,
    metavar="NAME",
    help="A rung or a variant, as kda_tpu names it.",
)
@click.option("--headline", is_flag=True, help="4 sequences of 2048 tokens, 16 heads.")
@click.option("--tokens", type=click.IntRange(0), metavar="T", help="T tokens in all ...")
@click.option("--sequences", type=click.IntRange(1), metavar="N", help="... split evenly over N.")
@click.option("--seqlen", type=click.IntRange(0), metavar="S", help="S tokens a sequence ...")
@click.option("--batch", type=click.IntRange(1), metavar="B", help="... and B sequences.")
@click.option("--lengths", metavar="N,N,...", help="The length of every sequence.")
@click.option(
    "--heads",
    type=click.IntRange(1),
    metavar="H",
    help=f"Heads on this chip. [default: {DEFAULT_HEADS}; headline {HEADLINE_HEADS}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--no-cache", is_flag=True, help="Compile afresh and keep nothing.")
@click.option(
    "--allow-other-compiler", is_flag=True, help="Try another jax or libtpu than the pinned one."
)
def kda(
    target: str,
    implementation: str,
    headline: bool,
    tokens: int | None,
    sequences: int | None,
    seqlen: int | None,
    batch: int | None,
    lengths: str | None,
    heads: int | None,
    as_json: bool,
    no_cache: bool,
    allow_other_compiler: bool,
) -> None:
    """One KDA prefill call: cycles, slots, spills, bytes and a modelled time.

    Exit codes: 0 where the compiler answered; an overflow of VMEM (status oom) or a point that
    the implementation refuses (status unsupported) is such an answer. 64 usage; 65 the compiler's
    output is not understood; 69 no compiler, or not the pinned one; 70 the compiler failed.
    """
    from k3bench.compiled.tpu import (
        KdaPoint,
        compile_points,
        get_target,
    )

    with asking():
        point = KdaPoint(
            implementation,
            _lengths(headline, tokens, sequences, seqlen, batch, lengths),
            heads=heads or (HEADLINE_HEADS if headline else DEFAULT_HEADS),
        )
        chosen = get_target(target)
    require_kda([implementation])
    with compiling():
        [result] = compile_points(
            [point], chosen, use_cache=not no_cache, allow_other_versions=allow_other_compiler
        )
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=1))
    else:
        _print(result)
    if result.status == "error":
        raise CliError(f"{implementation}: {result.detail}", SOFTWARE)


def _lengths(
    headline: bool,
    tokens: int | None,
    sequences: int | None,
    seqlen: int | None,
    batch: int | None,
    lengths: str | None,
) -> tuple[int, ...]:
    """The one packing that was asked for; CliError unless it is exactly one."""
    ways = {
        "--headline": headline,
        "--tokens": tokens is not None or sequences is not None,
        "--seqlen": seqlen is not None or batch is not None,
        "--lengths": lengths is not None,
    }
    asked = [name for name, wanted in ways.items() if wanted]
    if len(asked) != 1:
        raise CliError(
            f"{' and '.join(asked) or 'no shape'} given: give one of --headline, --tokens T "
            "--sequences N, --seqlen S --batch B, --lengths N,N,...",
            USAGE,
        )
    if headline:
        return HEADLINE_LENGTHS
    if tokens is not None or sequences is not None:
        if tokens is None or sequences is None:
            raise CliError("--tokens and --sequences go together: give both", USAGE)
        # As even as it goes: the first ones take the remainder.
        return tuple(tokens // sequences + (n < tokens % sequences) for n in range(sequences))
    if lengths is not None:
        try:
            return tuple(int(piece) for piece in lengths.split(","))
        except ValueError:
            raise CliError(
                f"--lengths {lengths}: give counts separated by commas, as 130,64,210", USAGE
            ) from None
    if seqlen is None or batch is None:
        raise CliError("--seqlen and --batch go together: give both", USAGE)
    return (seqlen,) * batch


def _print(result: "CompiledResult") -> None:
    console = Console(
        highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE, soft_wrap=True
    )
    title = f"{result.implementation} on {result.target}: {result.status}"
    if result.status != "ok":
        console.print(title, markup=False)
        console.print(f"  {result.detail}", markup=False)
        if result.wanted_vmem_bytes is not None and result.limit_vmem_bytes is not None:
            console.print(
                f"  wanted {result.wanted_vmem_bytes / 2**20:.2f} MiB of "
                f"{result.limit_vmem_bytes / 2**20:.2f} MiB"
            )
        return
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in ("kernel", "cycles", "stalls", "trips", "spills", "fills", "HBM MB", "VMEM KiB"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for kernel in result.kernels:
        table.add_row(
            kernel["name"],
            f"{kernel['cycles']:,}",
            f"{kernel['stall_cycles'] / kernel['cycles']:.1%}",
            f"{kernel['trips']:,}",
            f"{kernel['spill_stores']:,}",
            f"{kernel['spill_fills']:,}",
            f"{kernel['hbm_bytes'] / 1e6:.1f}",
            f"{kernel['vmem_bytes'] / 1024:.0f}",
        )
    ops = result.xla_ops
    table.add_row(
        f"{ops['count']} XLA ops",
        f"{ops['cycles']:,}",
        *[""] * 4,
        f"{ops['hbm_bytes'] / 1e6:.1f}",
        "",
    )
    console.print(table)
    error = result.modelled_error
    trust = (
        f"model error {error['mean']:.1%} on average, {error['worst']:.1%} at worst"
        if error
        else "the model was not judged on this target"
    )
    bounds = ", ".join(
        f"{result.busiest_slot if name == 'busiest_slot' else name} {value:.3f}"
        for name, value in result.lower_bounds_ms.items()
    )
    shares = ", ".join(f"{name} {share:.1%}" for name, share in result.breakdown.items())
    slots = ", ".join(f"{name} {share:.1%}" for name, share in result.slots.items())
    console.print(f"modelled {result.modelled_ms:.3f} ms ({trust}); lower bounds, ms: {bounds}")
    console.print(f"cycles: {shares}")
    console.print(f"slots: {slots}")
    if any(result.assumed.values()):
        console.print(
            f"upper bounds: {result.assumed['regions']} regions and {result.assumed['dmas']} DMAs "
            "were counted as always taken"
        )


compile.add_command(kda_sweep)
