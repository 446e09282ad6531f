"""Glue: the asv benchmark type ``device_*``.

A ``device_*`` method takes the benchmark's parameters, one of them named ``implementation``, and
returns an Experiment. The first implementation of a point that asv asks for measures all of the
point's selected implementations, taking turns; the others are then answered from the journal. So
asv sees one parameter combination per implementation, and the samples are interleaved all the same.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from asv_runner.benchmarks import benchmark_types
from asv_runner.benchmarks._base import Benchmark, _get_first_attr

from k3bench.journal import RUN_DIRECTORY_VARIABLE, RunJournal, point_key
from k3bench.ledger import LedgerError, open_ledger
from k3bench.ledger.ingest import ingest
from k3bench.measure import Experiment, Result, measure_group
from k3bench.measure.point import Provenance
from k3bench.measure.protocol import Protocol, preset_name, resolve_protocol
from k3bench.orphans import die_with_parent
from k3bench.runner.lock import DeviceBusyError, LockError, devices_to_lock, exclusive
from k3bench.runner.surroundings import surroundings_of

IMPLEMENTATION = "implementation"
# Set by the run for its benchmark processes.
MANIFEST_VARIABLE = "K3BENCH_MANIFEST_ID"
KERNELS_VARIABLE = "K3BENCH_KERNELS_DIR"
SELECTION_VARIABLE = "K3BENCH_BENCH_SELECTION"
OVERHEAD_VARIABLE = "K3BENCH_OVERHEAD_LOG"
DRY_RUN_VARIABLE = "K3BENCH_DRY_RUN"

KERNEL_ROOMS = ("kda_tpu", "mla_rocm")


class PointFailedError(Exception):
    """A point without a speed: asv records it as failed, the ledger as wrong or failed."""


class DeviceBenchmark(Benchmark):  # type: ignore[misc]
    """One ``device_*`` method under one parameter combination."""

    name_regex = re.compile("^(Device[A-Z_].+)|(device_.+)$")

    def __init__(self, name: str, func: Any, attr_sources: list[Any]) -> None:
        super().__init__(name, func, attr_sources)
        # asv's pages and comparisons treat these as they treat its own timings.
        self.type = "time"
        self.unit = "seconds"
        self.rounds = 1
        if self.param_names and IMPLEMENTATION not in self.param_names:
            raise ValueError(
                f"{name}: a device benchmark needs a parameter named {IMPLEMENTATION!r}; "
                f"it has {', '.join(self.param_names)}"
            )

    def run(self, *params: Any) -> dict[str, Any] | float:
        """Samples of this parameter combination, measured now or by a sibling's call.

        Returns:
            ``{"samples": [seconds, ...], "number": 1}``, or NaN where the implementation cannot run
            on this machine (the reason is printed; ``asv run -e`` shows it).

        Raises:
            PointFailedError: the kernel was wrong or failed; there is no speed.
        """
        die_with_parent()
        journal = RunJournal(Path(required_variable(RUN_DIRECTORY_VARIABLE)))
        named = dict(zip(self.param_names, params, strict=True))
        implementation = named.pop(IMPLEMENTATION)
        protocol = self._protocol()
        keys = {
            name: self._key(named, name, protocol) for name in self._siblings(named, implementation)
        }

        if not journal.has_pending(keys[implementation]):
            # Before anything touches the device: even starting its runtime disturbs others.
            with device_held(protocol.preset):
                experiment: Experiment = self.func(*params)
                require_kernels_of_commit()
                if implementation in experiment.unavailable:
                    print(f"k3bench: skipped: {experiment.unavailable[implementation]}")
                    return math.nan
                group = [
                    name
                    for name in experiment.candidates
                    if name in keys and not journal.has_pending(keys[name])
                ]
                self._measure(experiment, group, keys, named, protocol, journal)

        point = journal.take(keys[implementation])
        if point is None:
            raise PointFailedError(f"{self.name}: {implementation} left no record in the journal")
        record = point.record
        verdict = record["correctness"]
        if verdict["status"] != "ok":
            sys.tracebacklimit = (
                0  # asv prints the traceback; the line below is all there is to say
            )
            raise PointFailedError(
                f"k3bench: {verdict['status'].upper()}: {self.name} {named} {implementation}: "
                f"{verdict['detail']}"
            )
        return {"samples": record["samples_s"], "number": 1}

    def _protocol(self) -> Protocol:
        def override(name: str) -> int | None:
            value = _get_first_attr(self._attr_sources, name, None)
            return None if value is None else int(value)

        # asv's --quick arrives as attributes; number=1 with warmup_time=0 is what only it sets.
        quick = (
            override("number") == 1
            and override("repeat") == 1
            and _get_first_attr(self._attr_sources, "warmup_time", None) == 0
        )
        # warmup comes from the benchmark class alone: asv's -a lets it through under no name.
        return resolve_protocol(
            preset_name(), warmup=override("warmup"), repeat=override("repeat"), quick=quick
        )

    def _siblings(self, named: dict[str, Any], implementation: str) -> list[str]:
        """The implementations of this point that asv was asked to run (``--bench`` may narrow)."""
        position = self.param_names.index(IMPLEMENTATION)
        names = list(self._params[position])
        expressions: Sequence[str] = json.loads(os.environ.get(SELECTION_VARIABLE) or "[]")
        if not expressions:
            return names
        selected = [
            name
            for name in names
            if any(re.search(regex, self._asv_name(named, name)) for regex in expressions)
        ]
        return selected if implementation in selected else [implementation]

    def _asv_name(self, named: dict[str, Any], implementation: str) -> str:
        """The text that asv matches --bench against: ``name(repr, repr, ...)``."""
        values = {**named, IMPLEMENTATION: implementation}
        return f"{self.name}({', '.join(repr(values[name]) for name in self.param_names)})"

    def _key(self, named: dict[str, Any], implementation: str, protocol: Protocol) -> str:
        return point_key(
            commit=os.environ.get("ASV_COMMIT"),
            environment=os.environ.get("ASV_ENV_NAME", ""),
            benchmark=self.name,
            version=self.version,
            parameters=named,
            implementation=implementation,
            warmup=protocol.warmup,
            repeat=protocol.repeat,
        )

    def _measure(
        self,
        experiment: Experiment,
        group: list[str],
        keys: dict[str, str],
        named: dict[str, Any],
        protocol: Protocol,
        journal: RunJournal,
    ) -> None:
        log = _OverheadLog.from_environment()
        provenance = Provenance(
            benchmark=self.name,
            parameters=named,
            manifest_id=os.environ.get(MANIFEST_VARIABLE) or None,
            commit=os.environ.get("ASV_COMMIT"),
            run_id=journal.run_id,
        )
        environment = os.environ.get("ASV_ENV_NAME", "")
        records = []

        def keep(result: Result) -> None:
            record = result.to_record()
            journal.append(keys[result.implementation], environment, record)
            records.append(record)

        def keep_further(result: Result) -> None:
            # asv never asks for it, so it counts as delivered at once.
            record = result.to_record()
            clock = (record["figures"] or {}).get("further_clock")
            # A name of its own: the point's is looked for by its beginning.
            key = hashlib.sha256(f"{keys[result.implementation]}/{clock}".encode()).hexdigest()[:32]
            journal.append(key, environment, record)
            journal.take(key)
            records.append(record)

        surroundings = surroundings_of(experiment.backend, protocol.preset, journal)
        log.before_first_call()
        measure_group(
            experiment,
            group,
            protocol,
            provenance,
            on_result=keep,
            on_further=keep_further,
            surroundings=surroundings,
        )
        log.after_last_call()
        bring_into_ledger(journal, records)
        log.after_bookkeeping()


@contextlib.contextmanager
def device_held(preset: str) -> Iterator[None]:
    """Holds this machine's measured device until the process ends, if the preset wants it held.

    Raises:
        PointFailedError: somebody else kept it too long, or there is no place for the lock.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(exclusive(devices_to_lock(preset), until_exit=True))
        except (DeviceBusyError, LockError) as error:
            sys.tracebacklimit = 0
            raise PointFailedError(f"k3bench: {error}") from None
        yield


def bring_into_ledger(journal: RunJournal, records: Sequence[Mapping[str, Any]]) -> None:
    """Ingests records that the journal already holds; a dry run keeps them out."""
    if os.environ.get(DRY_RUN_VARIABLE) == "1":
        return
    try:
        with open_ledger(project_root=journal.project_root) as ledger:
            ingest(ledger, records, manifests=journal.manifests().values())
    except LedgerError as error:
        # The journal has the points; the end of the run, or the next one, tries again.
        print(f"k3bench: the ledger did not take this point yet: {error}", file=sys.stderr)


def required_variable(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise PointFailedError(
            f"{variable} is not set: run the suite with `asv run` in the environment type "
            "'provisioned' (asv.conf.json), which opens a run journal"
        )
    return value


def require_kernels_of_commit() -> None:
    """Refuses to time the working tree's kernels under a commit's name."""
    expected = os.environ.get(KERNELS_VARIABLE)
    if not expected:
        return
    root = Path(expected)
    for room in KERNEL_ROOMS:
        module = sys.modules.get(room)
        if module is None:
            continue
        if module.__file__ is None or not Path(module.__file__).is_relative_to(root):
            raise PointFailedError(
                f"{room} was not imported from commit {os.environ.get('ASV_COMMIT')}: that commit "
                f"has no {room}/, so it has nothing to measure here"
            )


class _OverheadLog:
    """Timestamps around the measurement, for the harness's own benchmark (k3bench overhead)."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.times: dict[str, float] = {}

    @classmethod
    def from_environment(cls) -> "_OverheadLog":
        value = os.environ.get(OVERHEAD_VARIABLE)
        return cls(Path(value) if value else None)

    def before_first_call(self) -> None:
        if self.path:
            self.times["start_to_first_call_s"] = process_age_s()
            self.times["first_call"] = time.monotonic()

    def after_last_call(self) -> None:
        self.times["last_call"] = time.monotonic()

    def after_bookkeeping(self) -> None:
        if self.path:
            self.times["done"] = time.monotonic()
            with self.path.open("a") as stream:
                stream.write(json.dumps(self.times) + "\n")


def process_age_s() -> float:
    """Seconds since this process was started (or forked), to the kernel's clock tick (10 ms)."""
    # After the command name in parentheses, which may itself hold spaces: field 22 is starttime.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def register() -> None:
    """Makes asv know ``device_*``; benchmarks/__init__.py calls it."""
    if DeviceBenchmark not in benchmark_types:
        benchmark_types.append(DeviceBenchmark)
