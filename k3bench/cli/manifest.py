"""`k3bench manifest`: show where measurements were made, and whether two places may be compared."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from k3bench.cli.errors import BAD_DATA, COULD_NOT_JUDGE, NO_INPUT, CliError

_HEX = frozenset("0123456789abcdef")
# Where there is no terminal there is no width to fit: wide enough not to break lines.
_WIDTH_OF_A_PIPE = 240


@click.group()
def manifest() -> None:
    """Environment manifests: machine, drivers, libraries and source of a run."""


@manifest.command()
@click.argument("which", required=False, metavar="[ID|FILE]")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest itself.")
def show(which: str | None, as_json: bool) -> None:
    """Show a manifest: of this machine, now, or one from the ledger (a prefix of its id will do).

    FILE is what `python -m manifests capture` or `show --json` wrote.
    """
    document = _captured() if which is None else _found(which)
    if as_json:
        click.echo(json.dumps(document, indent=1, sort_keys=True))
        return
    from manifests import fingerprint, manifest_id

    title = f"manifest {manifest_id(document)}\nfingerprint {fingerprint(document)}"
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("field", overflow="fold")
    table.add_column("value", overflow="fold")
    for path, value in _leaves((), document):
        table.add_row(Text(path), _shown(value))
    _console().print(table)


@manifest.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print verdict and differences as JSON.")
def diff_command(a: str, b: str, as_json: bool) -> None:
    """Compare two manifests (each an id of the ledger, a prefix of one, or a file).

    Exit code 0 where timings made under the two may be compared, 2 where they may not.
    """
    from manifests import comparable, fingerprint, manifest_id

    documents = [_found(a), _found(b)]
    yes, differences = comparable(*documents)
    if as_json:
        sides = [{"id": manifest_id(d), "fingerprint": fingerprint(d)} for d in documents]
        report = {
            "comparable": yes,
            "a": sides[0],
            "b": sides[1],
            "differences": [
                {"path": d.path, "a": d.a, "b": d.b, "comparable": d.comparable, "why": d.why}
                for d in differences
            ],
        }
        click.echo(json.dumps(report, indent=1))
    elif differences:
        table = Table(box=box.SIMPLE_HEAD)
        for heading in ("comparable", "field", "A", "B", "why"):
            table.add_column(heading, overflow="fold")
        for d in differences:
            verdict = Text("yes", "green") if d.comparable else Text("NO", "bold red")
            table.add_row(verdict, Text(d.path), _shown(d.a), _shown(d.b), Text(d.why))
        _console().print(table)
    if not yes:
        fields = [d.path for d in differences if not d.comparable]
        more = f" and {len(fields) - 3} more" if len(fields) > 3 else ""
        raise CliError(
            f"timings under these manifests may not be compared: {', '.join(fields[:3])}{more} "
            "differ; measure both sides in one environment",
            COULD_NOT_JUDGE,
        )
    click.echo(
        f"k3bench: comparable ({len(differences)} harmless differences)"
        if differences
        else "k3bench: the same manifest",
        err=True,
    )


def _captured() -> dict[str, Any]:
    from k3bench.paths import ProjectNotFound, project_root
    from manifests import ManifestError, capture

    try:
        return capture(project_root())
    except ProjectNotFound as error:
        raise CliError(str(error), NO_INPUT) from error
    except ManifestError as error:
        raise CliError(str(error), BAD_DATA) from error


def _found(which: str) -> dict[str, Any]:
    """The manifest in a file of that name, or the ledger's whose id begins so."""
    path = Path(which)
    if path.is_file():
        return _read(path)
    if which and set(which) <= _HEX:
        return _from_ledger(which)
    raise CliError(
        f"{which}: no such file, and no manifest id (those are hex digits): "
        "`k3bench manifest show --json > FILE` writes this machine's",
        NO_INPUT,
    )


def _read(path: Path) -> dict[str, Any]:
    from manifests import ManifestError, validate

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        validate(document)
    except ManifestError as error:
        raise CliError(f"{path}: {error}", BAD_DATA) from error
    except ValueError as error:
        raise CliError(f"{path}: not JSON ({error}): write it again", BAD_DATA) from error
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}: name a readable file", NO_INPUT) from error
    return dict(document)


def _from_ledger(id_prefix: str) -> dict[str, Any]:
    from k3bench.cli.ledger import cli_error, opened_ledger
    from k3bench.ledger import LedgerError, load_manifest

    try:
        with opened_ledger(create=False).session() as session:
            return dict(load_manifest(session, id_prefix))
    except LookupError as error:
        # str() of a KeyError would add quotes.
        raise CliError(str(error.args[0] if error.args else error), NO_INPUT) from error
    except LedgerError as error:
        raise cli_error(error) from error


def _leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, Any]]:
    """Dotted paths and values; the long list of distributions is only counted."""
    if path == ("environment", "distributions"):
        yield ".".join(path), f"{len(value)} installed (see --json)"
    elif isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _leaves((*path, key), value[key])
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves((*path[:-1], f"{path[-1]}[{index}]"), inner)
    else:
        yield ".".join(path), value


def _shown(value: Any) -> Text:
    # Text, not str: rich reads square brackets in a str as markup.
    if value is None:
        return Text("-", "dim")
    return Text(value if isinstance(value, str) else json.dumps(value))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
