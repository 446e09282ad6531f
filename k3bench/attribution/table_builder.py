"""Sorts decoded events into the columns of the event table, and judges whose they are."""

import math
import re
from array import array
from collections import Counter
from typing import Any, Literal

import msgspec
import numpy as np

from k3bench.attribution.byte_stream import ReadLimits
from k3bench.attribution.composition import SourceFile
from k3bench.attribution.errors import TraceFormatError
from k3bench.attribution.event_scan import RawEvent
from k3bench.attribution.events import (
    ABSENT,
    CPU_OP,
    KERNEL,
    MEMCPY,
    MEMSET,
    DeviceWork,
    Launches,
    Ranges,
    Trace,
    distinct,
)

DeviceSort = Literal["gpu", "cpu"]

_DEVICE_KINDS = {"kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET}
_LAUNCH_CATEGORIES = frozenset(
    ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "driver")
)
# Every call that puts work on a device, or marks a graph's capture. hipGraphLaunch,
# hipModuleLaunchKernel, hipExtModuleLaunchKernel, cudaLaunchKernelExC, cuLaunchKernelEx, ...
_LAUNCH_NAME = re.compile(r"Launch|Memcpy|Memset|(?:Begin|End)Capture")
_MODULE = "nn.Module: "
_INSTANCE = re.compile(r"_\d+$")
# Profiles merged over ranks (sglang's merger, for one) mark every process with its rank.
_RANK_LABEL = re.compile(r"^\s*\[?\s*(?:tp|rank|r)[ _\-:]*0*(\d+)\b", re.IGNORECASE)
_INT64 = 1 << 63
# A trace has a few dozen of each; past this a cache stops growing and a set of ids is refused.
_DISTINCT = 100_000


class _Args(msgspec.Struct, gc=False):
    """The fields of ``args`` that matter. Anything may stand in them, so they are judged later."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    kernel: Any = None
    kind: Any = None
    grid: msgspec.Raw = msgspec.Raw()
    block: msgspec.Raw = msgspec.Raw()
    graph_node: Any = msgspec.field(default=None, name="graph node id")


_ARGS = msgspec.json.Decoder(_Args)
_NO_ARGS = _Args()

_DEVICE_COLUMNS = (
    *("name", "kind", "correlation", "device", "stream", "process", "graph", "grid", "block"),
)
_LAUNCH_COLUMNS = ("name", "correlation", "process", "thread", "kernel")
_RANGE_COLUMNS = ("name", "process", "thread", "module")


class _Rows:
    """A table under construction: a row's integers side by side, its start and duration apart.

    One ``extend`` a row; a column each would be nine calls for every kernel.
    """

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.ints = array("q")
        self.times_us = array("d")

    def __len__(self) -> int:
        return len(self.times_us) // 2

    def arrays(self) -> dict[str, Any]:
        """The columns as arrays of their own, in order of start."""
        times = np.asarray(self.times_us).reshape(-1, 2)
        ints = np.asarray(self.ints).reshape(-1, len(self.columns))
        order = np.argsort(times[:, 0], kind="stable")
        made = {name: ints[order, n] for n, name in enumerate(self.columns)}
        return {**made, "start_us": times[order, 0], "duration_us": times[order, 1]}


class TableBuilder:
    """Takes events in file order; ``build`` makes the trace.

    ``rank`` keeps one rank of a merged trace. ``device="cpu"`` takes the outermost CPU operators
    as the device work, each launched where it ran: for a model that ran on a CPU.
    """

    def __init__(
        self, file_name: str, limits: ReadLimits, rank: int | None, device: DeviceSort
    ) -> None:
        self.file_name = file_name
        self.limits = limits
        self.rank = rank
        self.on_cpu = device == "cpu"
        self.categories: Counter[str] = Counter()
        self._strings: dict[str, int] = {}
        self._name_bytes = 0
        self._threads: dict[tuple[int, int | str], int] = {}
        self._geometries: dict[tuple[int, ...], int] = {}
        self._rank_of: dict[int | str, int | None] = {}
        self._is_launch: dict[str, bool] = {}
        self._class_of: dict[str, str] = {}
        self._geometry_of: dict[bytes, int] = {}
        self._device = _Rows(_DEVICE_COLUMNS)
        self._launches = _Rows(_LAUNCH_COLUMNS)
        self._ranges = _Rows(_RANGE_COLUMNS)

    def add(self, events: list[RawEvent]) -> None:
        """Files one batch; what attribution does not need is only counted."""
        self.categories.update([event.cat for event in events])
        for event in events:
            category = event.cat
            # The order is that of frequency: most of a trace is Python's stack.
            if category == "python_function":
                if event.name.startswith(_MODULE):
                    self._add_range(event, module=True)
            elif category in _DEVICE_KINDS:
                if not self.on_cpu:
                    self._add_device(event, _DEVICE_KINDS[category])
            elif category in _LAUNCH_CATEGORIES:
                if self._launches_work(event.name) and not self.on_cpu:
                    self._add_launch(event)
            elif category == "user_annotation":
                self._add_range(event, module=False)
            elif category == "cpu_op" and self.on_cpu:
                self._add_cpu_op(event)
        kept = len(self._device) + len(self._launches) + len(self._ranges)
        if kept > self.limits.kept_events:
            raise TraceFormatError(
                f"{self.file_name}: more than {self.limits.kept_events:,} kernels, launches and "
                "ranges; profile fewer steps, or raise the limit (--max-events)"
            )

    def build(
        self, source: SourceFile, envelope: dict[str, Any], cut_off: str, notes: tuple[str, ...]
    ) -> Trace:
        """The finished trace, with every table in order of start time."""
        device = DeviceWork(**self._device.arrays())
        launches = Launches(**self._launches.arrays())
        if self.on_cpu:
            device, launches = outermost(device, launches)
        trace = Trace(
            source=source,
            strings=tuple(self._strings),
            geometries=tuple(self._geometries),
            device=device,
            launches=launches,
            ranges=Ranges(**self._ranges.arrays()),
            device_name="CPU" if self.on_cpu else _device_name(envelope, device),
            platform="cpu" if self.on_cpu else _platform(envelope),
            rank=self.rank if self.rank is not None else _stated_rank(envelope),
            base_ns=_integer(envelope.get("baseTimeNanoseconds"), 0),
            cut_off=cut_off,
            categories=self.categories,
            notes=notes,
        )
        self._refuse_merged_ranks(trace)
        return trace

    def _add_range(self, event: RawEvent, *, module: bool) -> None:
        if event.dur is None or not self._wanted(event.pid):
            return
        name = event.name
        if module:
            class_name = self._class_of.get(name)
            if class_name is None:
                class_name = _INSTANCE.sub("", name[len(_MODULE) :])
                self._class_of[name] = class_name
            name = class_name
        process = self._string(str(event.pid))
        thread = self._thread(process, event.tid)
        self._ranges.times_us.extend((event.ts, event.dur))
        self._ranges.ints.extend((self._string(name), process, thread, int(module)))

    def _add_device(self, event: RawEvent, kind: int) -> None:
        if not self._wanted(event.pid):
            return
        args = self._args(event)
        self._device.times_us.extend((event.ts, self._duration(event)))
        self._device.ints.extend(
            (
                self._string(event.name),
                kind,
                self._correlation(event, args),
                _integer(args.device, ABSENT),
                _integer(args.stream, ABSENT),
                self._string(str(event.pid)),
                args.kind == "Dispatch Task" or _integer(args.graph_node, 0) > 0,
                self._geometry(args.grid),
                self._geometry(args.block),
            )
        )

    def _add_launch(self, event: RawEvent) -> None:
        if not self._wanted(event.pid):
            return
        args = self._args(event)
        process = self._string(str(event.pid))
        self._launches.times_us.extend((event.ts, event.dur or 0.0))
        self._launches.ints.extend(
            (
                self._string(event.name),
                self._correlation(event, args),
                process,
                self._thread(process, event.tid),
                self._string(args.kernel) if isinstance(args.kernel, str) else ABSENT,
            )
        )

    def _add_cpu_op(self, event: RawEvent) -> None:
        if not self._wanted(event.pid):
            return
        process = self._string(str(event.pid))
        thread = self._thread(process, event.tid)
        name, times = self._string(event.name), (event.ts, self._duration(event))
        number = len(self._device)
        self._device.times_us.extend(times)
        self._device.ints.extend((name, CPU_OP, number, ABSENT, thread, process, 0, ABSENT, ABSENT))
        self._launches.times_us.extend(times)
        self._launches.ints.extend((name, number, process, thread, name))

    def _wanted(self, pid: int | str) -> bool:
        if pid not in self._rank_of:
            if len(self._rank_of) > _DISTINCT:
                raise TraceFormatError(
                    f"{self.file_name}: more than {_DISTINCT:,} process ids; this is no trace"
                )
            label = _RANK_LABEL.match(pid) if isinstance(pid, str) else None
            self._rank_of[pid] = int(label[1]) if label else None
        return self.rank is None or self._rank_of[pid] in (None, self.rank)

    def _args(self, event: RawEvent) -> _Args:
        if not event.args:
            return _NO_ARGS
        try:
            return _ARGS.decode(event.args)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._bad(event, f"args are not usable: {error}") from None

    def _duration(self, event: RawEvent) -> float:
        if event.dur is None or not 0 <= event.dur < math.inf:
            raise self._bad(event, f"duration {event.dur}: the profiler's clock cannot be trusted")
        return event.dur

    def _correlation(self, event: RawEvent, args: _Args) -> int:
        if args.correlation is None:
            return ABSENT
        value = _integer(args.correlation, None)
        if not isinstance(value, int):
            raise self._bad(event, f"correlation {str(args.correlation)[:40]} is not a 64-bit id")
        return value

    def _geometry(self, text: msgspec.Raw) -> int:
        """The number of a launch geometry, by its JSON: few differ, so few are decoded."""
        key = bytes(text)
        found = self._geometry_of.get(key)
        if found is None:
            found = ABSENT
            value = msgspec.json.decode(key) if key else None
            if isinstance(value, list) and 0 < len(value) <= 3:
                sizes = tuple(_integer(size, ABSENT) for size in value)
                found = self._geometries.setdefault(sizes, len(self._geometries))
            if len(self._geometry_of) < _DISTINCT:
                self._geometry_of[key] = found
        return found

    def _thread(self, process: int, tid: int | str) -> int:
        return self._threads.setdefault((process, tid), len(self._threads))

    def _string(self, text: str) -> int:
        found = self._strings.get(text)
        if found is None:
            self._name_bytes += len(text)
            if self._name_bytes > self.limits.name_bytes:
                raise TraceFormatError(
                    f"{self.file_name}: more than {self.limits.name_bytes:,} bytes of distinct "
                    "names; this is no trace of a model"
                )
            found = self._strings[text] = len(self._strings)
        return found

    def _launches_work(self, name: str) -> bool:
        found = self._is_launch.get(name)
        if found is None:
            found = _LAUNCH_NAME.search(name) is not None
            if len(self._is_launch) < _DISTINCT:
                self._is_launch[name] = found
        return found

    def _bad(self, event: RawEvent, what: str) -> TraceFormatError:
        return TraceFormatError(
            f"{self.file_name}: {event.cat} {event.name[:60]!r} at {event.ts} us: {what}"
        )

    def _refuse_merged_ranks(self, trace: Trace) -> None:
        ranks = sorted({rank for rank in self._rank_of.values() if rank is not None})
        if self.rank is not None and ranks and self.rank not in ranks:
            raise TraceFormatError(
                f"{self.file_name}: no rank {self.rank}; its ranks are {', '.join(map(str, ranks))}"
            )
        if self.rank is None and len(ranks) > 1:
            raise TraceFormatError(
                f"{self.file_name}: {len(ranks)} ranks merged ({', '.join(map(str, ranks[:8]))}"
                f"{', ...' if len(ranks) > 8 else ''}), whose correlation ids collide: choose one "
                "with --rank"
            )
        launched = np.isin(trace.launches.correlation, trace.device.correlation)
        processes = distinct(trace.launches.process[launched])
        if len(processes) > 1:
            raise TraceFormatError(
                f"{self.file_name}: processes {', '.join(trace.strings[p] for p in processes)} all "
                "launched device work, and nothing says which rank is whose: give one rank's trace"
            )
        devices = sorted(set(trace.device.device.tolist()))
        if len(devices) > 1:
            raise TraceFormatError(
                f"{self.file_name}: device work on devices {', '.join(map(str, devices))}: give "
                "the trace of one device"
            )


def outermost(device: DeviceWork, launches: Launches) -> tuple[DeviceWork, Launches]:
    """Of operators that call operators, only the outermost on each thread, so none counts twice."""
    keep = np.zeros(len(device), dtype=bool)
    for thread in distinct(launches.thread):
        rows = np.flatnonzero(launches.thread == thread)
        # Of two that start together the longer is the caller.
        rows = rows[np.lexsort((-launches.duration_us[rows], launches.start_us[rows]))]
        ends = launches.start_us[rows] + launches.duration_us[rows]
        reached = np.concatenate(([-math.inf], np.maximum.accumulate(ends)[:-1]))
        keep[rows[launches.start_us[rows] >= reached]] = True
    # Both tables hold one row an operator and were sorted alike.
    return (
        DeviceWork(**{name: column[keep] for name, column in vars(device).items()}),
        Launches(**{name: column[keep] for name, column in vars(launches).items()}),
    )


def _integer(value: Any, otherwise: Any) -> Any:
    """``value`` as a 64-bit integer, or ``otherwise``; booleans and fractions are none."""
    if type(value) is int and -_INT64 <= value < _INT64:
        return value
    if isinstance(value, str):
        try:
            value = int(value, 0) if len(value) < 24 else None
        except ValueError:
            return otherwise
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -_INT64 <= value < _INT64:
        return otherwise
    return value


def _device_name(envelope: dict[str, Any], device: DeviceWork) -> str:
    """The device's name by its index, where the envelope lists device properties."""
    listed = envelope.get("deviceProperties")
    known = {
        _integer(entry.get("id"), ABSENT): entry["name"]
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    }
    used = device.device[:1].tolist()
    name = known.get(used[0]) if used else None
    # Ranks that see one device number it 0 and trace it by its host's number.
    return name or (next(iter(known.values())) if len(set(known.values())) == 1 else "unknown")


def _platform(envelope: dict[str, Any]) -> str:
    if any(key.startswith(("roctracer", "rocprofiler", "hip_")) for key in envelope):
        return "rocm"
    if any(key.startswith(("cupti", "cuda_")) for key in envelope):
        return "cuda"
    return "unknown"


def _stated_rank(envelope: dict[str, Any]) -> int | None:
    stated = envelope.get("distributedInfo")
    rank = _integer(stated.get("rank"), None) if isinstance(stated, dict) else None
    return rank if isinstance(rank, int) else None
