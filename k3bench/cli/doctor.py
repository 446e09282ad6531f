"""`k3bench doctor`: what this machine can measure and compile, what is missing, how to mend it."""

import json
import sys

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from k3bench.cli.errors import CHECK_FAILED, CliError
from k3bench.doctor.report import Report

_WIDTH_OF_A_PIPE = 160
_STYLES = {"ok": "green", "warning": "yellow", "missing": "dim", "broken": "bold red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def doctor(as_json: bool) -> None:
    """Look at this machine and say what it can measure and compile, and what to mend.

    Exit code 1 where something that measuring here needs is missing or broken. Takes about five
    seconds; changes nothing.
    """
    from k3bench.doctor import diagnose

    with Console(stderr=True).status("asking jax, torch, triton, libtpu and the ledger"):
        report = diagnose()
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    else:
        _print(report)
    if report.failed:
        names = ", ".join(check.name for check in report.failed)
        raise CliError(f"measuring here needs mending first: {names}", CHECK_FAILED)


def _print(report: Report) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("check", "status", "found", "mend"):
        table.add_column(heading, overflow="fold")
    for check in report.checks:
        table.add_row(
            Text(check.name),
            Text(check.status, _STYLES[check.status]),
            Text(check.found),
            Text(check.mend or ""),
        )
    console.print(table)
    for capability in report.can_measure:
        console.print(Text(f"can measure on {capability.device}", "bold"))
        for family, names in capability.implementations.items():
            console.print(Text(f"  {family}: {', '.join(names)}"))
        for family, reasons in capability.refused.items():
            for name, reason in reasons.items():
                console.print(Text(f"  {family}: not {name}: {reason}", "dim"))
    if not report.can_measure:
        console.print(Text("can measure nothing yet", "bold red"))
    targets = ", ".join(report.can_compile) or "nothing"
    console.print(Text(f"can compile ahead of time for {targets}", "bold"))
