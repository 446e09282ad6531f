"""``k3bench report``: the reports in docs/ and the README's table, written from the ledger."""

import click

from k3bench.cli.errors import CHECK_FAILED, COULD_NOT_JUDGE, CliError
from k3bench.cli.ledger import cli_error, opened_ledger


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file is not up to date.")
def report(check: bool) -> None:
    """Write docs/kda-ladder.md, docs/mla-mi355x.md, their plots and the README's headline table.

    Exits with 2 where the ledger lacks the figures.
    """
    from k3bench.ledger import LedgerError
    from k3bench.paths import project_root
    from k3bench.report import ReportError, report_files, stale_files, write_files

    root = project_root()
    ledger = opened_ledger(create=False)
    try:
        with ledger.session() as session:
            files = report_files(session, root)
        paths = stale_files(files, root) if check else write_files(files, root)
    except LedgerError as error:
        raise cli_error(error) from error
    except ReportError as error:
        raise CliError(str(error), COULD_NOT_JUDGE) from error
    if check and paths:
        names = ", ".join(str(path) for path in paths)
        raise CliError(f"not what the ledger says: {names}: run `k3bench report`", CHECK_FAILED)
    for path in paths:
        click.echo(f"{path} written")
    if not paths:
        click.echo("everything is up to date")
