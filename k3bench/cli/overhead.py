"""``k3bench overhead``: what the harness itself costs per point, beside plain asv."""

import json

import click
from rich.console import Console
from rich.table import Table

from k3bench.cli.errors import CHECK_FAILED, SOFTWARE, CliError


@click.command()
@click.option("--points", default=10, show_default=True, type=click.IntRange(min=2))
@click.option(
    "--budget-s", default=0.3, show_default=True, help="Most seconds a point may cost (forkserver)."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def overhead(points: int, budget_s: float, as_json: bool) -> None:
    """Measure the harness's own cost per point on benchmarks that do nothing.

    Exits with 1 when a point under forkserver costs more than the budget.
    """
    from k3bench.overhead import OverheadError, measure_overhead, to_json

    notes = Console(stderr=True)
    try:
        with notes.status("preparing") as status:
            found = measure_overhead(points, progress=status.update)
    except OverheadError as error:
        raise CliError(str(error), SOFTWARE) from None
    report = to_json(found, budget_s)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        table = Table(title=f"Harness overhead per point [measured, cpu, {points} points]")
        for column in ("harness", "launch", "s a point", "start to first call", "bookkeeping"):
            table.add_column(column, justify="left" if column in ("harness", "launch") else "right")
        for row in found:
            table.add_row(
                row.harness,
                row.launch_method,
                f"{row.per_point_s:.3f}",
                "" if row.start_to_first_call_s is None else f"{row.start_to_first_call_s:.3f} s",
                "" if row.bookkeeping_s is None else f"{row.bookkeeping_s:.3f} s",
            )
        Console().print(table)
    if not report["within_budget"]:
        raise CliError(
            f"a point under forkserver costs more than {budget_s} s; see the table", CHECK_FAILED
        )
