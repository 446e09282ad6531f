"""Commits in the order of history, with subject and date: what git knows of those in the ledger."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

# Between the fields of a line, and the lines: neither can be in a subject.
_FIELD, _END = "\x1f", "\x1e"


@dataclass(frozen=True)
class Commit:
    """One commit that results name.

    Attributes:
        hash: as the records give it.
        subject: first line of its message; empty where this clone does not have the commit.
        date: when it was committed, UTC; the first result's time where the clone has it not.
        known: whether this clone has it.
    """

    hash: str
    subject: str
    date: datetime
    known: bool


def commits_in_order(first_result: Mapping[str, datetime], repository: Path) -> list[Commit]:
    """The commits of the ledger, parents first; foreign ones by the time of their first result.

    Args:
        first_result: time of each commit's first result, by hash (or prefix of one).
        repository: any directory in the clone; one that is no clone knows no commit.
    """
    history = _history(tuple(first_result), repository)
    known = [
        Commit(given, subject, date, True)
        for full, date, subject in history
        for given in sorted(first_result)
        if full.startswith(given)
    ]
    of_the_clone = {commit.hash for commit in known}
    foreign = sorted(
        (Commit(given, "", moment, False) for given, moment in first_result.items()
         if given not in of_the_clone),
        key=lambda commit: (commit.date, commit.hash),
    )  # fmt: skip
    return _merged(known, foreign)


def _merged(known: list[Commit], foreign: list[Commit]) -> list[Commit]:
    """Each foreign commit before the first known one that is younger; git's order stays."""
    merged: list[Commit] = []
    waiting = iter([*foreign, None])
    next_foreign = next(waiting)
    for commit in known:
        while next_foreign is not None and next_foreign.date < commit.date:
            merged.append(next_foreign)
            next_foreign = next(waiting)
        merged.append(commit)
    if next_foreign is not None:
        merged.append(next_foreign)
    return merged + [commit for commit in waiting if commit is not None]


def _history(hashes: tuple[str, ...], repository: Path) -> list[tuple[str, datetime, str]]:
    """(full hash, date, subject) of every ancestor of the given commits, parents first."""
    command = [
        "git", "log", "--topo-order", "--reverse", "--ignore-missing", "--no-show-signature",
        f"--format=%H{_FIELD}%cI{_FIELD}%s{_END}", "--stdin",
    ]  # fmt: skip
    try:
        answer = subprocess.run(
            command, cwd=repository, input="\n".join(hashes).encode(), capture_output=True,
            check=False,
        )  # fmt: skip
    except OSError:
        return []
    if answer.returncode != 0:  # no clone, or none of the commits is in it
        return []
    found = []
    for line in answer.stdout.decode("utf-8", "replace").split(_END):
        full, *rest = line.strip("\n").split(_FIELD, 2)
        if len(rest) == 2:
            found.append((full, datetime.fromisoformat(rest[0]).astimezone(UTC), rest[1]))
    return found
