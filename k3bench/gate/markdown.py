"""The comparison as Markdown for a CI job's summary or comment: escaped, and of bounded length."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from k3bench.gate.history import History
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

# GitHub takes 65,536 characters a comment (and 1 MiB a step summary). Bytes, because a name may be
# in any script; the rest is for what the comment's script adds.
MAX_BYTES = 60_000
# Kept back for the lines that say what is not shown, and for tags to be closed.
_RESERVE = 2_000
_ROWS = 50
_FEW_ROWS = 15
_EXPLAINED = 30
# Findings that are alike but for the point (all refused for one reason) are shown so often.
_ALIKE = 5
_CELL = 160
_ACTIVE = re.compile(r"[\\`*\[\]|~$<>&!#@]|:(?=\S)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# GitHub looks for mentions and issue numbers in the rendered text, where entities are resolved.
_NO_WIDTH = "&#8203;"


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
    # Entities, not backslashes: those would end a table's cell or survive in HTML. An underscore
    # within a word is no markup in GitHub's dialect and stays, so that names can be read raw.
    letter = match[0]
    return f"&#{ord(letter)};" + (_NO_WIDTH if letter in "@#" else "")


@dataclass(frozen=True)
class _Section:
    """Lines that stand together: ``before`` and ``after`` frame rows, of which as many as fit.

    ``omitted``: rows left out already. Nothing is shown of a section without rows.
    """

    before: Sequence[str]
    rows: Sequence[str]
    after: Sequence[str] = ()
    omitted: int = 0


def to_markdown(report: Report) -> str:
    """The verdict, what decided it (the worst first), and folded away what explains it."""
    head = [
        f"## Benchmarks: {TITLES[report.exit_code]}",
        "",
        f"{_hash(report.base)} → {_hash(report.head)}: {escaped_in_full(tally(report))}",
    ]
    decides = [finding for finding in report.findings if finding.weight != "informs"]
    better = [f for f in report.findings if f.outcome in ("faster", "better", "mended")]
    news = [f for f in report.findings if _is_news(f)]
    return _composed(
        head,
        [
            _notes(report),
            _findings("### What decides", _decided(report, decides), decides, _ROWS),
            _implementations(report),
            _differences(report),
            _findings(f"### Better ({len(better)})", (), better, _FEW_ROWS),
            _findings(f"### Reported ({len(news)})", (), news, _FEW_ROWS),
            _explanations(report),
        ],
        [line for closing in closing_lines(report) for line in ("", escaped_in_full(closing))],
    )


def history_to_markdown(history: History) -> str:
    """Changes, the newest first."""
    rows = [
        row(
            (
                escaped(change.point.label()),
                escaped(change.metric),
                step_size(change),
                f"`{change.before[:10]}..{change.after[:10]}`",
                str(change.commits),
                step_state(change),
            )
        )
        for change in history.changes
    ]
    title = (
        f"## History: {len(history.changes)} changes in {history.series} series over "
        f"{history.commits} commits"
    )
    headings = ("point", "metric", "change", "range", "commits", "state")
    return _composed([title], [_table(headings, rows, _ROWS)], [])


def row(cells: Sequence[str]) -> str:
    """One line of a Markdown table; cells must be escaped already."""
    return f"| {' | '.join(cells)} |"


def escaped_in_full(text: str) -> str:
    """Our own sentence, which may be longer than a cell and holds words from outside."""
    return " ".join(escaped(word) for word in text.split())


def _composed(head: Sequence[str], sections: Sequence[_Section], last: Sequence[str]) -> str:
    """All lines; rows that would make it longer than MAX_BYTES are left out and counted."""
    lines = list(head)
    left = MAX_BYTES - _RESERVE - _bytes([*head, *last])
    for section in sections:
        if not section.rows and not section.omitted:
            continue
        left -= _bytes([*section.before, *section.after])
        shown = []
        for line in section.rows:
            left -= _bytes([line])
            if left < 0:
                break
            shown.append(line)
        omitted = section.omitted + len(section.rows) - len(shown)
        more = ["", f"{omitted:,} more are not shown; `--json` has all."] if omitted else []
        lines += [*section.before, *shown, *more, *section.after]
    return "\n".join([*lines, *last]) + "\n"


def _bytes(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _table(headings: Sequence[str], rows: Sequence[str], most: int, title: str = "") -> _Section:
    before = [*(["", title] if title else []), "", row(headings), f"|{'---|' * len(headings)}"]
    return _Section(before, rows[:most], omitted=max(0, len(rows) - most))


def _decided(report: Report, decides: Sequence[Finding]) -> list[str]:
    """A line under the title: how many findings fail, and how many could not be judged."""
    fails, other = len(report.failures), len(decides) - len(report.failures)
    return [f"{fails:,} fail, {other:,} could not be judged; the worst first."] if decides else []


def _findings(title: str, lead: Sequence[str], findings: Sequence[Finding], most: int) -> _Section:
    alike: dict[tuple[str, ...], int] = {}
    rows = []
    for finding in findings:
        if finding.outcome in ("incomparable", "too few samples", "missing"):
            key = (finding.outcome, finding.detail or "")
            alike[key] = alike.get(key, 0) + 1
            if alike[key] > _ALIKE:
                continue
        rows.append(_cells(finding))
    folded = [
        (f"{count - _ALIKE:,} more {outcome}", "", "", "", "", "", detail)
        for (outcome, detail), count in alike.items()
        if count > _ALIKE
    ]
    # The folded ones stand for many points each: they must not fall to the limit.
    kept = rows[: most - len(folded)]
    # How much comes before the long names: a comment is narrow, and what is right of it scrolls.
    headings = ("finding", "head / base (95%)", "point", "base", "head", "kind", "note")
    shown = [*kept, *folded]
    columns = len(headings) if any(cells[-1] for cells in shown) else len(headings) - 1
    before = ["", title, *(["", *lead] if lead else [])]
    before += ["", row(headings[:columns]), "|" + "---|" * columns]
    return _Section(
        before,
        [row([escaped(cell) for cell in cells[:columns]]) for cells in shown],
        omitted=len(rows) - len(kept),
    )


def _cells(finding: Finding) -> tuple[str, ...]:
    return (
        f"{finding.metric} {finding.outcome}",
        change(finding),
        finding.point.label(),
        value(finding, "base"),
        value(finding, "head"),
        f"{finding.point.kind}, {finding.point.device}",
        finding.detail or "",
    )


def _is_news(finding: Finding) -> bool:
    known = ("unchanged", "faster", "better", "mended")
    return finding.weight == "informs" and finding.outcome not in known and not finding.explains


def _explanations(report: Report) -> _Section:
    """Slots, shares and hashes that changed, a line a point, folded away."""
    explained = report.explanations()
    figures = sum(map(len, explained.values()))
    title = (
        f"<summary>Explanatory figures that changed: {figures:,} of {len(explained):,} points"
        "</summary>"
    )
    rows = [
        f"- {escaped(point.label())} ({escaped(point.kind)}, {escaped(point.device)}): "
        f"{escaped_in_full(explanation(findings))}"
        for point, findings in explained.items()
    ]
    omitted = max(0, len(rows) - _EXPLAINED)
    return _Section(
        ["", "<details>", title, ""], rows[:_EXPLAINED], ["", "</details>"], omitted=omitted
    )


def _notes(report: Report) -> _Section:
    lines = [*report.unjudged_strata, *report.notes]
    lines += [
        together_line(whole.device, whole.preset, whole.ratio, whole.slower)
        for whole in report.together
        if whole.slower or whole.cannot_tell
    ]
    rows = [f"- {escaped_in_full(line)}" for line in lines]
    return _Section([""], rows[:_ROWS], omitted=max(0, len(rows) - _ROWS))


def _implementations(report: Report) -> _Section:
    rows = [
        row(
            (
                escaped(f"{family.module} {family.implementation}"),
                family.verdict,
                f"{family.against:.3f}x ({family.low:.3f} to {family.high:.3f})",
                f"{family.own:.3f}x",
                str(family.points),
                escaped(family.detail or ""),
            )
        )
        for family in report.families
        if family.verdict != "unchanged"
    ]
    headings = ("implementation", "verdict", "beside what took turns (95%)", "own median", "points")
    return _table((*headings, ""), rows, _ROWS, "### Implementations as a whole")


def _differences(report: Report) -> _Section:
    rows = [
        row(
            (
                escaped(unlike.field),
                escaped(unlike.base),
                escaped(unlike.head),
                "allowed" if unlike.allowed else "refused",
            )
        )
        for unlike in report.differences
    ]
    headings = ("field", "base", "head", "")
    return _table(headings, rows, _ROWS, "### Different surroundings")


def _hash(name: str) -> str:
    """A commit as code, shortened; a run's id as words."""
    return f"`{name[:10]}`" if re.fullmatch(r"[0-9a-f]{7,64}", name) else escaped(name)
