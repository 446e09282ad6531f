"""The ``k3bench`` command: one file per command group, imported only when it is called."""

import importlib
import sys
from typing import Any

import click

from k3bench import __version__
from k3bench.cli.errors import USAGE, CliError

# Command name to the module of this package that holds it, and the one line that --help shows.
COMMANDS = {
    "run": ("run", "asv run for the common case, with exit codes that say how it went."),
    "ab": ("ab", "Measure two commits in turns, in one run on this machine."),
    "reproduce": ("reproduce", "The exact environment and command of a result, checked here."),
    "results": ("results", "Rows of the ledger, as tables or JSON."),
    "manifest": ("manifest", "Environment manifests: show one, compare two."),
    "workloads": ("workloads", "Pinned workloads: list, verify, build, import."),
    "gate": ("gate", "Judge HEAD against BASE; change points over history; simulated error rates."),
    "ledger": ("ledger", "The ledger itself: check, seed, sync."),
    "export": ("export", "Write asv's result files back from the ledger."),
    "dashboard": ("dashboard", "Write our pages of the dashboard from the ledger."),
    "publish": ("publish", "asv publish, our pages and the explorer, in less time."),
    "attribute": ("attribute", "Which block of a model owns the GPU time of a profiler trace."),
    "forms": ("forms", "What every attention form costs, where forms cross, and how far from it."),
    "compile": ("compile", "What a compiler says of a kernel for v6e or gfx950, without one."),
    "report": ("report", "Write the reports in docs/ and the README's table from the ledger."),
    "doctor": ("doctor", "What this machine can measure and compile, and what is missing."),
    "overhead": ("overhead", "What the harness itself costs per point, beside plain asv."),
}


class LazyGroup(click.Group):
    """Imports a command's module when it is called, so that --help answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"k3bench.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="k3bench")
def k3bench() -> None:
    """Reproducible benchmarks for Kimi K3's KDA and MLA kernels.

    Measuring is asv's: `asv run`, `asv compare`, `asv publish`. These commands read and check what
    the runs left. Exit codes: 0 good; 1 a failed check; 2 could not judge; 64 and above: bad usage
    or input.
    """


def main(arguments: list[str] | None = None) -> Any:
    """Runs the command line; every failure is one line on stderr and its exit code."""
    try:
        sys.exit(k3bench.main(args=arguments, prog_name="k3bench", standalone_mode=False) or 0)
    except CliError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(USAGE)
    except click.ClickException as error:
        # click's own exit code for bad usage is 2, which here means "could not judge".
        context = error.ctx if isinstance(error, click.UsageError) else None
        where = context.command_path if context else "k3bench"
        click.echo(f"k3bench: error: {error.format_message()} (see {where} --help)", err=True)
        sys.exit(USAGE)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("k3bench: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
