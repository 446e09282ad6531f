"""`k3bench gate`: judge a commit against another, look through a history, simulate the gate."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from k3bench.cli.errors import COULD_NOT_JUDGE, USAGE, CliError
from k3bench.cli.ledger import cli_error, opened_ledger
from k3bench.cli.results import bring_in_abandoned_points

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from k3bench.gate import Report, Side

_KINDS = ("measured", "compiled", "modelled")


class _CompareByDefault(click.Group):
    """`k3bench gate BASE HEAD` is `k3bench gate compare BASE HEAD`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["compare", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_CompareByDefault)
def gate() -> None:
    """Judge HEAD against BASE: `k3bench gate BASE HEAD`. Exit 0 good, 1 worse, 2 could not judge.

    A side is a commit (hash, prefix, tag, branch) or a run's id. Measured times are judged by
    statistics, compiled figures exactly; kinds never mix. `compare --help` lists the options of the
    comparison.
    """


@gate.command()
@click.argument("base")
@click.argument("head")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print it for a CI job's summary.")
@click.option("--all", "everything", is_flag=True, help="Show unchanged points, too.")
@click.option("--threshold", metavar="CHANGE", default="1%", help="Smallest change that matters.")
@click.option("--false-alarms", metavar="RATE", default="1%", help="Of comparisons without change.")
@click.option("--min-samples", type=click.IntRange(min=1), default=10, help="On each side.")
@click.option(
    "--assume-run-noise",
    metavar="SPREAD",
    default="5%",
    help="Between runs, where one run a side leaves it unknown.",
)
@click.option(
    "--assume-turn-noise",
    metavar="SPREAD",
    default="1%",
    help="Of head over base between runs of `k3bench ab`, where fewer than three leave it unknown.",
)
@click.option("--kind", type=click.Choice(_KINDS), help="Judge only this kind of figure.")
@click.option("--device", metavar="NAME", help="Judge only this device.")
@click.option("--preset", metavar="NAME", help="Judge only this preset.")
@click.option("--benchmark", metavar="REGEX", help="Judge only benchmarks whose name matches.")
@click.option(
    "--allow-difference",
    "allowed",
    metavar="FIELD",
    multiple=True,
    help="Compare although this field of the environment differs (jax, workload, ...).",
)
@click.option(
    "--accept",
    "accepted",
    metavar="FIGURE",
    multiple=True,
    help="Report this exact figure's changes for the worse without failing (vmem_bytes, ...).",
)
@click.option("--fail-on-modelled", is_flag=True, help="Modelled times may fail, too.")
def compare(base: str, head: str, as_json: bool, as_markdown: bool, **options: Any) -> None:
    """Judge HEAD against BASE."""
    if as_json and as_markdown:
        raise CliError("--json or --markdown: choose one", USAGE)
    report = _report(base, head, **{k: v for k, v in options.items() if k != "everything"})
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=1))
    elif as_markdown:
        from k3bench.gate.markdown import to_markdown

        click.echo(to_markdown(report), nl=False)
    else:
        from k3bench.gate.text import print_report

        print_report(report, everything=options["everything"])
    if report.exit_code:
        raise click.exceptions.Exit(report.exit_code)


def _report(base: str, head: str, **options: Any) -> "Report":
    from k3bench.gate import GateError, Rules, Settings, environments_of
    from k3bench.gate.compare import compare as judge
    from k3bench.gate.select import narrowed, repeated_medians
    from k3bench.ledger import LedgerError, load_manifest

    try:
        settings = Settings(
            false_alarms=share("--false-alarms", options["false_alarms"]),
            threshold=share("--threshold", options["threshold"]),
            min_samples=options["min_samples"],
            assumed_run_noise=share("--assume-run-noise", options["assume_run_noise"]),
            assumed_turn_noise=share("--assume-turn-noise", options["assume_turn_noise"]),
        )
    except GateError as error:
        raise CliError(str(error), USAGE) from error
    rules = Rules(settings, options["allowed"], options["accepted"], options["fail_on_modelled"])
    bring_in_abandoned_points()
    try:
        with opened_ledger(create=False) as ledger, ledger.session() as session:
            sides = [_resolved(session, name) for name in (base, head)]
            if sides[0] == sides[1]:
                raise CliError(
                    f"{base} and {head} are the same {sides[0][0]}: to compare two runs of one "
                    "commit give their ids",
                    USAGE,
                )
            conditions = narrowed(
                kind=options["kind"],
                device=options["device"],
                preset=options["preset"],
                benchmarks=_matching(session, options["benchmark"]),
            )
            before, after = (
                _selected(session, name, side, conditions)
                for name, side in zip((base, head), sides, strict=True)
            )
            repeats = repeated_medians(session, environments_of(before, after))
            return judge(
                (sides[0][1], sides[1][1]),
                before,
                after,
                repeats,
                lambda identity: load_manifest(session, identity),
                rules,
            )
    except LedgerError as error:
        raise cli_error(error) from error
    except GateError as error:
        raise CliError(str(error), USAGE if error.usage else COULD_NOT_JUDGE) from error


@gate.command()
@click.argument("commits", metavar="BASE..HEAD")
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print them for a CI job's summary.")
@click.option("--threshold", metavar="CHANGE", default="1%", help="Smallest step that matters.")
@click.option("--benchmark", metavar="REGEX", help="Look only at benchmarks whose name matches.")
def history(
    commits: str, as_json: bool, as_markdown: bool, threshold: str, benchmark: str | None
) -> None:
    """Find the steps of every series over BASE..HEAD, each with the commits it lies between.

    Exits with 1 if something got worse and still is, with 2 if no series is long enough.
    """
    from k3bench.gate.history import find_changes, select_series
    from k3bench.ledger import LedgerError

    if as_json and as_markdown:
        raise CliError("--json or --markdown: choose one", USAGE)
    smallest = share("--threshold", threshold)
    ordered = _commits_between(commits)
    bring_in_abandoned_points()
    try:
        with opened_ledger(create=False) as ledger, ledger.session() as session:
            series = select_series(session, ordered, _matching(session, benchmark))
    except LedgerError as error:
        raise cli_error(error) from error
    with _progress(len(series), "series") as step:
        found = find_changes(series, ordered, smallest, step)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    elif as_markdown:
        from k3bench.gate.markdown import history_to_markdown

        click.echo(history_to_markdown(found), nl=False)
    else:
        from k3bench.gate.text import print_history

        print_history(found)
    if found.exit_code:
        raise click.exceptions.Exit(found.exit_code)


@gate.command()
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Same seed, same figures.")
@click.option("--runs", type=click.IntRange(min=10), default=1000, help="Comparisons a scenario.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def simulate(seed: int, runs: int, as_json: bool) -> None:
    """How often the gate is wrong, and what it sees, on noise that was recorded; beside asv.

    Of runs apart and of runs in turns (`k3bench ab`).

    Exits with 1 if it raises more false alarms, or sees less, than docs/gate.md promises.
    """
    from k3bench.gate.simulate import simulate as run_simulation
    from k3bench.gate.simulate import steps_of, to_lines

    with _progress(steps_of(runs), "comparisons") as step:
        figures = run_simulation(seed, runs, step)
    if as_json:
        click.echo(json.dumps(figures.to_json(), indent=1))
    else:
        for line in to_lines(figures):
            click.echo(line)
    if not figures.as_promised:
        raise click.exceptions.Exit(1)


class _progress:  # noqa: N801 (used like a function)
    """A bar on stderr where that is a terminal; calls to the step function cost little."""

    def __init__(self, total: int, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        console = Console(stderr=True)
        self._bar = Progress(
            what,
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._total = total

    def __enter__(self) -> Callable[[], None]:
        self._bar.start()
        task = self._bar.add_task("", total=self._total)
        return lambda: self._bar.advance(task)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def share(option: str, text: str) -> float:
    """A share or relative change: ``3%`` or ``0.03``."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if text.strip().endswith("%"):
        value /= 100
    elif value >= 1:
        # Nobody means 300% by 3; and 1.03 is a ratio.
        raise CliError(f"{option} {text}: write a share: 3% or 0.03", USAGE)
    if not 0 <= value < 100:
        raise CliError(f"{option} {text}: write a share: 3% or 0.03", USAGE)
    return value


def _resolved(session: "Session", name: str) -> tuple[str, str]:
    """("run", id) or ("commit", full hash) of what the user calls a side."""
    from k3bench.gate.select import commits_of_run, commits_starting_with, is_run

    if is_run(session, name):
        held = commits_of_run(session, name)
        if len(held) > 1:
            some = ", ".join(commit[:12] for commit in held[:4]) + (", ..." if held[4:] else "")
            raise CliError(
                f"{name}: a run of {len(held)} commits ({some}): give the commits", USAGE
            )
        return ("run", name)
    known = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if known is not None:
        return ("commit", known)
    if re.fullmatch(r"[0-9a-f]{4,64}", name):
        # A commit of another clone: the ledger may know it although git here does not.
        commits = commits_starting_with(session, name)
        if len(commits) == 1:
            return ("commit", commits[0])
        if commits:
            raise CliError(f"{name}: {len(commits)} commits start with it: give more", USAGE)
    raise CliError(
        f"{name}: neither a run of the ledger nor a commit that git or the ledger knows: "
        "`k3bench results` shows what there is",
        USAGE,
    )


def _selected(
    session: "Session", name: str, side: tuple[str, str], conditions: list[Any]
) -> "Side":
    """A side's results; says what there is of it where the options leave nothing."""
    from k3bench.gate import GateError
    from k3bench.gate.select import select_side, strata_of

    of_side = _condition(side)
    there = strata_of(session, of_side) if conditions else []
    try:
        return select_side(session, name, [*of_side, *conditions])
    except GateError:
        if not there:
            raise
        raise GateError(
            f"{name}: the ledger has no results of it that the options select; it has "
            + ", ".join(there)
        ) from None


def _condition(side: tuple[str, str]) -> list[Any]:
    from k3bench.gate.select import of_commit, of_run

    return of_run(side[1]) if side[0] == "run" else of_commit(side[1])


def _matching(session: "Session", pattern: str | None) -> list[str] | None:
    from k3bench.gate.select import benchmark_names

    if pattern is None:
        return None
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise CliError(f"--benchmark {pattern}: no regular expression: {error}", USAGE) from error
    names = [name for name in benchmark_names(session) if expression.search(name)]
    if not names:
        raise CliError(f"--benchmark {pattern}: matches no benchmark of the ledger", USAGE)
    return names


def _commits_between(commits: str) -> list[str]:
    """BASE and every commit after it up to HEAD along first parents, the oldest first."""
    base, dots, head = commits.partition("..")
    if not dots or not base or not head or head.startswith("."):
        raise CliError(f"{commits}: write BASE..HEAD", USAGE)
    ends = []
    for name in (base, head):
        known = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if known is None:
            raise CliError(f"{name}: git knows no such commit here", USAGE)
        ends.append(known)
    listed = _git("rev-list", "--first-parent", "--reverse", f"{ends[0]}..{ends[1]}")
    between = (listed or "").split()
    if not between:
        raise CliError(f"{commits}: no commit of HEAD's lies after BASE", USAGE)
    return [ends[0], *between]


def _git(*arguments: str) -> str | None:
    """git's answer in the project (or here, outside one); None where it has none."""
    from k3bench.paths import ProjectNotFound, project_root

    try:
        directory: Path | None = project_root()
    except ProjectNotFound:
        directory = None
    try:
        answer = subprocess.run(
            ["git", *arguments], cwd=directory, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
