"""How the command line fails: one clear line on stderr, and an exit code that says which kind."""

from typing import IO, Any

import click

CHECK_FAILED = 1
COULD_NOT_JUDGE = 2
USAGE = 64
BAD_DATA = 65
NO_INPUT = 66
UNAVAILABLE = 69
SOFTWARE = 70


class CliError(click.ClickException):
    """A failure to report in one line: what, where, and how to mend it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click: a class default

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"k3bench: error: {self.format_message()}", err=True, file=file)
