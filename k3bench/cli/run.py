"""`k3bench run`: asv run for the common case, with the suite's exit codes."""

import click

from k3bench.cli.errors import NO_INPUT, USAGE, CliError
from k3bench.measure.protocol import PRESETS


@click.command(context_settings={"ignore_unknown_options": False})
@click.option("--preset", type=click.Choice(list(PRESETS)), help="[default: K3BENCH_PRESET, smoke]")
@click.option("--bench", multiple=True, metavar="REGEX", help="Part of the suite; may be repeated.")
@click.option(
    "--commits",
    default="HEAD",
    show_default=True,
    metavar="RANGE",
    help="One commit, a range A..B, or NEW, ALL, EXISTING, MISSING.",
)
@click.option("--quick", is_flag=True, help="One sample each, without warm-up.")
@click.option("--fresh", is_flag=True, help="Measure again what an interrupted run had finished.")
@click.option(
    "--lock-wait",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long to wait for a device in use; 0 fails at once. [default: 600]",
)
@click.option("--print", "only_print", is_flag=True, help="Print the asv command and do nothing.")
@click.argument("asv_arguments", nargs=-1, metavar="[-- ASV_ARGUMENTS]")
def run(
    preset: str | None,
    bench: tuple[str, ...],
    commits: str,
    quick: bool,
    fresh: bool,
    lock_wait: float | None,
    only_print: bool,
    asv_arguments: tuple[str, ...],
) -> None:
    """Measure commits with asv and record the results.

    Prints the asv command that it runs; that command does the same without this one. It may be
    interrupted at any moment: the same command again resumes.

    Exit codes: 0 every point is right; 1 a kernel was wrong; 2 a point failed or nothing was
    measured; 64 usage; 130 interrupted.
    """
    from k3bench.paths import ProjectNotFound, project_root
    from k3bench.runner.asv_run import GOOD, RunRequest, RunRequestError, checked, run_asv

    request = RunRequest(
        preset=preset,
        bench=bench,
        commits=commits,
        fresh=fresh,
        quick=quick,
        lock_wait_s=lock_wait,
        extra=asv_arguments,
    )
    try:
        root = project_root()
        if only_print:
            click.echo(request.shown(checked(request, root)))
            return
        found = run_asv(request, root, say=lambda line: click.echo(line, err=True))
    except RunRequestError as error:
        raise CliError(str(error), USAGE) from error
    except ProjectNotFound as error:
        raise CliError(str(error), NO_INPUT) from error
    if found.exit_code != GOOD:
        raise CliError(found.message, found.exit_code)
    click.echo(f"k3bench: {found.message}", err=True)
