"""`k3bench ledger`: audit the results database, enter published figures, bring in lost points."""

import json
from typing import TYPE_CHECKING

import click

from k3bench.cli.errors import BAD_DATA, CHECK_FAILED, NO_INPUT, UNAVAILABLE, USAGE, CliError

if TYPE_CHECKING:
    from k3bench.ledger import Ledger, LedgerError

_EXIT_CODES = {
    "usage": USAGE,
    "missing": NO_INPUT,
    "unavailable": UNAVAILABLE,
    "data": BAD_DATA,
    "schema": UNAVAILABLE,
}


def cli_error(error: "LedgerError") -> CliError:
    """The same line, with the exit code that fits."""
    return CliError(str(error), _EXIT_CODES[error.reason])


def opened_ledger(*, create: bool) -> "Ledger":
    """The project's ledger (or K3BENCH_DB's), or a CliError."""
    from k3bench.ledger import LedgerError, open_ledger
    from k3bench.paths import ProjectNotFound

    try:
        return open_ledger(create=create)
    except LedgerError as error:
        raise cli_error(error) from error
    except ProjectNotFound as error:
        raise CliError(str(error), NO_INPUT) from error


@click.group()
def ledger() -> None:
    """Look after the results database (results.sqlite, or K3BENCH_DB)."""


@ledger.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def check(as_json: bool) -> None:
    """Check the file, and recompute every row's figures from its samples.

    Exit code 1 if anything is wrong.
    """
    from k3bench.ledger import LedgerError
    from k3bench.ledger.check import check as check_ledger

    try:
        report = check_ledger(opened_ledger(create=False))
    except LedgerError as error:
        raise cli_error(error) from error
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    else:
        looked_at = ", ".join(report.file_checks) or "the file is the server's"
        click.echo(
            f"schema {report.revision}; {report.results} results, {report.samples} samples, "
            f"{report.manifests} manifests; {looked_at}"
        )
    for problem in report.problems:
        click.echo(problem, err=True)
    if not report.ok:
        raise CliError(f"{len(report.problems)} problems in {report.ledger}", CHECK_FAILED)


@ledger.command()
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def seed(as_json: bool) -> None:
    """Enter the published figures. Doing it again changes nothing."""
    from k3bench.ledger import LedgerError
    from k3bench.ledger.published import seed as seed_ledger

    try:
        report = seed_ledger(opened_ledger(create=True))
    except LedgerError as error:
        raise cli_error(error) from error
    if as_json:
        click.echo(json.dumps({"inserted": report.inserted, "unchanged": report.unchanged}))
    else:
        click.echo(f"published figures: {report.inserted} entered, {report.unchanged} were there")


@ledger.command()
@click.option("--json", "as_json", is_flag=True, help="Print the count as JSON.")
def sync(as_json: bool) -> None:
    """Bring in the finished points of runs that were killed or could not reach the ledger.

    Doing it again changes nothing. Points that the ledger did not take stay in the journal and are
    counted, with exit code 65.
    """
    from k3bench.journal import abandoned, runs_directory
    from k3bench.paths import project_root
    from k3bench.run import sync_abandoned

    # First, so that a ledger that cannot be opened is this command's error and exit code.
    opened_ledger(create=True).close()
    root = project_root()
    journaled = 0
    for journal in abandoned(runs_directory(root)):
        journaled += sum(1 for _ in journal.points())
        journal.unlock()
    points = sync_abandoned(root)
    if as_json:
        click.echo(json.dumps({"points": points}))
    else:
        click.echo(f"{points} points of interrupted runs are in the ledger")
    if points < journaled:
        raise CliError(
            f"{journaled - points} points stay in their journals, for the reasons above", BAD_DATA
        )
