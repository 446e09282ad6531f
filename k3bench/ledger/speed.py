"""How fast a ledger is, and how that changes as it grows: `python -m k3bench.ledger.speed`.

A point is one measured record with its samples (20, the ladder preset's, unless told otherwise).
The records are made up from a seed; the ledger, its checks and its files are the real ones. Results
of 1,000 series are ingested commit by commit, and at every size that is a power of ten of commits
the questions of the tables, the gate and the pages are asked. Seconds on the wall and seconds of
this process's processor stand side by side: on a machine that others use, only the latter repeats.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from k3bench.ledger import Ledger, LedgerError, ingest, open_ledger, select_results
from k3bench.ledger.models import Result, Samples
from k3bench.ledger.queries import benchmark_names, latest_finished_runs
from k3bench.ledger.semantics import valid_record
from k3bench.ledger.statistics import summarise
from k3bench.paths import project_root

SERIES = 1000
BENCHMARKS, SHAPES, IMPLEMENTATIONS = 10, 25, 4
BATCH = 5000
# Points that are ingested one by one.
SINGLE = 20
# At every size, ingest is timed over the calls before it, up to so many.
_CALLS = 20
TOKENS = 8192
_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Timing:
    """One thing that was timed: ``items`` of it took so many seconds."""

    what: str
    points_in_ledger: int
    items: int
    wall_s: float
    cpu_s: float

    @property
    def items_per_s(self) -> float:
        """Items a second on the wall."""
        return self.items / self.wall_s


class _Records:
    """Made-up records: the same ones for the same seed, all valid."""

    def __init__(self, manifest_id: str, samples: int, seed: int, ids: str = "random") -> None:
        self._random = random.Random(seed)
        self._in_order = ids == "time"
        self._made = 0
        self._manifest_id = manifest_id
        # Drawing and summarising samples for every record would take longer than the ledger does.
        self._figures = [self._some_figures(samples) for _ in range(256)]

    def _some_figures(self, samples: int) -> dict[str, Any]:
        times = [self._random.lognormvariate(-7.0, 0.03) for _ in range(samples)]
        summary = summarise(times)
        return {
            "samples_s": times,
            "median_s": summary.median,
            "p10_s": summary.p10,
            "p90_s": summary.p90,
            "n": samples,
            "tokens_per_s": TOKENS / summary.median,
        }

    def of_commit(self, number: int) -> list[dict[str, Any]]:
        """One record a series, all of one run."""
        commit = f"{self._random.getrandbits(160):040x}"
        started_at = (_FIRST_DAY + timedelta(minutes=10 * number)).isoformat()
        return [self._record(series, commit, started_at, f"run-{number}") for series in _series()]

    def run(self, number: int) -> dict[str, str]:
        """The finished run that ``of_commit`` names."""
        start = _FIRST_DAY + timedelta(minutes=10 * number)
        end = start + timedelta(minutes=5)
        return {
            "id": f"run-{number}",
            "started_at": start.isoformat(),
            "finished_at": end.isoformat(),
        }

    def _next_id(self) -> str:
        self._made += 1
        if self._in_order:
            return f"{self._made:012x}{self._random.getrandbits(80):020x}"
        return f"{self._random.getrandbits(128):032x}"

    def _record(
        self, series: tuple[int, int, int], commit: str, started_at: str, run_id: str
    ) -> dict[str, Any]:
        benchmark, shape, implementation = series
        return {
            "id": self._next_id(),
            "benchmark": f"kda_prefill.Family{benchmark}.device_prefill",
            "parameters": {"seqlen": 32 * (shape + 1), "batch": 4},
            "implementation": f"implementation_{implementation}",
            "kind": "measured",
            "device": "tpu-v6e",
            "clock": "wall",
            "preset": "ladder",
            "warmup": 5,
            "compile_s": 1.5,
            "tokens": TOKENS,
            "padded_tokens": TOKENS,
            "correctness": {
                "status": "ok",
                "max_abs_error": 1e-4,
                "tolerance": 5e-4,
                "reference": "fp32 recurrence",
                "detail": "o, state: 0.0001 from fp32 recurrence, allowed 0.0005",
            },
            "workload": {"id": f"speed/{shape}", "sha256": f"{shape:064x}"},
            "manifest_id": self._manifest_id,
            "commit": commit,
            "started_at": started_at,
            "run_id": run_id,
            "source": None,
            "figures": None,
            **self._random.choice(self._figures),
        }


def _series() -> Iterator[tuple[int, int, int]]:
    for number in range(SERIES):
        rest, implementation = divmod(number, IMPLEMENTATIONS)
        benchmark, shape = divmod(rest, SHAPES)
        yield benchmark % BENCHMARKS, shape, implementation


def measure(
    url: str,
    commits: int,
    samples: int,
    seed: int,
    progress: Callable[[str], None],
    *,
    ids: str = "random",
) -> list[Timing]:
    """Fills the empty ledger at ``url`` with ``commits`` x 1,000 points; what was timed on the way.

    Raises LedgerError where the ledger holds results: made-up ones never go beside real ones.
    """
    import manifests

    manifest = dict(manifests.capture(project_root()))
    source = _Records(manifests.manifest_id(manifest), samples, seed, ids)
    found: list[Timing] = []
    with open_ledger(url) as ledger:
        with ledger.session() as session:
            if session.scalar(select(func.count()).select_from(Result)):
                raise LedgerError(f"{ledger.name} holds results: name an empty ledger", "usage")
        ingest(ledger, [], [manifest])
        found.append(_validation(source.of_commit(-1)))
        found.append(_a_point_at_a_time(url, source, manifest))
        size, done = SINGLE, 0
        calls: list[Timing] = []
        marks = [10**power for power in range(1, 7) if 10**power <= commits]
        while done < commits:
            some = min(BATCH // SERIES, commits - done)
            batch = [source.of_commit(number) for number in range(done, done + some)]
            runs = [source.run(number) for number in range(done, done + some)]
            records = [record for of_commit in batch for record in of_commit]
            size, done = size + len(records), done + some
            what = f"ingest, {BATCH} points a call, {samples} samples each"
            call = partial(ingest, ledger, records, (), runs)
            calls.append(_timed(what, size, len(records), call))
            if done in marks or done == commits:
                progress(f"{size:,} points")
                found += [_together(calls[-_CALLS:]), *_questions(ledger, size, batch)]
    return found


def _timed(what: str, size: int, items: int, action: Callable[[], Any]) -> Timing:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Timing(what, size, items, time.perf_counter() - wall, time.process_time() - cpu)


def _together(calls: Sequence[Timing]) -> Timing:
    """Several calls as one: single ones differ, by whether the WAL was copied into the file."""
    return Timing(
        calls[-1].what,
        calls[-1].points_in_ledger,
        sum(each.items for each in calls),
        sum(each.wall_s for each in calls),
        sum(each.cpu_s for each in calls),
    )


def _best(what: str, size: int, action: Callable[[], int]) -> Timing:
    """The fastest of three: what the question costs where nobody disturbs it."""
    timings = []
    for _ in range(3):
        items = 0

        def counted() -> None:
            nonlocal items
            items = action()

        timing = _timed(what, size, 0, counted)
        timings.append(Timing(what, size, items, timing.wall_s, timing.cpu_s))
    return min(timings, key=lambda timing: timing.wall_s)


def _validation(records: Sequence[dict[str, Any]]) -> Timing:
    return _best(
        "parse and check alone", 0, lambda: len([valid_record(record) for record in records])
    )


def _a_point_at_a_time(url: str, source: _Records, manifest: dict[str, Any]) -> Timing:
    """As a run does between two points: open, ingest one, close; each is on the disk then."""
    records = source.of_commit(-2)[:SINGLE]

    def one_by_one() -> None:
        for record in records:
            with open_ledger(url) as ledger:
                ingest(ledger, [record], [manifest])

    return _timed("ingest, open, one point, close", 0, len(records), one_by_one)


def _questions(
    ledger: Ledger, size: int, batch: Sequence[Sequence[dict[str, Any]]]
) -> Iterator[Timing]:
    commit = batch[-1][0]["commit"]
    benchmark = batch[-1][0]["benchmark"]

    def asked(question: Callable[[Any], int]) -> Callable[[], int]:
        def ask() -> int:
            with ledger.session() as session:
                return question(session)

        return ask

    def both_sides(session: Any) -> int:
        query = (
            select(Result.id, Result.median_s, Samples.values_s)
            .join(Samples, Samples.result_id == Result.id)
            .where(Result.commit == commit)
        )
        return len(session.execute(query).all())

    def history(session: Any) -> int:
        return len(
            select_results(session, benchmark=f"^{benchmark}$", implementation="implementation_0")
        )

    questions: dict[str, Callable[[Any], int]] = {
        "results of one commit": lambda s: len(select_results(s, commit=commit)),
        "results of one commit, with samples": both_sides,
        "history of one benchmark and implementation": history,
        "newest result of every point": lambda s: len(select_results(s, latest=True)),
        "names of all benchmarks": lambda s: len(benchmark_names(s)),
        "newest finished run by preset": lambda s: len(latest_finished_runs(s)),
    }
    for what, question in questions.items():
        yield _best(what, size, asked(question))


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on stderr if the ledger could not be used."""
    parser = argparse.ArgumentParser(prog="python -m k3bench.ledger.speed", description=__doc__)
    parser.add_argument("--url", help="an empty ledger; default: a SQLite file, deleted afterwards")
    parser.add_argument("--commits", type=int, default=100, help="x 1,000 points (default: 100)")
    parser.add_argument("--samples", type=int, default=20, help="a point (default: 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--ids",
        choices=("random", "time"),
        default="random",
        help="do record ids follow the clock?",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as directory:
            found = measure(
                options.url or str(Path(directory) / "speed.sqlite"),
                options.commits,
                options.samples,
                options.seed,
                lambda text: print(f"k3bench: {text}", file=sys.stderr),
                ids=options.ids,
            )
    except (ValueError, OSError) as error:
        print(f"k3bench: error: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([asdict(timing) for timing in found], indent=1))
        return 0
    print(f"{'points':>10}  {'what':<52} {'items':>7} {'wall s':>9} {'cpu s':>9} {'items/s':>9}")
    for each in found:
        print(
            f"{each.points_in_ledger:>10,}  {each.what:<52} {each.items:>7,} {each.wall_s:>9.4f} "
            f"{each.cpu_s:>9.4f} {each.items_per_s:>9,.0f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
