"""``k3bench dashboard``: the kernel pages from the ledger alone, without asv's results."""

import json
from pathlib import Path

import click

from k3bench.cli.errors import USAGE, CliError
from k3bench.cli.ledger import cli_error


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the pages; it is replaced.  [default: html/k3bench of the project]",
)
@click.option(
    "--commits",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How many of the newest commits the figures offer and samples are kept of.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
def dashboard(out: Path | None, commits: int, as_json: bool) -> None:
    """Build the kernel pages: figures, history and every result, offline.

    `make dashboard` builds them beside asv's explorer. An empty or missing ledger gives pages that
    say what to run. Open OUT/index.html in a browser; no server is needed.
    """
    from k3bench.dashboard.build import build
    from k3bench.dashboard.errors import DashboardError
    from k3bench.ledger import LedgerError, open_ledger
    from k3bench.paths import ProjectNotFound, project_root

    try:
        root: Path | None = project_root()
    except ProjectNotFound:
        root = None  # K3BENCH_DB works without a project
    if root is None and out is None:
        raise CliError("no project here: name a directory with --out", USAGE)
    target = out if out is not None else (root or Path.cwd()) / "html" / "k3bench"
    try:
        ledger = open_ledger(project_root=root, create=False)
    except LedgerError as error:
        if error.reason != "missing":
            raise cli_error(error) from error
        ledger = None
        click.echo(f"k3bench: {error}", err=True)
    try:
        built = build(ledger, target, repository=root or Path.cwd(), detailed_commits=commits)
    except LedgerError as error:
        raise cli_error(error) from error
    except DashboardError as error:
        raise CliError(str(error), USAGE) from error
    finally:
        if ledger is not None:
            ledger.close()
    if as_json:
        click.echo(json.dumps({"index": str(target / "index.html"), **vars(built)}))
    else:
        click.echo(
            f"{target / 'index.html'}: {built.results} results in {built.series} series over "
            f"{built.commits} commits"
        )
