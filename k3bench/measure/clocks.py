"""Further clocks of a device, read after a point's own: device time on TPU, wall and graph on GPU.

A point's own clock (``Backend.clock``) is what asv gets. Each further clock makes a record of its
own, with ``further_clock`` among its figures, so that no two clocks share a series.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from k3bench.measure.backends.base import Backend
from k3bench.measure.backends.gpu import TorchGpu
from k3bench.measure.backends.tpu import JaxTpu
from k3bench.measure.experiment import Call
from k3bench.measure.interleave import Order, interleave
from k3bench.measure.protocol import Protocol as Counts
from k3bench.measure.result import Correctness
from k3bench.measure.trace import TraceError, durations_by_call, module_runs

CLOCKS_VARIABLE = "K3BENCH_CLOCKS"
Scalar = str | int | float | bool


class ClocksError(ValueError):
    """K3BENCH_CLOCKS says neither own nor all."""


@dataclass(frozen=True)
class Timed:
    """What a further clock read.

    Attributes:
        samples_s: seconds a call, by name, in the order taken.
        refused: name to why this clock has no figure for it.
    """

    samples_s: Mapping[str, tuple[float, ...]]
    refused: Mapping[str, str] = field(default_factory=dict)


class FurtherClock(Protocol):
    """A second way of timing the same calls.

    Attributes:
        name: of the way: ``profiler``, ``wall``, ``graph``.
        clock: whose time it is.
        parameters: added to the record's, where ``clock`` alone would not tell it from the point's.
        notes: figures that say how a sample was taken.
    """

    @property
    def name(self) -> str: ...
    @property
    def clock(self) -> Literal["wall", "device"]: ...
    @property
    def parameters(self) -> Mapping[str, Scalar]: ...
    @property
    def notes(self) -> Mapping[str, Scalar]: ...

    def time_all(
        self,
        calls: Mapping[str, Call],
        checks: Mapping[str, Callable[[Any], Correctness]],
        counts: Counts,
        before_call: Callable[[str], None],
        order: Order,
    ) -> Timed:
        """Times every call ``counts.repeat`` times, taking turns in that order within a round."""


@dataclass
class _Session:
    profile: Any = None


@contextmanager
def _profile_session() -> Iterator[_Session]:
    """Profiles the device alone (no Python, no host events) and leaves the profile."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 0
    found = _Session()
    with tempfile.TemporaryDirectory(prefix="k3bench-profile-") as directory:
        with jax.profiler.trace(directory, profiler_options=options):
            yield found
        files = list(Path(directory).glob("plugins/profile/*/*.xplane.pb"))
        if len(files) != 1:
            raise TraceError(f"the profiler wrote {len(files)} profiles, one is wanted")
        found.profile = jax.profiler.ProfileData.from_file(str(files[0]))


@dataclass(frozen=True)
class TpuProfiler:
    """A TPU's device time: the sum of a call's module runs in a profile of the whole round.

    The modules of one call are learned from a profile of that call alone; in the profile of the
    samples every module must then appear where the order of calls has it.
    """

    name: str = "profiler"
    clock: Literal["wall", "device"] = "device"
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    notes: Mapping[str, Scalar] = field(default_factory=dict)
    # Tests put recorded profiles in place of the profiler.
    session: Callable[[], AbstractContextManager[_Session]] = field(default=_profile_session)

    def time_all(
        self,
        calls: Mapping[str, Call],
        checks: Mapping[str, Callable[[Any], Correctness]],
        counts: Counts,
        before_call: Callable[[str], None],
        order: Order,
    ) -> Timed:
        import jax

        del checks  # the calls are those that were checked
        names = list(calls)
        called: list[str] = []

        def call(name: str) -> None:
            before_call(name)
            jax.block_until_ready(calls[name]())

        try:
            modules = {}
            for name in names:
                with self.session() as alone:
                    call(name)
                modules[name] = tuple(run.name for run in module_runs(alone.profile))
            with self.session() as whole:
                for index in range(counts.repeat):
                    for name in order(names, index):
                        call(name)
                        called.append(name)
            return Timed(durations_by_call(module_runs(whole.profile), called, modules))
        except TraceError as error:
            return Timed({}, dict.fromkeys(names, str(error)))


@dataclass(frozen=True)
class GpuWall:
    """A GPU's wall clock: from the launch on an idle device, caches flushed, to its end."""

    backend: TorchGpu
    name: str = "wall"
    clock: Literal["wall", "device"] = "wall"
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    notes: Mapping[str, Scalar] = field(default_factory=dict)

    def time(self, call: Call) -> float:
        """Seconds of one call by the host's clock."""
        import torch

        self.backend.flush()
        torch.cuda.synchronize()
        start = time.perf_counter()
        outputs = call()
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        del outputs
        return elapsed

    def wait(self, outputs: Any) -> None:
        """As the backend's."""
        self.backend.wait(outputs)

    @property
    def device(self) -> str:
        """As the backend's."""
        return self.backend.device

    @property
    def platform(self) -> str:
        """As the backend's."""
        return self.backend.platform

    def time_all(
        self,
        calls: Mapping[str, Call],
        checks: Mapping[str, Callable[[Any], Correctness]],
        counts: Counts,
        before_call: Callable[[str], None],
        order: Order,
    ) -> Timed:
        del checks
        cold = Counts(counts.preset, warmup=0, repeat=counts.repeat)
        return Timed(interleave(calls, cold, self, order=order, before_call=before_call))


@dataclass(frozen=True)
class GpuGraph:
    """A GPU's time without launches: ``calls_per_graph`` calls captured once, replayed, divided.

    Caches are flushed before a replay, so the first of its calls finds them cold and the others
    what the one before left. What the replayed calls computed is checked; a call that cannot be
    captured, or whose replay is not right, gets no figure.
    """

    backend: TorchGpu
    calls_per_graph: int = 10
    name: str = "graph"
    clock: Literal["wall", "device"] = "device"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """Beside the events around a launch, which are the device's time too."""
        return {"launch": "graph"}

    @property
    def notes(self) -> Mapping[str, Scalar]:
        """How many calls one replay is divided by."""
        return {"calls_per_graph": self.calls_per_graph}

    def time_all(
        self,
        calls: Mapping[str, Call],
        checks: Mapping[str, Callable[[Any], Correctness]],
        counts: Counts,
        before_call: Callable[[str], None],
        order: Order,
    ) -> Timed:
        refused: dict[str, str] = {}
        replays: dict[str, Call] = {}
        for name, call in calls.items():
            try:
                before_call(name)
                graph, outputs = self._captured(call)
                graph.replay()
                self.backend.wait(None)
                verdict = checks[name](outputs)
            except Exception as error:  # a call may be uncapturable in any way
                refused[name] = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
                continue
            if verdict.status == "ok":
                replays[name] = _replay(graph, outputs)
            else:
                refused[name] = f"{verdict.status} when replayed: {verdict.detail}"
        samples = interleave(replays, counts, self.backend, order=order, before_call=before_call)
        return Timed(
            {
                name: tuple(seconds / self.calls_per_graph for seconds in values)
                for name, values in samples.items()
            },
            {name: reason[:200] for name, reason in refused.items()},
        )

    def _captured(self, call: Call) -> tuple[Any, Any]:
        import torch

        # Capture wants a warmed-up call on a stream of its own.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        outputs = None
        with torch.cuda.graph(graph):
            for _ in range(self.calls_per_graph):
                outputs = call()
        return graph, outputs


def _replay(graph: Any, outputs: Any) -> Call:
    """The outputs live in the graph's memory: kept as long as it is replayed."""
    return lambda: (graph.replay(), outputs)


def further_clocks(backend: Backend) -> tuple[FurtherClock, ...]:
    """The clocks that a device has beside its own; a CPU and jax's GPUs have none here."""
    if isinstance(backend, JaxTpu):
        return (TpuProfiler(),)
    if isinstance(backend, TorchGpu):
        return (GpuWall(backend), GpuGraph(backend))
    return ()


def wants_further_clocks(preset: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether further clocks are read: K3BENCH_CLOCKS is ``all``, or unset under ``device``.

    Raises:
        ClocksError: the variable says anything but ``own`` or ``all``.
    """
    environ = os.environ if environ is None else environ
    choice = environ.get(CLOCKS_VARIABLE) or ("all" if preset == "device" else "own")
    if choice not in ("own", "all"):
        raise ClocksError(f"{CLOCKS_VARIABLE}={choice}: use own or all")
    return choice == "all"
