"""`k3bench export`: what the ledger holds, in the file formats of other tools."""

import json
from pathlib import Path

import click

from k3bench.cli.errors import CHECK_FAILED, NO_INPUT, SOFTWARE, USAGE, CliError
from k3bench.cli.ledger import cli_error, opened_ledger


@click.group()
def export() -> None:
    """Write the ledger's results in the file formats of other tools."""


@export.command()
@click.option(
    "--results-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to; default: asv.conf.json's results_dir.",
)
@click.option("--commit", metavar="COMMIT", help="Only this commit: a hash, prefix, tag or HEAD.")
@click.option(
    "--machine", "machines", metavar="HOST=NAME", multiple=True,
    help="asv's name of a host, where it is not the host's own.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace values that the ledger does not know.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def asv(
    results_dir: Path | None,
    commit: str | None,
    machines: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Write asv's result files, so that compare, publish and the pages work on any clone.

    Files that exist are added to. One that holds values which the ledger does not know is left as
    it is and named, with exit code 1; --force replaces those values.
    """
    from k3bench.cli.results import resolved_commit
    from k3bench.export import ExportError, export_asv
    from k3bench.ledger import LedgerError
    from k3bench.paths import ProjectNotFound, project_root

    names = dict(_pair(text) for text in machines)
    try:
        root = project_root()
    except ProjectNotFound as error:
        raise CliError(str(error), NO_INPUT) from error
    try:
        with opened_ledger(create=False) as ledger:
            report = export_asv(
                ledger,
                root,
                results_dir=results_dir and results_dir.resolve(),
                commit=None if commit is None else resolved_commit(commit),
                machines=names,
                force=force,
            )
    except LedgerError as error:
        raise cli_error(error) from error
    except ExportError as error:
        raise CliError(str(error), SOFTWARE) from error
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    else:
        click.echo(
            f"{report.results_dir}: {len(report.written)} files written, "
            f"{len(report.unchanged)} were up to date, {report.exported_results} results"
        )
    if report.not_in_suite:
        click.echo(
            f"k3bench: {report.not_in_suite} results are of benchmarks or parameters that the "
            "suite no longer has",
            err=True,
        )
    if report.commits_not_in_clone:
        click.echo(
            f"k3bench: {len(report.commits_not_in_clone)} commits are not in this clone: "
            "git fetch brings them, if anything does",
            err=True,
        )
    for name, why in report.refused.items():
        click.echo(f"k3bench: left as it is: {name}: {why}", err=True)
    if report.refused:
        raise CliError(
            f"{len(report.refused)} files hold values that the ledger does not know: bring them "
            "in with `k3bench ledger sync`, or give --force to replace them",
            CHECK_FAILED,
        )


def _pair(text: str) -> tuple[str, str]:
    host, separator, name = text.partition("=")
    if not separator or not host or not name or "/" in name:
        raise CliError(f"--machine {text}: write HOST=NAME", USAGE)
    return host, name
