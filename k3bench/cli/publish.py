"""``k3bench publish``: everything that can be browsed, in one go and in less time."""

import contextlib
import io
import sys
from pathlib import Path

import click

from k3bench.cli.errors import CHECK_FAILED, NO_INPUT, USAGE, CliError


@click.command()
@click.option(
    "--html-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to; it is replaced.  [default: html_dir of asv.conf.json]",
)
@click.option("--no-pull", is_flag=True, help="Do not fetch the repository, as in asv.")
def publish(html_dir: Path | None, no_pull: bool) -> None:
    """Write what `asv publish` writes, faster, with the kernel pages and asv-tachyon's interface.

    The graphs and regressions are asv's, byte for byte; docs/dashboard.md says how much faster.
    """
    from asv import main as asv_main

    from k3bench.dashboard.errors import DashboardError
    from k3bench.dashboard.explorer import install_explorer
    from k3bench.paths import ProjectNotFound, project_root
    from k3bench.publishing.publish import fast_publishing

    try:
        root = project_root()
    except ProjectNotFound as error:
        raise CliError(str(error), NO_INPUT) from error
    target = _html_dir(root) if html_dir is None else html_dir.resolve()
    arguments = ["asv", "publish", "--html-dir", str(target)] + ["--no-pull"] * no_pull
    with contextlib.chdir(root), fast_publishing():
        code = _run(asv_main.main, arguments)
    if code:
        raise CliError(f"asv publish exited with {code}", CHECK_FAILED)
    try:
        install_explorer(target, root)
    except DashboardError as error:
        raise CliError(str(error), USAGE) from error
    click.echo(f"{target / 'index.html'} and {target / 'k3bench' / 'index.html'}")


def _run(main: object, arguments: list[str]) -> int:
    """asv's command line in this process, so that it can be made faster; its exit code."""
    before, sys.argv = sys.argv, arguments
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            main()  # type: ignore[operator]
    except SystemExit as stop:
        if stop.code:
            click.echo(said.getvalue(), err=True)
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
    return 0


def _html_dir(root: Path) -> Path:
    from asv.config import Config

    return (root / str(Config.load(str(root / "asv.conf.json")).html_dir)).resolve()
