"""The measuring process of `k3bench ab`: one fork a point, both commits taking turns in it.

``python -m k3bench.runner.ab_worker PLAN``, where PLAN is what ``ab.run_ab`` wrote. Exit code
0, or 2 where a point could not be measured at all.
"""

import itertools
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from k3bench.asv_type import (
    IMPLEMENTATION,
    MANIFEST_VARIABLE,
    PointFailedError,
    bring_into_ledger,
    device_held,
)
from k3bench.journal import RUN_DIRECTORY_VARIABLE, RunJournal, point_key
from k3bench.measure.point import Provenance, Turn, measure_turns
from k3bench.measure.protocol import Protocol
from k3bench.measure.result import Result, summarise
from k3bench.orphans import die_with_parent
from k3bench.run import AB_ENVIRONMENT, IN_TURNS_WITH
from k3bench.runner.sides import Side
from k3bench.runner.surroundings import surroundings_of


@dataclass(frozen=True)
class Point:
    """One point of the plan: a benchmark's parameters, and who is measured on which side."""

    benchmark: str
    parameters: Mapping[str, Any]
    implementations: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.benchmark}({values})"


def points(
    benchmarks: Mapping[str, Mapping[str, Any]], expressions: Sequence[str]
) -> Iterator[Point]:
    """Every selected point of any side, in the suite's order.

    Args:
        benchmarks: per side's label, its benchmarks by name.
        expressions: as asv's ``--bench``: any that is found in ``name(repr, ...)`` selects.
    """
    every = dict.fromkeys(name for side in benchmarks.values() for name in side)
    for name in every:
        found: dict[tuple[tuple[str, Any], ...], dict[str, list[str]]] = {}
        for label, side in benchmarks.items():
            if name not in side:
                continue
            benchmark = side[name]
            for values in itertools.product(*benchmark._params):
                shown = f"{name}({', '.join(map(repr, values))})"
                if expressions and not any(re.search(e, shown) for e in expressions):
                    continue
                named = dict(zip(benchmark.param_names, values, strict=True))
                implementation = named.pop(IMPLEMENTATION)
                of_point = found.setdefault(tuple(named.items()), {})
                of_point.setdefault(label, []).append(implementation)
        for parameters, by_side in found.items():
            yield Point(
                name, dict(parameters), {label: tuple(names) for label, names in by_side.items()}
            )


def side_order(names: Sequence[str], round_index: int) -> list[str]:
    """The order within one round: base and head of an implementation, then the next one's.

    Odd rounds swap the two, and leave the implementations where they are. So each side is as often
    first, and as often called after the other side of its own implementation, which leaves inputs
    and code in the caches, as after another implementation, which throws them out. (Reversing the
    whole round, as implementations of one commit take turns, calls one side twice in a row and
    makes it look faster: 14% at a point of 0.3 ms.)
    """
    by_implementation: dict[str, list[str]] = {}
    for name in names:
        by_implementation.setdefault(name.partition(":")[2], []).append(name)
    return [
        name
        for turns in by_implementation.values()
        for name in (turns if round_index % 2 == 0 else turns[::-1])
    ]


def in_turns(result: Result, sides: Mapping[str, Side]) -> Result:
    """The result with a figure that says with which commit's samples its own alternate.

    The gate then compares sample by sample; a common run id alone would not say so, for one run of
    asv may hold several commits, one after the other.
    """
    if result.figures is None:
        return result
    other = other_side(result.commit, sides)
    return replace(result, figures={**result.figures, IN_TURNS_WITH: other})


def other_side(commit: str | None, sides: Mapping[str, Side]) -> str:
    """The commit of the side that ``commit`` takes turns with."""
    (other,) = (side.commit for side in sides.values() if side.commit != commit)
    return other


def label_of(commit: str | None, sides: Mapping[str, Side]) -> str:
    """The label of a commit's side."""
    (label,) = (label for label, side in sides.items() if side.commit == commit)
    return label


def turns_of(
    point: Point,
    sides: Mapping[str, Side],
    benchmarks: Mapping[str, Mapping[str, Any]],
    run_id: str,
) -> dict[str, Turn]:
    """Who takes turns, as ``side:implementation``; says who does not, and why."""
    experiments = {}
    for label, names in point.implementations.items():
        side, benchmark = sides[label], benchmarks[label][point.benchmark]
        side.enter()
        named = {**point.parameters, IMPLEMENTATION: names[0]}
        experiments[label] = benchmark.func(*(named[name] for name in benchmark.param_names))
    turns: dict[str, Turn] = {}
    skipped: dict[tuple[str, str], list[str]] = {}
    # base and head of one implementation stand beside each other in a round.
    every = dict.fromkeys(n for names in point.implementations.values() for n in names)
    for name in every:
        for label, names in point.implementations.items():
            if name not in names:
                skipped.setdefault((name, f"not in {label}"), []).append(label)
            elif name in experiments[label].unavailable:
                reason = experiments[label].unavailable[name]
                skipped.setdefault((name, reason), []).append(label)
            else:
                turns[f"{label}:{name}"] = Turn(
                    name,
                    experiments[label],
                    Provenance(
                        benchmark=point.benchmark,
                        parameters=point.parameters,
                        manifest_id=os.environ.get(MANIFEST_VARIABLE) or None,
                        commit=sides[label].commit,
                        run_id=run_id,
                    ),
                    enter=sides[label].enter,
                )
    by_reason: dict[str, list[str]] = {}
    for (name, reason), labels in skipped.items():
        where = "" if len(labels) == len(sides) or reason.startswith("not in ") else f" {labels[0]}"
        by_reason.setdefault(reason, []).append(f"{name}{where}")
    for reason, who in by_reason.items():
        print(f"k3bench: {point}: skipped: {', '.join(who)}: {reason}", flush=True)
    return turns


def key_of(turn: Turn, result: Result | None, version: str, protocol: Protocol, other: str) -> str:
    """The journal's key of a turn's own result, or of one that it has made by a further clock.

    ``other``: the commit at its side; beside another it would be another measurement.
    """
    given, backend = turn.provenance, turn.experiment.backend
    return point_key(
        commit=given.commit,
        environment=f"{AB_ENVIRONMENT} with {other}",
        benchmark=given.benchmark,
        version=f"{version}/{backend.clock if result is None else result.clock}",
        parameters=given.parameters if result is None else result.parameters,
        implementation=turn.implementation,
        warmup=protocol.warmup,
        repeat=protocol.repeat,
    )


def measure(
    point: Point, sides: Mapping[str, Side], benchmarks: Mapping[str, Mapping[str, Any]]
) -> list[Result]:
    """Measures one point in this process and makes its records durable.

    Nothing is measured, and nothing returned, where an interrupted run had finished the point.
    """
    journal = RunJournal(Path(os.environ[RUN_DIRECTORY_VARIABLE]))
    records: list[dict[str, Any]] = []
    first = benchmarks[next(iter(point.implementations))][point.benchmark]
    protocol = first._protocol()
    with device_held(protocol.preset):
        turns = turns_of(point, sides, benchmarks, journal.run_id)
        if not turns:
            return []
        others = {name: other_side(turn.provenance.commit, sides) for name, turn in turns.items()}
        kept = journal.keep_together(
            key_of(turn, None, first.version, protocol, others[name])
            for name, turn in turns.items()
        )
        if kept is not None:
            print(f"k3bench: {point}: kept from the interrupted run {kept}", flush=True)
            return []

        def keep(result: Result) -> None:
            record = in_turns(result, sides).to_record()
            name = f"{label_of(result.commit, sides)}:{result.implementation}"
            key = key_of(turns[name], result, first.version, protocol, others[name])
            journal.append(key, AB_ENVIRONMENT, record)
            records.append(record)

        backend = next(iter(turns.values())).experiment.backend
        results = measure_turns(
            turns,
            protocol,
            on_result=keep,
            on_further=keep,
            surroundings=surroundings_of(backend, protocol.preset, journal),
            order=side_order,
        )
    bring_into_ledger(journal, records)
    return results


def compared(point: Point, results: Sequence[Result], sides: Mapping[str, Side]) -> Iterator[str]:
    """One line an implementation: both medians and head's over base's."""
    labels = {side.commit: label for label, side in sides.items()}
    by_name: dict[str, dict[str, Result]] = {}
    for result in results:
        by_name.setdefault(result.implementation, {})[labels[str(result.commit)]] = result
    for name, found in by_name.items():
        medians: dict[str, float] = {}
        shown = []
        for label, result in found.items():
            median = summarise(result.samples_s).median_s
            if median is None:
                shown.append(f"{label} {result.correctness.status}: {result.correctness.detail}")
            else:
                medians[label] = median
                shown.append(f"{label} {median * 1e3:.4g} ms")
        if len(medians) == 2:
            shown.append(f"head/base {medians['head'] / medians['base']:.4f}")
        yield f"k3bench: {point} {name}: {', '.join(shown)}"


def _in_a_fork(
    point: Point, sides: Mapping[str, Side], benchmarks: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Whether the point was measured; a point that kills its process kills no other."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            die_with_parent()
            for line in compared(point, measure(point, sides, benchmarks), sides):
                print(line, flush=True)
            code = 0
        except PointFailedError as error:
            print(f"{error}", file=sys.stderr, flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        print(f"k3bench: {point}: not measured (its process ended with {code})", flush=True)
    return code == 0


def main(plan_file: Path) -> int:
    """Measures every selected point; returns the exit code."""
    die_with_parent()
    plan = json.loads(plan_file.read_text())
    root = Path(plan["project_root"])
    sides = {
        label: Side(label, side["commit"], Path(side["kernels"]), root)
        for label, side in plan["sides"].items()
    }
    try:
        # Imports both suites, and with them jax and torch, once for all forks; no device yet.
        benchmarks = {label: side.benchmarks() for label, side in sides.items()}
    except PointFailedError as error:
        print(f"k3bench: {error}", file=sys.stderr)
        return 2
    selected = list(points(benchmarks, plan["bench"]))
    print(f"k3bench: {len(selected)} points, each measured on both commits in turns", flush=True)
    measured = [_in_a_fork(point, sides, benchmarks) for point in selected]
    return 0 if all(measured) else 2


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
