"""`k3bench reproduce`: what it takes to measure a result again, checked on this machine."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from k3bench.cli.errors import COULD_NOT_JUDGE, NO_INPUT, CliError

if TYPE_CHECKING:
    from k3bench.ledger import ResultRow
    from k3bench.runner.reproduce import Reproduction

_WIDTH_OF_A_PIPE = 200


@click.command()
@click.argument("result_id", metavar="RESULT_ID")
@click.option("--run", "execute", is_flag=True, help="Measure it, if nothing stands in the way.")
@click.option("--siblings", is_flag=True, help="With the implementations it took turns with.")
@click.option("--json", "as_json", is_flag=True, help="Print checks and command as JSON.")
def reproduce(result_id: str, execute: bool, siblings: bool, as_json: bool) -> None:
    """Check commit, workload and environment of a result; print the command that repeats it.

    RESULT_ID is a record's id, or a prefix of one (`k3bench results --json` shows them).

    Exit codes: 0 the command measures exactly that point in a comparable environment (with --run:
    it did); 2 something differs that makes the times incomparable, and is named; 66 no such
    result; with --run also those of `k3bench run`.
    """
    from k3bench.cli.ledger import cli_error, opened_ledger
    from k3bench.ledger import LedgerError, load_manifest
    from k3bench.paths import project_root
    from k3bench.runner.asv_run import RunRequestError, run_asv
    from k3bench.runner.reproduce import (
        find_result,
        measured_again,
        plan_reproduction,
        siblings_of,
    )

    ledger = opened_ledger(create=False)
    try:
        with ledger.session() as session:
            row = find_result(session, result_id)
            others = siblings_of(session, row) if siblings else ()
            manifest = load_manifest(session, row.manifest_id) if row.manifest_id else None
    except LookupError as error:
        raise CliError(str(error.args[0]), NO_INPUT) from error
    except LedgerError as error:
        raise cli_error(error) from error
    root = project_root()
    plan = plan_reproduction(row, manifest, root, siblings=others)
    report: dict[str, Any] = plan.to_json()
    if not as_json:
        _print(row, plan)
    code, message = 0, ""
    if not plan.ok:
        reasons = [check.name for check in plan.checks if check.ok is False]
        more = f" and {len(reasons) - 4} more" if len(reasons) > 4 else ""
        code = COULD_NOT_JUDGE
        message = f"cannot be reproduced here as it was: {', '.join(reasons[:4])}{more}"
    elif execute and plan.request is not None:
        try:
            found = run_asv(plan.request, root, say=lambda line: click.echo(line, err=True))
        except RunRequestError as error:
            raise CliError(str(error), COULD_NOT_JUDGE) from error
        again = None
        if found.run_id is not None:
            with opened_ledger(create=False).session() as session:
                again = measured_again(session, row, found.run_id)
        report["again"] = None if again is None else again.to_json()
        code, message = found.exit_code, found.message
        if again is not None and not as_json:
            click.echo(_compared(row, again))
    if as_json:
        click.echo(json.dumps(report, indent=1))
    if code:
        raise CliError(message, code)


def _print(row: "ResultRow", plan: "Reproduction") -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE, highlight=False)
    values = ", ".join(f"{name}={value}" for name, value in sorted(row.parameters.items()))
    title = f"{row.benchmark}({values}) {row.implementation}"
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("", "what", "found"):
        table.add_column(heading, overflow="fold")
    marks = {True: Text("ok", "green"), False: Text("DIFFERS", "bold red"), None: Text("note")}
    for check in plan.checks:
        table.add_row(marks[check.ok], Text(check.name), Text(check.detail))
    console.print(table)
    if plan.command is not None:
        click.echo(plan.command)


def _compared(row: "ResultRow", again: "ResultRow") -> str:
    if row.median_s is None or again.median_s is None:
        status = (row.correctness_status, again.correctness_status)
        return f"recorded as {status[0]}, now {status[1]}"
    return (
        f"recorded {row.median_s * 1e3:.4g} ms (n={row.n}), now {again.median_s * 1e3:.4g} ms "
        f"(n={again.n}): {again.median_s / row.median_s:.3f} of it"
    )
