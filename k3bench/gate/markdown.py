"""The comparison as Markdown for a CI job's summary: escaped, and of bounded length."""

import re
from collections.abc import Iterable, Sequence

from k3bench.gate.history import Change, History
from k3bench.gate.report import Finding, Report

# GitHub takes 1 MiB a step summary and 65,536 characters a comment; this leaves room for others.
MAX_CHARACTERS = 60_000
_ROWS = 50
_CELL = 160
_ACTIVE = re.compile(r"[\\`*_\[\]|~$:<>&!#@]")
# GitHub looks for mentions and issue numbers in the rendered text, where entities are resolved.
_NO_WIDTH = "&#8203;"
_TITLES = ("passed", "failed", "could not judge")


def escaped(text: object) -> str:
    """``text`` as plain words in Markdown: no markup, link, mention, HTML or table of its own."""
    words = " ".join(str(text).split())
    visible = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in words
    )
    if len(visible) > _CELL:
        visible = visible[: _CELL - 1] + "…"
    return _ACTIVE.sub(_entity, visible).replace("www.", f"www{_NO_WIDTH}.")


def _entity(match: re.Match[str]) -> str:
    # Entities, not backslashes: those would end a table's cell or survive in HTML.
    letter = match[0]
    return f"&#{ord(letter)};" + (_NO_WIDTH if letter in "@#" else "")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; cells must be escaped already."""
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def to_markdown(report: Report) -> str:
    """The report: verdict, what failed, what could not be judged, what got better, and how."""
    lines = [
        f"## Benchmarks: {_TITLES[report.exit_code]}",
        "",
        f"{_hash(report.base)} → {_hash(report.head)}: {report.compared} points compared; "
        + ", ".join(f"{count} {escaped(name)}" for name, count in report.counts().items()),
        "",
    ]
    for line in (*report.unjudged_strata, *report.notes):
        lines += [f"- {escaped(line)}"]
    lines += _implementations(report) + _together(report) + _differences(report)
    for title, chosen in (
        ("Worse", report.failures),
        ("Could not be judged", _of_weight(report, "cannot judge")),
        ("Better", [f for f in report.findings if f.outcome in ("faster", "better", "mended")]),
        ("Reported", [f for f in report.findings if _is_news(f)]),
    ):
        lines += _section(title, chosen)
    lines += ["", escaped(would_see(report))]
    return _bounded(lines)


def history_to_markdown(history: History) -> str:
    """Changes, the newest first."""
    lines = [
        f"## History: {len(history.changes)} changes in {history.series} series over "
        f"{history.commits} commits",
        "",
    ]
    rows = [
        (
            escaped(change.point.label()),
            escaped(change.metric),
            step_size(change),
            f"`{change.before[:10]}..{change.after[:10]}`",
            str(change.commits),
            _state(change.settled, change.lasting, change.other_environment),
        )
        for change in history.changes[:_ROWS]
    ]
    if rows:
        lines += table(("point", "metric", "change", "range", "commits", "state"), rows)
    if len(history.changes) > _ROWS:
        lines += ["", f"{len(history.changes) - _ROWS} more are not shown."]
    return _bounded(lines)


def step_size(step: Change) -> str:
    """A step as people read it."""
    size = "from 0" if step.ratio is None else f"{step.ratio:.3f}x"
    return f"{size} {'worse' if step.worse else 'better'}"


def would_see(report: Report) -> str:
    """How small a slow-down the comparison would have shown, in one line."""
    visible, judged = report.would_see(0.03)
    if not judged:
        return "No measured point was judged."
    return (
        f"{visible} of {judged} measured points would have shown a slow-down of 3% each on its "
        "own; an implementation that slows as a whole shows much earlier."
    )


def value(finding: Finding, side: str) -> str:
    """Base's or head's value as people read it."""
    given = getattr(finding, side)
    if given is None:
        return "-"
    if finding.metric in ("time_s", "median_s") and isinstance(given, (int, float)):
        return f"{given * 1e3:,.4g} ms"
    return f"{given:,.6g}" if isinstance(given, (int, float)) else str(given)


def change(finding: Finding) -> str:
    """The ratio with its interval, or the relative change of an exact figure."""
    found = finding.statistics
    if found is not None and found.ratio is not None:
        if found.low is None or found.high is None:
            return f"{found.ratio:.3f}x"
        return f"{found.ratio:.3f}x ({found.low:.3f} to {found.high:.3f})"
    if isinstance(finding.base, (int, float)) and isinstance(finding.head, (int, float)):
        return f"{finding.head / finding.base:.3f}x" if finding.base else "from 0"
    return "-"


def _is_news(finding: Finding) -> bool:
    known = ("unchanged", "faster", "better", "mended")
    return finding.weight == "informs" and finding.outcome not in known


def _of_weight(report: Report, weight: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.weight == weight]


def _section(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    rows = [
        (
            escaped(finding.point.label()),
            escaped(f"{finding.point.kind}, {finding.point.device}"),
            escaped(f"{finding.metric} {finding.outcome}"),
            escaped(value(finding, "base")),
            escaped(value(finding, "head")),
            escaped(change(finding)),
            escaped(finding.detail or ""),
        )
        for finding in findings[:_ROWS]
    ]
    headings = ("point", "kind", "finding", "base", "head", "head / base (95%)", "")
    lines = ["", f"### {title} ({len(findings)})", "", *table(headings, rows)]
    if len(findings) > _ROWS:
        lines += ["", f"{len(findings) - _ROWS} more are not shown; `--json` has all."]
    return lines


def _implementations(report: Report) -> list[str]:
    moved = [family for family in report.families if family.verdict != "unchanged"]
    if not moved:
        return []
    rows = [
        (
            escaped(f"{family.module} {family.implementation}"),
            family.verdict,
            f"{family.against:.3f}x ({family.low:.3f} to {family.high:.3f})",
            f"{family.own:.3f}x",
            str(family.points),
            escaped(family.detail or ""),
        )
        for family in moved[:_ROWS]
    ]
    headings = (
        *("implementation", "verdict", "beside its neighbours (95%)", "own median", "points"),
        "",
    )
    return ["", "### Implementations as a whole", "", *table(headings, rows)]


def _together(report: Report) -> list[str]:
    return [
        f"- {escaped(together_line(whole.device, whole.preset, whole.ratio, whole.slower))}"
        for whole in report.together
        if whole.slower or whole.cannot_tell
    ]


def together_line(device: str, preset: str | None, ratio: float, slower: bool) -> str:
    """One line on a move of everything."""
    where = f"{device}{f' ({preset})' if preset else ''}"
    if slower:
        return f"Everything on {where} is slower over its runs: {ratio:.3f}x"
    return (
        f"Everything on {where} moved together, {ratio:.3f}x: with one run a side that may be the "
        "code or the machine; measure both again"
    )


def _differences(report: Report) -> list[str]:
    if not report.differences:
        return []
    rows = [
        (
            escaped(unlike.field),
            escaped(unlike.base),
            escaped(unlike.head),
            "allowed" if unlike.allowed else "refused",
        )
        for unlike in report.differences[:_ROWS]
    ]
    return ["", "### Different surroundings", "", *table(("field", "base", "head", ""), rows)]


def _state(settled: bool, lasting: bool, other_environment: bool) -> str:
    words = ["lasts" if lasting else "undone since"]
    if not settled:
        words.append("one commit only")
    if other_environment:
        words.append("environment changed too")
    return ", ".join(words)


def _hash(name: str) -> str:
    """A commit as code, shortened; a run's id as words."""
    return f"`{name[:10]}`" if re.fullmatch(r"[0-9a-f]{7,64}", name) else escaped(name)


def _bounded(lines: Sequence[str]) -> str:
    text = "\n".join(lines) + "\n"
    if len(text) <= MAX_CHARACTERS:
        return text
    kept = text[: MAX_CHARACTERS - 100].rpartition("\n")[0]
    return f"{kept}\n\nThe rest does not fit; `--json` has all of it.\n"
