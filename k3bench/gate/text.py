"""The comparison as tables on a terminal."""

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from k3bench.gate.history import COMMITS_NEEDED, History
from k3bench.gate.report import Finding, Report
from k3bench.gate.words import (
    TITLES,
    change,
    closing_lines,
    explanation,
    step_size,
    step_state,
    tally,
    together_line,
    value,
)

# Where there is no terminal there is no width to fit: wide enough not to break lines.
_WIDTH_OF_A_PIPE = 220
_ROWS = 40
# Lines of explanation: a table of what decides is above them.
_EXPLAINED = 8
_STYLES = {"fails": "bold red", "cannot judge": "yellow", "informs": ""}


def _console() -> Console:
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    return Console(width=width, highlight=False, soft_wrap=True)


def print_report(report: Report, *, everything: bool) -> None:
    """Tables on stdout; ``everything`` shows unchanged points and explanatory figures, too."""
    console = _console()
    shown = [
        finding
        for finding in report.findings
        if everything or not (finding.outcome == "unchanged" or finding.explains)
    ]
    limit = len(shown) if everything else _ROWS
    if shown:
        console.print(_findings(shown[:limit]))
    if len(shown) > limit:
        console.print(Text(f"{len(shown) - limit} more; --all shows them"))
    explained = {} if everything else report.explanations()
    for point, findings in list(explained.items())[:_EXPLAINED]:
        console.print(Text(f"explains {point.label()} ({point.device}): {explanation(findings)}"))
    if len(explained) > _EXPLAINED:
        more = len(explained) - _EXPLAINED
        console.print(Text(f"{more} more points with explanatory changes; --all shows them"))
    families = [f for f in report.families if everything or f.verdict != "unchanged"]
    if families:
        table = _table(
            "implementation", "verdict", "beside what took turns (95%)", "own", "points", ""
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
    for line in (*report.unjudged_strata, *report.notes, *closing_lines(report)):
        console.print(Text(line))
    console.print(Text(f"{TITLES[report.exit_code]}: {tally(report)}"))


def print_history(history: History) -> None:
    """Changes on stdout, the newest first."""
    console = _console()
    table = _table("point", "metric", "change", "range", "commits", "state")
    for step in history.changes:
        table.add_row(
            Text(step.point.label()),
            Text(step.metric),
            Text(step_size(step)),
            Text(f"{step.before[:10]}..{step.after[:10]}"),
            str(step.commits),
            Text(step_state(step)),
        )
    if history.changes:
        console.print(table)
    console.print(
        Text(
            f"{len(history.changes)} changes in {history.series} series over {history.commits} "
            f"commits; {history.too_short} too short to say (a measured series needs "
            f"{COMMITS_NEEDED} commits with results, a compiled one two)"
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
