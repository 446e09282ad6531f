"""`k3bench results`: what the ledger holds, as tables (one a kind and device) or as JSON."""

import json
import math
import subprocess
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from k3bench.cli.errors import USAGE, CliError
from k3bench.cli.ledger import cli_error, opened_ledger

if TYPE_CHECKING:
    from k3bench.ledger import ResultRow

_KINDS = ("measured", "compiled", "modelled", "published")
# Where there is no terminal there is no width to fit: wide enough not to break lines.
_WIDTH_OF_A_PIPE = 240
_SHORT_HASH = 10
# Heading, and the names of the rate and of its share of the peak among a row's figures.
_RATES = (
    ("GB/s", "hbm_bytes_per_s", "hbm_share_of_peak"),
    ("GFLOP/s", "flops_per_s", "flops_share_of_peak"),
)
_BOUND = "x bound"
_RESOURCES = {"hbm": "memory", "matrix": "matrix units", "vector": "vector units"}


@click.command()
@click.option("--kind", type=click.Choice(_KINDS), help="Only this kind of figure.")
@click.option("--benchmark", metavar="REGEX", help="Only benchmarks whose name this matches.")
@click.option("--commit", metavar="COMMIT", help="Only this commit: a hash, prefix, tag or HEAD.")
@click.option("--implementation", metavar="NAME", help="Only this implementation.")
@click.option("--latest", is_flag=True, help="Only the newest row of each point.")
@click.option("--limit", type=click.IntRange(min=1), help="At most the newest N rows.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a row.")
def results(
    kind: str | None,
    benchmark: str | None,
    commit: str | None,
    implementation: str | None,
    latest: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show results: medians in ms with p10, p90, n, throughput, rates and correctness.

    Rates are the bytes and FLOPs that the benchmark's work takes over the median, in GB/s and
    GFLOP/s, with their share of the device's peak where that is known (--json names its source).
    "x bound" is the median over the time that no schedule beats at the device's peaks, with what
    limits that time; "no peaks" where the device's are not known, "-" where the row does not say.

    Figures of different kinds (measured, compiled, modelled, published) or devices never share a
    table. Nothing found is no error.
    """
    from k3bench.ledger import LedgerError, select_results

    bring_in_abandoned_points()
    ledger = opened_ledger(create=False)
    try:
        with ledger.session() as session:
            rows = select_results(
                session,
                kind=kind,
                benchmark=benchmark,
                commit=None if commit is None else resolved_commit(commit),
                implementation=implementation,
                latest=latest,
                limit=limit,
            )
    except LedgerError as error:
        raise cli_error(error) from error
    if as_json:
        click.echo(json.dumps([row.to_json() for row in rows], indent=1))
    elif rows:
        print_tables(rows)
    if not rows:
        click.echo("k3bench: no results match", err=True)


def bring_in_abandoned_points() -> None:
    """Ingests what a killed run left in its journal, so that every reader sees it.

    Costs a directory listing where there is nothing to bring in.
    """
    from k3bench.paths import ProjectNotFound, project_root

    try:
        root = project_root()
    except ProjectNotFound:
        return
    from k3bench.journal import runs_directory

    runs = runs_directory(root)
    if runs.is_dir() and any(runs.iterdir()):
        from k3bench.run import sync_abandoned

        sync_abandoned(root)


def resolved_commit(name: str) -> str:
    """The full hash that git knows ``name`` by; a hash or prefix unknown to git stands as it is.

    Results of commits that are not in this clone can so be asked for by hash. Raises CliError.
    """
    from k3bench.paths import ProjectNotFound, project_root

    try:
        directory: Path | None = project_root()
    except ProjectNotFound:
        directory = None  # K3BENCH_DB works without a project: git then looks from here
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    try:
        answer = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        answer = None
    if answer is not None and answer.returncode == 0:
        return answer.stdout.strip()
    if name and set(name) <= set("0123456789abcdef"):
        return name
    raise CliError(f"--commit {name}: git knows no such commit here: give a hash", USAGE)


def print_tables(rows: Iterable["ResultRow"]) -> None:
    """One table a kind and device on stdout, in the order of ``rows``."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
    for (kind, device), group in groupby(rows, key=lambda row: (row.kind, row.device)):
        console.print(_table(kind, device, list(group)))


def _table(kind: str, device: str, rows: list["ResultRow"]) -> Table:
    title = Text(f"{kind} on {device}", style="bold")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("benchmark", "parameters", "implementation", "clock"):
        table.add_column(heading, overflow="fold")
    rates = [rate for rate in _RATES if any(rate[1] in (row.figures or {}) for row in rows)]
    bounds = [_BOUND] if any(_distance(row).plain != "-" for row in rows) else []
    numbers = ("median ms", "p10 ms", "p90 ms", "n", "tokens/s", *(rate[0] for rate in rates))
    for heading in (*numbers, *bounds):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("correctness", overflow="fold")
    table.add_column("commit", no_wrap=True)
    for row in rows:
        # Text, not str: names come from outside, and rich reads square brackets in a str as markup.
        table.add_row(
            Text(row.benchmark),
            Text(" ".join(f"{name}={value}" for name, value in sorted(row.parameters.items()))),
            Text(row.implementation),
            Text(row.clock or "-"),
            _milliseconds(row.median_s),
            _milliseconds(row.p10_s),
            _milliseconds(row.p90_s),
            str(row.n),
            "-" if row.tokens_per_s is None else f"{row.tokens_per_s:,.0f}",
            *(_rate(row, name, share) for _, name, share in rates),
            *(_distance(row) for _ in bounds),
            _correctness(row),
            Text((row.commit or "-")[:_SHORT_HASH]),
        )
    return table


def _rate(row: "ResultRow", name: str, share: str) -> str:
    """In units of 10^9 a second, with the share of the peak: 5,210 (65%)."""
    figures = row.figures or {}
    value, of_peak = figures.get(name), figures.get(share)
    if not isinstance(value, int | float):
        return "-"
    shown = _digits(value / 1e9, 3)
    if not isinstance(of_peak, int | float):
        return shown
    # A small share is still a share: 0.46%, 3.2%, 65%.
    return f"{shown} ({_digits(100 * of_peak, 2)}%)"


def _distance(row: "ResultRow") -> Text:
    """Time over bound and the resource that sets the bound: 3.24 (memory)."""
    from k3bench.roofline.distance import PREFIX, times_bound

    figures = row.figures or {}
    times, resource = times_bound(figures), str(figures.get(f"{PREFIX}limited_by"))
    if times is None:
        return Text("no peaks" if f"{PREFIX}none" in figures else "-")
    return Text(f"{_digits(times, 3)} ({_RESOURCES.get(resource, resource)})")


def _milliseconds(seconds: float | None) -> str:
    """Four significant digits, never an exponent: 0.2100, 33.61, 1,591."""
    if seconds is None:
        return "-"
    return _digits(seconds * 1e3, 4)


def _digits(value: float, significant: int) -> str:
    """That many significant digits, or all before the point, and never an exponent."""
    decimals = 0 if value == 0 else max(0, significant - 1 - math.floor(math.log10(value)))
    return f"{value:,.{decimals}f}"


def _correctness(row: "ResultRow") -> Text:
    status = row.correctness_status
    style = {"ok": "green", "wrong": "bold red", "failed": "bold red"}.get(status, "")
    shown = Text(status.replace("_", " "), style=style)
    if row.max_abs_error is not None:
        limit = "" if row.tolerance is None else f" of {row.tolerance:.1e}"
        shown.append(f" {row.max_abs_error:.1e}{limit}")
    if status in ("wrong", "failed") and row.correctness_detail:
        shown.append(f" {row.correctness_detail}")
    return shown
