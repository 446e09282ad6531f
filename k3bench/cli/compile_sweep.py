"""``k3bench compile kda-sweep``: a family of workloads under several implementations, one table."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.table import Table

from k3bench.cli.compile_checks import asking, compiling, require_kda
from k3bench.cli.errors import USAGE, CliError

if TYPE_CHECKING:
    from k3bench.compiled.tpu import CompiledResult


@click.command("kda-sweep")
@click.argument("family", metavar="FAMILY")
@click.option(
    "--implementation", "implementations", multiple=True, required=True, metavar="NAME",
    help="A rung or a variant; may be given several times.",
)  # fmt: skip
@click.option("--target", default="v6e", show_default=True, help="v6e or tpu7x.")
@click.option("--jobs", type=click.IntRange(1), help="Compilers at once. [default: CPUs]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a point.")
def kda_sweep(
    family: str, implementations: Sequence[str], target: str, jobs: int | None, as_json: bool
) -> None:
    """Compile every single-call workload of FAMILY (kda-headline, kda-grid, kda-series).

    Finished points are kept, so an interrupted sweep goes on where it stopped. The seed's table of
    the three forms of the head loop, for example:

    k3bench compile kda-sweep kda-headline --implementation heads_on_grid --implementation
    heads_serial --implementation heads_interleaved
    """
    import joblib  # type: ignore[import-untyped]

    import workloads
    from k3bench.compiled.tpu import (
        KdaPoint,
        compile_points,
        get_target,
    )
    from workloads import KdaGeometry, WorkloadError

    try:
        chosen = [w for w in workloads.family_workloads(family) if not w.is_replay]
    except WorkloadError as error:
        raise CliError(str(error), USAGE) from error
    if not chosen or not isinstance(chosen[0].geometry, KdaGeometry):
        raise CliError(f"{family}: no KDA workload of a single call in it", USAGE)
    with asking():
        device = get_target(target)
    require_kda(implementations)
    with compiling():
        points = [
            KdaPoint(
                name,
                workload.call.new_tokens,
                heads=workload.geometry.heads,
                dtype=workload.geometry.dtype,
            )
            for workload in chosen
            for name in implementations
        ]
        results = compile_points(
            points, device, jobs=jobs or joblib.cpu_count(), progress=not as_json
        )
    if as_json:
        click.echo(json.dumps([result.to_json() for result in results], indent=1))
        return
    table = Table(
        title=f"{family} on {target} [modelled, ms]", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("workload")
    for name in implementations:
        table.add_column(name, justify="right")
    answers = iter(results)
    for workload in chosen:
        table.add_row(workload.id, *(_cell(next(answers)) for _ in implementations))
    Console(width=40 + 24 * len(implementations)).print(table)
    for detail in dict.fromkeys(r.detail for r in results if r.status != "ok" and r.detail):
        click.echo(f"k3bench: {detail}", err=True)


def _cell(result: "CompiledResult") -> str:
    return f"{result.modelled_ms:.3f}" if result.status == "ok" else result.status
