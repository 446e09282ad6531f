"""`k3bench workloads`: list the pinned workloads, verify them, build them anew, import lengths."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from k3bench.cli.errors import BAD_DATA, CHECK_FAILED, NO_INPUT, UNAVAILABLE, USAGE, CliError
from workloads import (
    MalformedInputError,
    MissingInputError,
    PinMismatchError,
    UnavailableError,
    Workload,
    WorkloadError,
    all_ids,
    get,
    ids,
)
from workloads.pins import Statistics

if TYPE_CHECKING:
    from rich.table import Table

    from workloads.download import Progress as ReportProgress

# The first class that fits decides.
_EXIT_CODES = (
    (PinMismatchError, CHECK_FAILED),
    (MalformedInputError, BAD_DATA),
    (MissingInputError, NO_INPUT),
    (UnavailableError, UNAVAILABLE),
    (WorkloadError, USAGE),
)

# EX_IOERR of sysexits.h.
_IO_ERROR = 74

_COLOURS = {"ok": None, "failed": "red", "absent": "yellow"}
_PIPE_COLUMNS = 200

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON alone on stdout.")


@click.group()
def workloads() -> None:
    """The pinned workloads: which lengths every kernel is measured on."""


@workloads.command("list")
@click.argument("family", required=False)
@_json_option
def list_workloads(family: str | None, as_json: bool) -> None:
    """List all workloads, or those of one FAMILY (the part of the id before '/')."""
    with _errors():
        names = ids(family) if family else all_ids()
        rows = [_row(get(workload_id)) for workload_id in names]
    if as_json:
        _print_json(rows)
        return
    table = _table("workload", "kind", "calls", "tokens", "sha256", "label")
    for row in rows:
        table.add_row(
            row["id"],
            row["kind"],
            f"{row['calls']:,}",
            f"{row['tokens']:,}",
            row["sha256"][:12],
            row["label"],
        )
    _print_table(table)


@workloads.command("verify")
@_json_option
def verify(as_json: bool) -> None:
    """Derive every pinned artefact again; say what holds and what could not be checked.

    Exit 1 when a check fails. What is absent from this machine is no failure.
    """
    from workloads.verification import verify as run_checks

    with _errors(), _progress(as_json) as progress:
        checks = run_checks(progress)
    failed = sum(check.status == "failed" for check in checks)
    if as_json:
        _print_json({"ok": failed == 0, "checks": [asdict(check) for check in checks]})
    else:
        table = _table("check", "status", "detail")
        for check in checks:
            table.add_row(check.name, check.status, check.detail, style=_COLOURS[check.status])
        _print_table(table)
    if failed:
        raise CliError(f"{failed} of {len(checks)} checks failed (see above)", CHECK_FAILED)


@workloads.command("build")
@click.option("--surrogate", "surrogate_only", is_flag=True, help="Only what needs no network.")
@click.option("--dataset", type=click.Path(path_type=Path), help="The dataset file, if at hand.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="tiktoken.model, if at hand.")
@click.option("--output", type=click.Path(path_type=Path), help="Where to write (default: cache).")
@_json_option
def build(
    surrogate_only: bool,
    dataset: Path | None,
    tokenizer: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Build surrogate, lengths and drawn lists anew; every byte must come out as pinned.

    Downloads the dataset and the tokenizer (pinned revision, size and SHA-256 checked) unless they
    are cached or given.
    """
    if surrogate_only and (dataset or tokenizer):
        raise CliError("--surrogate reads no dataset: drop --dataset and --tokenizer", USAGE)
    from workloads.building import build as run_build

    with _errors(), _progress(as_json) as progress:
        report = run_build(
            surrogate_only=surrogate_only,
            dataset=dataset,
            tokenizer_file=tokenizer,
            output=output,
            progress=progress,
        )
    files = {name: str(path) for name, path in report.files.items()}
    if as_json:
        _print_json(
            {
                "files": files,
                "lengths_from": report.lengths_from,
                "stage_counts": asdict(report.counts) if report.counts else None,
                "statistics": _statistics(report.statistics) if report.statistics else None,
            }
        )
        return
    if report.counts:
        table = _table("stage", "records")
        for stage, count in asdict(report.counts).items():
            table.add_row(stage, f"{count:,}")
        _print_table(table)
    if report.lengths_from:
        click.echo(f"ShareGPT-derived lengths from: {report.lengths_from}")
    for name, path in files.items():
        click.echo(f"{name}: as pinned, written to {path}")


@workloads.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "lengths", "pairs", "azure", "mooncake", "burstgpt"]),
    default="auto",
    show_default=True,
    help="pairs: CSV of prompt_tokens and output_tokens, to which the length filter is applied.",
)
@click.option("--name", help="Keep the list under this name even if it is not the pinned one.")
@click.option("--replace", is_flag=True, help="Let --name take over a name that is in use.")
@_json_option
def import_lengths(file: Path, form: str, name: str | None, replace: bool, as_json: bool) -> None:
    """Import prompt lengths from FILE (JSON or CSV list, or an Azure, Mooncake, BurstGPT trace).

    The list is compared with the pinned ShareGPT-derived distribution. Exit 1 when a plain list is
    not that distribution and no --name says that it stands for itself.
    """
    from workloads.importing import import_file

    with _errors():
        report = import_file(file, form, name, replace)
    if as_json:
        document = asdict(report)
        document["statistics"] = _statistics(report.statistics)
        _print_json(document)
    else:
        click.echo(f"{file}: {report.explanation}")
        if report.dropped_by_length_filter:
            click.echo(
                f"{report.dropped_by_length_filter:,} pairs were dropped by the length filter; "
                f"{report.statistics.count:,} are left"
            )
        _print_statistics(report.statistics)
        if report.name is not None:
            click.echo("now available: " + ", ".join(report.workload_ids))
    if report.name is None:
        raise CliError(
            f"{file} is not the pinned distribution and was not kept; to keep it as a workload of "
            "its own, pass --name NAME",
            CHECK_FAILED,
        )


def _row(workload: Workload) -> dict[str, Any]:
    from workloads.padding import EXECUTED_MULTIPLES

    prefill = workload.kind != "mla-decode"
    return {
        "id": workload.id,
        "kind": workload.kind,
        "provenance": workload.provenance,
        "label": workload.label,
        "description": workload.description,
        "geometry": asdict(workload.geometry),
        "calls": len(workload.calls),
        "tokens": workload.tokens,
        # A decode step has no sequence to pad.
        **{
            f"executed_tokens_{multiple}": workload.executed_tokens(multiple) if prefill else None
            for multiple in EXECUTED_MULTIPLES
        },
        "sha256": workload.sha256,
    }


def _statistics(statistics: Statistics) -> dict[str, Any]:
    return {
        "count": statistics.count,
        "min": statistics.minimum,
        "max": statistics.maximum,
        "mean": statistics.mean,
        "std": statistics.std,
        "percentiles": {f"p{percent:g}": value for percent, value in statistics.percentiles},
        "buckets": {f"{low}-{high}": count for low, high, count in statistics.buckets},
    }


def _print_statistics(statistics: Statistics) -> None:
    from workloads import pins

    table = _table("statistic", "here", "pinned")
    here, pinned = _statistics(statistics), _statistics(pins.STATISTICS)
    for key in ("count", "min", "max"):
        table.add_row(key, f"{here[key]:,}", f"{pinned[key]:,}")
    for key in ("mean", "std"):
        table.add_row(key, f"{here[key]:,.2f}", f"{pinned[key]:,.2f}")
    for key, value in here["percentiles"].items():
        table.add_row(key, f"{value:,.2f}", f"{pinned['percentiles'][key]:,.2f}")
    for key, value in here["buckets"].items():
        table.add_row(f"bucket {key}", f"{value:,}", f"{pinned['buckets'][key]:,}")
    _print_table(table)


@contextmanager
def _errors() -> Iterator[None]:
    """Turns the errors of the workloads room into one line and an exit code."""
    try:
        yield
    except WorkloadError as error:
        code = next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
        raise CliError(str(error), code) from error
    except OSError as error:
        raise CliError(
            f"{error}: check the path, its permissions and the disk", _IO_ERROR
        ) from error


@contextmanager
def _progress(quiet: bool) -> Iterator["ReportProgress"]:
    """A progress display on stderr, one bar a step; none with --json or without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def report(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield report


def _table(*columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        right = column in ("calls", "tokens", "records", "here", "pinned")
        # Names are what a reader copies: they never wrap.
        table.add_column(
            column,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=column in ("workload", "kind", "sha256"),
        )
    return table


def _print_table(table: "Table") -> None:
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        # rich assumes 80 columns for a pipe, and folds what grep should find in one line.
        console.width = _PIPE_COLUMNS
    console.print(table)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))
