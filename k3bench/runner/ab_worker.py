"""The measuring process of `k3bench ab`: one fork a point, both commits taking turns in it.

``python -m k3bench.runner.ab_worker PLAN``, where PLAN is what ``ab.AbPlan.write`` wrote. Exit code
0, or 2 where a point could not be measured at all.
"""

import itertools
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from k3bench.measure.result import Result, summarise
from k3bench.orphans import die_with_parent
from k3bench.run import AB_ENVIRONMENT
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


def measure(
    point: Point, sides: Mapping[str, Side], benchmarks: Mapping[str, Mapping[str, Any]]
) -> list[Result]:
    """Measures one point in this process and makes its records durable."""
    journal = RunJournal(Path(os.environ[RUN_DIRECTORY_VARIABLE]))
    records: list[dict[str, Any]] = []
    turns: dict[str, Turn] = {}
    first = benchmarks[next(iter(point.implementations))][point.benchmark]
    protocol = first._protocol()
    with device_held(protocol.preset):
        experiments = {}
        for label, names in point.implementations.items():
            side, benchmark = sides[label], benchmarks[label][point.benchmark]
            side.enter()
            named = {**point.parameters, IMPLEMENTATION: names[0]}
            experiments[label] = benchmark.func(*(named[name] for name in benchmark.param_names))
        # base and head of one implementation stand beside each other in a round.
        every = dict.fromkeys(n for names in point.implementations.values() for n in names)
        for name in every:
            for label, names in point.implementations.items():
                if name not in names:
                    print(f"k3bench: {point} {name}: not in {label}", flush=True)
                elif name in experiments[label].unavailable:
                    reason = experiments[label].unavailable[name]
                    print(f"k3bench: {point} {name}: skipped: {reason}", flush=True)
                else:
                    turns[f"{label}:{name}"] = Turn(
                        name,
                        experiments[label],
                        Provenance(
                            benchmark=point.benchmark,
                            parameters=point.parameters,
                            manifest_id=os.environ.get(MANIFEST_VARIABLE) or None,
                            commit=sides[label].commit,
                            run_id=journal.run_id,
                        ),
                        enter=sides[label].enter,
                    )
        if not turns:
            return []

        def keep(result: Result) -> None:
            record = result.to_record()
            key = point_key(
                commit=result.commit,
                environment=AB_ENVIRONMENT,
                benchmark=result.benchmark,
                version=f"{first.version}/{result.clock}",
                parameters=result.parameters,
                implementation=result.implementation,
                warmup=protocol.warmup,
                repeat=protocol.repeat,
            )
            journal.append(key, AB_ENVIRONMENT, record)
            records.append(record)

        backend = next(iter(turns.values())).experiment.backend
        results = measure_turns(
            turns,
            protocol,
            on_result=keep,
            on_further=keep,
            surroundings=surroundings_of(backend, protocol.preset, journal),
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
