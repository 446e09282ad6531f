"""The comparison as tables on a terminal."""

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from k3bench.gate.history import History
from k3bench.gate.markdown import change, step_size, together_line, value, would_see
from k3bench.gate.report import Finding, Report

# Where there is no terminal there is no width to fit: wide enough not to break lines.
_WIDTH_OF_A_PIPE = 220
_ROWS = 40
_STYLES = {"fails": "bold red", "cannot judge": "yellow", "informs": ""}
_TITLES = ("passed", "failed", "could not judge")


def _console() -> Console:
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    return Console(width=width, highlight=False, soft_wrap=True)


def print_report(report: Report, *, everything: bool) -> None:
    """Tables on stdout; ``everything`` shows the unchanged points, too, and all rows."""
    console = _console()
    shown = [f for f in report.findings if everything or f.outcome != "unchanged"]
    limit = len(shown) if everything else _ROWS
    if shown:
        console.print(_findings(shown[:limit]))
    if len(shown) > limit:
        console.print(Text(f"{len(shown) - limit} more; --all shows them"))
    families = [f for f in report.families if everything or f.verdict != "unchanged"]
    if families:
        table = _table(
            "implementation", "verdict", "beside its neighbours (95%)", "own", "points", ""
        )
        for family in families:
            table.add_row(
                Text(f"{family.module} {family.implementation}"),
                Text(family.verdict),
                f"{family.against:.3f}x ({family.low:.3f} to {family.high:.3f})",
                f"{family.own:.3f}x",
                str(family.points),
                Text(family.detail or ""),
            )
        console.print(table)
    for whole in report.together:
        if whole.slower or whole.cannot_tell:
            line = together_line(whole.device, whole.preset, whole.ratio, whole.slower)
            console.print(Text(line))
    for unlike in report.differences:
        what = "allowed" if unlike.allowed else "refused"
        console.print(Text(f"{what}: {unlike.field}: {unlike.base} in BASE, {unlike.head} in HEAD"))
    for line in (*report.unjudged_strata, *report.notes, would_see(report)):
        console.print(Text(line))
    counts = ", ".join(f"{count} {name}" for name, count in report.counts().items())
    console.print(Text(f"{_TITLES[report.exit_code]}: {report.compared} points compared: {counts}"))


def print_history(history: History) -> None:
    """Changes on stdout, the newest first."""
    console = _console()
    table = _table("point", "metric", "change", "range", "commits", "state")
    for step in history.changes:
        state = "lasts" if step.lasting else "undone since"
        state += "" if step.settled else ", one commit only"
        state += ", environment changed too" if step.other_environment else ""
        table.add_row(
            Text(step.point.label()),
            Text(step.metric),
            Text(step_size(step)),
            Text(f"{step.before[:10]}..{step.after[:10]}"),
            str(step.commits),
            Text(state),
        )
    if history.changes:
        console.print(table)
    console.print(
        Text(
            f"{len(history.changes)} changes in {history.series} series over {history.commits} "
            f"commits; {history.too_short} series too short to say"
        )
    )


def _findings(findings: Sequence[Finding]) -> Table:
    table = _table("point", "kind", "metric", "finding", "base", "head", "head / base (95%)", "")
    for finding in findings:
        # Text, not str: names come from outside, and rich reads square brackets in a str as markup.
        table.add_row(
            Text(finding.point.label()),
            Text(f"{finding.point.kind} {finding.point.device}"),
            Text(finding.metric),
            Text(finding.outcome, style=_STYLES[finding.weight]),
            Text(value(finding, "base")),
            Text(value(finding, "head")),
            Text(change(finding)),
            Text(finding.detail or ""),
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
