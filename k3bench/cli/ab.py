"""`k3bench ab`: two commits measured in turns, in one run on this machine."""

import click

from k3bench.cli.errors import NO_INPUT, SOFTWARE, USAGE, CliError
from k3bench.measure.protocol import PRESETS


@click.command()
@click.argument("base")
@click.argument("head")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="[default: K3BENCH_PRESET, smoke]")
@click.option("--bench", multiple=True, metavar="REGEX", help="Part of the suite; may be repeated.")
@click.option(
    "--lock-wait",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long to wait for a device in use; 0 fails at once. [default: 600]",
)
def ab(
    base: str, head: str, preset: str | None, bench: tuple[str, ...], lock_wait: float | None
) -> None:
    """Measure BASE's and HEAD's kernels alternately and record both.

    Every sample of one commit stands beside one of the other, in one process a point, so that what
    the machine does meanwhile falls on both. `k3bench gate BASE HEAD` then judges the records.

    Exit codes: 0 every point is right on both; 1 a kernel was wrong; 2 a point failed or nothing
    was measured; 64 usage; 130 interrupted (the same command goes on with the point that was being
    measured; K3BENCH_RESUME=0 measures all afresh).
    """
    import re

    from k3bench.measure.protocol import ProtocolError
    from k3bench.paths import ProjectNotFound, project_root
    from k3bench.runner.ab import AbError, AbRequest, ManifestCaptureError, run_ab
    from k3bench.runner.asv_run import GOOD

    for expression in bench:
        try:
            re.compile(expression)
        except re.error as error:
            raise CliError(
                f"--bench {expression}: no regular expression ({error})", USAGE
            ) from None
    request = AbRequest(base, head, bench, preset, lock_wait)
    try:
        found = run_ab(request, project_root(), say=lambda line: click.echo(line, err=True))
    except (AbError, ProtocolError) as error:
        raise CliError(str(error), USAGE) from error
    except ProjectNotFound as error:
        raise CliError(str(error), NO_INPUT) from error
    except ManifestCaptureError as error:
        raise CliError(str(error), SOFTWARE) from error
    if found.exit_code != GOOD:
        raise CliError(found.message, found.exit_code)
    click.echo(f"k3bench: {found.message}", err=True)
