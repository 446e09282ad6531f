"""Wall time and graph replay on a recording torch, and how further clocks become records."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from measure.fakes import ScriptedBackend, experiment

from k3bench.measure import Correctness, Protocol, Result, measure_group
from k3bench.measure.backends.cpu import JaxCpu, TorchCpu
from k3bench.measure.backends.gpu import TorchGpu
from k3bench.measure.backends.tpu import JaxTpu
from k3bench.measure.clocks import (
    ClocksError,
    GpuGraph,
    GpuWall,
    Timed,
    further_clocks,
    wants_further_clocks,
)
from k3bench.measure.floor import measure_floor
from k3bench.measure.interleave import Order, round_order
from k3bench.measure.point import Provenance, Surroundings, Turn, measure_turns
from k3bench.runner.ab_worker import side_order

OK = Correctness("ok")


class FakeCuda:
    """torch.cuda whose clock is what its kernels were told to cost; launches cost extra."""

    LAUNCH_S = 0.010

    def __init__(self) -> None:
        self.now_s = 0.0
        self.capturing: list[float] | None = None
        self.log: list[str] = []
        self.failing: str | None = None

    def kernel(self, name: str, seconds: float, outputs: Any = None):
        """A call that launches one kernel of that cost."""

        def call() -> Any:
            if self.capturing is not None:
                if name == self.failing:
                    raise RuntimeError("operation not permitted when stream is capturing\nmore")
                self.capturing.append(seconds)
            else:
                self.now_s += self.LAUNCH_S + seconds
            self.log.append(f"call {name}")
            return outputs

        return call

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at_s = 0.0

            def record(self) -> None:
                self.at_s = fake.now_s

            def elapsed_time(self, end: "Event") -> float:
                return (end.at_s - self.at_s) * 1e3

        class Graph:
            kernels: list[float]

            def replay(self) -> None:
                fake.log.append("replay")
                fake.now_s += fake.LAUNCH_S + sum(self.kernels)

        class Capture:
            def __init__(self, graph: Graph) -> None:
                self.graph = graph

            def __enter__(self) -> None:
                fake.capturing = []

            def __exit__(self, *_: object) -> None:
                self.graph.kernels = fake.capturing or []
                fake.capturing = None

        stream = SimpleNamespace(wait_stream=lambda other: None)

        class OnStream:
            def __init__(self, stream: Any) -> None: ...
            def __enter__(self) -> None: ...
            def __exit__(self, *_: object) -> None: ...

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", Capture)
        monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
        monkeypatch.setattr(torch.cuda, "stream", OnStream)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: self.log.append("sync"))
        scratch = SimpleNamespace(zero_=lambda: self.log.append("flush"))
        monkeypatch.setattr(torch, "empty", lambda *a, **k: scratch)
        monkeypatch.setattr("k3bench.measure.clocks.time.perf_counter", lambda: self.now_s)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    fake.install(monkeypatch)
    return fake


def gpu() -> TorchGpu:
    """A fresh one each time: it keeps the buffer that flushes its caches."""
    return TorchGpu("mi355x", "rocm", 1 << 20)


def time_all(
    clock: Any,
    calls: dict[str, Any],
    checks: dict[str, Any] | None = None,
    order: Order = round_order,
    before_call: Callable[[str], None] = lambda name: None,
) -> Timed:
    checks = checks or {name: lambda outputs: OK for name in calls}
    return clock.time_all(calls, checks, Protocol("t", 1, 2), before_call, order)


def test_a_graph_s_time_is_the_replay_s_over_its_calls_and_holds_one_launch(
    cuda: FakeCuda,
) -> None:
    timed = time_all(GpuGraph(gpu(), calls_per_graph=10), {"a": cuda.kernel("a", 0.002)})
    # Ten kernels and one launch between the events: (0.010 + 10 x 0.002) / 10.
    assert timed.samples_s["a"] == pytest.approx((0.003, 0.003))
    assert timed.refused == {}


def test_each_replay_starts_with_flushed_caches_and_implementations_take_turns(
    cuda: FakeCuda,
) -> None:
    calls = {name: cuda.kernel(name, 0.001) for name in "ab"}
    time_all(GpuGraph(gpu(), calls_per_graph=2), calls)
    tail = [entry for entry in cuda.log if not entry.startswith("call")][-12:]
    assert tail == ["flush", "sync", "replay", "sync"] * 2 + ["flush", "sync", "replay", "sync"]


def test_a_call_that_cannot_be_captured_gets_a_reason_and_the_others_a_time(
    cuda: FakeCuda,
) -> None:
    cuda.failing = "bad"
    calls = {name: cuda.kernel(name, 0.001) for name in ("good", "bad")}
    timed = time_all(GpuGraph(gpu()), calls)
    assert list(timed.samples_s) == ["good"]
    assert timed.refused["bad"] == (
        "RuntimeError: operation not permitted when stream is capturing"
    )


def test_a_replay_that_computes_something_else_gets_no_time(cuda: FakeCuda) -> None:
    wrong = Correctness("wrong", 0.5, 1e-3, "oracle", "o: 0.5 from oracle")
    calls = {"a": cuda.kernel("a", 0.001, outputs="stale")}
    timed = time_all(GpuGraph(gpu()), calls, {"a": lambda outputs: wrong})
    assert timed.samples_s == {}
    assert timed.refused["a"] == "wrong when replayed: o: 0.5 from oracle"


def test_wall_time_holds_the_launch_and_not_the_flush(cuda: FakeCuda) -> None:
    timed = time_all(GpuWall(gpu()), {"a": cuda.kernel("a", 0.002)})
    assert timed.samples_s["a"] == pytest.approx((0.012, 0.012))
    assert cuda.log == ["flush", "sync", "call a", "sync"] * 2


@pytest.mark.parametrize(
    ("clock", "before"),
    # A graph's calls are captured one by one, and it warms up for a round.
    [(GpuWall, []), (GpuGraph, ["base:x", "head:x", "base:y", "base:x", "head:x", "base:y"])],
    ids=["wall", "graph"],
)
def test_a_gpu_s_clocks_take_turns_in_the_order_they_are_given(
    cuda: FakeCuda, clock: Any, before: list[str]
) -> None:
    calls = {name: cuda.kernel(name, 0.001) for name in ("base:x", "head:x", "base:y")}
    entered: list[str] = []
    timed = time_all(clock(gpu()), calls, order=side_order, before_call=entered.append)
    assert entered == [*before, "base:x", "head:x", "base:y", "head:x", "base:x", "base:y"]
    assert {len(values) for values in timed.samples_s.values()} == {2}


@pytest.mark.parametrize(
    ("backend", "names"),
    [
        (JaxTpu("tpu-v6e"), ["profiler"]),
        (gpu(), ["wall", "graph"]),
        (JaxCpu(), []),
        (TorchCpu(), []),
    ],
)
def test_which_clocks_a_device_has_beside_its_own(backend: Any, names: list[str]) -> None:
    assert [clock.name for clock in further_clocks(backend)] == names


@pytest.mark.parametrize(
    ("preset", "variable", "wanted"),
    [
        ("device", "", True), ("ladder", "", False), ("smoke", "all", True),
        ("device", "own", False), ("quick", "", False),
    ],
)  # fmt: skip
def test_further_clocks_are_the_device_preset_s_unless_asked_for(
    preset: str, variable: str, wanted: bool
) -> None:
    assert wants_further_clocks(preset, {"K3BENCH_CLOCKS": variable}) is wanted


def test_a_choice_of_clocks_that_is_none_is_refused() -> None:
    with pytest.raises(ClocksError, match="K3BENCH_CLOCKS=both: use own or all"):
        wants_further_clocks("device", {"K3BENCH_CLOCKS": "both"})


class ScriptedClock:
    """A further clock that is half as slow, and refuses one implementation."""

    name = "graph"
    clock = "device"
    parameters = {"launch": "graph"}  # noqa: RUF012
    notes = {"calls_per_graph": 10}  # noqa: RUF012

    def __init__(self) -> None:
        self.orders: list[Order] = []

    def time_all(
        self, calls: Any, checks: Any, counts: Any, before_call: Any, order: Order
    ) -> Timed:
        assert set(checks) == set(calls)
        self.orders.append(order)
        samples = {name: (call()[1] / 2,) * 3 for name, call in calls.items() if name != "shy"}
        return Timed(samples, {"shy": "RuntimeError: no capture"} if "shy" in calls else {})


def test_a_further_clock_makes_a_record_of_its_own_before_the_point_s() -> None:
    order: list[tuple[str, str, str]] = []

    def note(kind: str):
        return lambda r: order.append((kind, r.implementation, r.clock))

    further: list[Result] = []
    point = experiment(
        ScriptedBackend(), seconds={"a": 2.0, "shy": 1.0, "bad": 1.0}, wrong=frozenset({"bad"})
    )
    results = measure_group(
        point,
        ["a", "shy", "bad"],
        Protocol("smoke", 1, 4),
        Provenance("b.device_x", {"S": 8}, "f" * 64, "c" * 40, "run-1"),
        on_result=note("own"),
        on_further=lambda result: (further.append(result), note("further")(result)),
        surroundings=Surroundings(clocks=(ScriptedClock(),), figures={"dispatch_floor_s": 1e-4}),
    )
    assert order == [
        ("further", "a", "device"), ("own", "a", "wall"), ("own", "shy", "wall"),
        ("own", "bad", "wall"),
    ]  # fmt: skip
    (record,) = [result.to_record() for result in further]
    own, shy, bad = [result.to_record() for result in results]
    assert record["parameters"] == {"S": 8, "launch": "graph"}
    assert own["parameters"] == {"S": 8}
    assert record["median_s"] == 1.0 and record["tokens_per_s"] == 100.0
    assert record["figures"] == {"further_clock": "graph", "calls_per_graph": 10}
    assert record["id"] != own["id"]
    assert own["figures"] == {"dispatch_floor_s": 1e-4}
    assert shy["figures"] == {"no_graph": "RuntimeError: no capture", "dispatch_floor_s": 1e-4}
    assert bad["figures"] is None and bad["n"] == 0


def test_a_further_clock_is_given_the_order_of_the_point_s_own() -> None:
    clock = ScriptedClock()
    point = experiment(ScriptedBackend(), seconds={"a": 2.0})
    given = Provenance("b.device_x", {"S": 8}, "f" * 64, "c" * 40, "run-1")
    around = Surroundings(clocks=(clock,))
    measure_group(point, ["a"], Protocol("smoke", 1, 4), given, surroundings=around)
    turns = {f"{side}:a": Turn("a", point, given) for side in ("base", "head")}
    measure_turns(turns, Protocol("smoke", 1, 4), surroundings=around, order=side_order)
    assert clock.orders == [round_order, side_order]


@pytest.mark.parametrize("backend", [JaxCpu(), TorchCpu()])
def test_the_dispatch_floor_has_all_its_samples_and_is_no_kernel_s_time(backend: Any) -> None:
    floor = measure_floor(backend)
    assert len(floor.samples_s) == 100
    assert floor.summary.median_s is not None and 0 < floor.summary.median_s < 0.05
    assert floor.to_json()["device"] == "cpu" and floor.call


def test_the_floor_of_a_gpu_is_an_addition_between_events(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = cuda.kernel("add", 1e-6)
    monkeypatch.setattr(torch, "zeros", lambda *a, **k: SimpleNamespace(add_=lambda one: add()))
    floor = measure_floor(gpu())
    assert floor.clock == "device"
    assert floor.summary.median_s == pytest.approx(FakeCuda.LAUNCH_S + 1e-6)
