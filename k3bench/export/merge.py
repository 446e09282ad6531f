"""One asv result file: what is in it already, what the ledger adds, and where the two disagree."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

from asv.results import Results
from asv.runner import BenchmarkResult

from k3bench.export.answers import Answer, Answers
from k3bench.export.suite import Benchmark

# Modelled times go through seconds and back, which costs the last bit.
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Disagreement:
    """Something in a file that is none of the ledger's. One line."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Before:
    """A point as the file has it: a value, None (failed) or NaN (never run)."""

    value: float | None
    samples_s: Sequence[float] | None

    @property
    def never_run(self) -> bool:
        return self.value is not None and math.isnan(self.value)


_NEVER_RUN = _Before(math.nan, None)


def add_answers(
    results: Results, benchmarks: Mapping[str, Benchmark], answers: Answers
) -> tuple[bool, list[Disagreement]]:
    """Puts the newest answer of every point into ``results``; whether that changed anything.

    What the ledger does not answer stays as it is. A value in the file that the ledger has as an
    older answer is simply out of date; one that it does not have at all is a disagreement, and so
    is a benchmark of another version, whose values would not be comparable.
    """
    changed = False
    disagreements: list[Disagreement] = []
    for name in sorted(answers):
        benchmark = benchmarks[name]
        combinations = list(product(*benchmark["params"]))
        before = [_NEVER_RUN] * len(combinations)
        touched = name not in results.get_all_result_keys()
        if not touched:
            version = results.benchmark_version.get(name)
            if version is not None and version != benchmark["version"]:
                disagreements.append(
                    Disagreement(
                        f"{name} is of version {version} there, {benchmark['version']} now"
                    )
                )
                touched = True
            else:
                before = _before(results, benchmark)
        after = list(before)
        for position, history in answers[name].items():
            found, newest = before[position], history[-1]
            if _is(found, newest) and not (found.samples_s is None and newest.samples_s):
                continue
            touched = True
            after[position] = _Before(newest.value, newest.samples_s)
            if not found.never_run and not any(_is(found, older) for older in history):
                disagreements.append(
                    Disagreement(
                        f"{name}({', '.join(combinations[position])}) is {_shown(found.value)} "
                        f"there, {_shown(newest.value)} in the ledger"
                    )
                )
        if touched:
            changed = True
            # asv wants one start for the benchmark: that of the first of its points.
            started_at = min(history[-1].started_at for history in answers[name].values())
            _replace(results, benchmark, after, started_at)
    return changed, disagreements


def _replace(
    results: Results, benchmark: Benchmark, points: Sequence[_Before], started_at: datetime
) -> None:
    """asv computes its statistics from the samples, as after a run."""
    results.add_result(
        benchmark,
        BenchmarkResult(
            result=[point.value for point in points],
            samples=[point.samples_s for point in points],
            number=[None if point.samples_s is None else 1 for point in points],
            errcode=0,
            stderr="",
            profile=None,
        ),
        started_at=started_at,
        duration=results.duration.get(benchmark["name"]),
        record_samples=True,
    )


def _before(results: Results, benchmark: Benchmark) -> list[_Before]:
    name, params = benchmark["name"], benchmark["params"]
    # A point that the file has no place for was never run; asv's own look-up would say failed.
    there = dict.fromkeys(product(*results.get_result_params(name)))
    values = results.get_result_value(name, params)
    samples: list[Any] = [None] * len(values)
    if results._samples[name] is not None:
        samples = results.get_result_samples(name, params)
    return [
        _Before(value, some) if combination in there else _NEVER_RUN
        for combination, value, some in zip(product(*params), values, samples, strict=True)
    ]


def _is(found: _Before, answer: Answer) -> bool:
    """Whether a file's point is that answer, as far as the file says."""
    if found.value is None or answer.value is None:
        return found.value is answer.value
    if not math.isclose(found.value, answer.value, rel_tol=_TOLERANCE):
        return False
    return found.samples_s is None or tuple(found.samples_s) == (answer.samples_s or ())


def _shown(value: float | None) -> str:
    return "failed" if value is None else f"{value:.6g}"
