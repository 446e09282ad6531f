"""How findings are put into words: values, changes and one-line summaries, plain text."""

from collections import Counter
from collections.abc import Sequence

from k3bench.gate.history import Change
from k3bench.gate.report import Finding, Report

TITLES = ("passed", "failed", "could not judge")
# Of a point's explanatory figures, so many are spelled out.
SPELLED = 3


def value(finding: Finding, side: str) -> str:
    """Base's or head's value as people read it."""
    given = getattr(finding, side)
    if given is None:
        return "-"
    if finding.metric in ("time_s", "median_s") and isinstance(given, (int, float)):
        return f"{given * 1e3:,.4g} ms"
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return str(given)
    # Counts in full: rounded, two that differ would look the same.
    return f"{given:,}" if isinstance(given, int) else f"{given:.6g}"


def change(finding: Finding) -> str:
    """The ratio with its interval; of a count, the difference, which a ratio would round away."""
    found = finding.statistics
    if found is not None and found.ratio is not None:
        if found.low is None or found.high is None:
            return f"{found.ratio:.3f}x"
        return f"{found.ratio:.3f}x ({found.low:.3f} to {found.high:.3f})"
    before, after = finding.base, finding.head
    if not isinstance(before, (int, float)) or not isinstance(after, (int, float)):
        return "-"
    ratio = f"{after / before:.3f}x" if before else "from 0"
    if isinstance(before, int) and isinstance(after, int):
        return f"{ratio} ({after - before:+,})"
    return ratio


def step_size(step: Change) -> str:
    """A step as people read it."""
    size = "from 0" if step.ratio is None else f"{step.ratio:.3f}x"
    return f"{size} {'worse' if step.worse else 'better'}"


def step_state(step: Change) -> str:
    """Whether a step still holds, and what casts doubt on it."""
    words = ["lasts" if step.lasting else "undone since"]
    if not step.settled:
        words.append("one commit only")
    if step.other_environment:
        words.append("environment changed too")
    return ", ".join(words)


def tally(report: Report) -> str:
    """What was found, counted; explanatory figures apart, by how many points they explain."""
    counts = Counter(
        # A modelled time, or a figure accepted by name: worse, and no failure.
        f"{one.outcome} (reported only)"
        if one.outcome == "worse" and one.weight == "informs"
        else one.outcome
        for one in report.findings
        if not one.explains
    )
    explained = report.explanations()
    figures = sum(map(len, explained.values()))
    # In the order of the findings: what decides comes first.
    parts = [f"{count} {outcome}" for outcome, count in counts.items()]
    if figures:
        parts.append(
            f"{_counted(figures, 'explanatory figure')} of {_counted(len(explained), 'point')}"
        )
    return f"{_counted(report.compared, 'point')} compared: {', '.join(parts) or 'nothing'}"


def explanation(findings: Sequence[Finding]) -> str:
    """One line on what explains a point: the largest changes, and how many more there are."""
    parts = [
        # Hashes and names say no more than that they differ.
        f"{one.metric} changed"
        if isinstance(one.base, str) and isinstance(one.head, str)
        else f"{one.metric} {value(one, 'base')} to {value(one, 'head')}"
        for one in findings[:SPELLED]
    ]
    if len(findings) > SPELLED:
        parts.append(f"{len(findings) - SPELLED} more")
    return ", ".join(parts)


def closing_lines(report: Report) -> list[str]:
    """How measured points were compared, how small a slow-down would have shown, what to do next.

    Empty where nothing was measured or refused: exact figures need no such words.
    """
    measured = [one for one in report.findings if one.statistics is not None]
    lines = []
    turns = sum(one.statistics.in_turns for one in measured if one.statistics is not None)
    if turns:
        lines.append(
            f"{turns} of {_counted(len(measured), 'measured point')} compared sample by sample: "
            "both commits took turns in one process."
        )
    visible, judged = report.would_see(0.03)
    if judged:
        half = report.half_would_see()
        least = "" if half is None or 2 * visible >= judged else f", half of them one of {half:.0%}"
        lines.append(
            f"{visible} of {_counted(judged, 'measured point')} would have shown a slow-down of 3% "
            f"on its own{least}; an implementation that slows as a whole shows much earlier."
        )
    if any(one.outcome == "suspected" for one in measured) or any(
        whole.cannot_tell for whole in report.together
    ):
        again = "again" if turns else "in turns"
        lines.append(
            f"To settle it, measure both {again} (k3bench ab BASE HEAD), and judge once more."
        )
    refused = [unlike.field for unlike in report.differences if not unlike.allowed]
    if refused:
        lines.append(
            "Figures of different surroundings are not compared: measure both in the same, or "
            f"accept the difference by name (--allow-difference {refused[0]})."
        )
    return lines


def together_line(device: str, preset: str | None, ratio: float, slower: bool) -> str:
    """One line on a move of everything."""
    where = f"{device}{f' ({preset})' if preset else ''}"
    if slower:
        return f"Everything on {where} is slower over its runs: {ratio:.3f}x"
    return (
        f"Everything on {where} moved together, {ratio:.3f}x: with one run a side that may be the "
        "code or the machine"
    )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
