"""Device times from profiles: synthetic ones in the profiler's own format, and a real CPU's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import jax
import pytest
from jax.profiler import ProfileData

from k3bench.measure import Protocol
from k3bench.measure.clocks import TpuProfiler
from k3bench.measure.interleave import round_order
from k3bench.measure.trace import TraceError, durations_by_call, module_runs
from k3bench.runner.ab_worker import side_order


def xspace(planes: dict[str, dict[str, list[tuple[str, float, float]]]]) -> ProfileData:
    """A profile of planes, lines and (name, start us, duration us), as the profiler writes it."""
    texts = []
    for plane, lines in planes.items():
        names = sorted({name for events in lines.values() for name, _, _ in events})
        numbers = {name: number + 1 for number, name in enumerate(names)}
        shown = [
            f'event_metadata {{ key: {number} value {{ id: {number} name: "{name}" }} }}'
            for name, number in numbers.items()
        ]
        for line, events in lines.items():
            inner = " ".join(
                f"events {{ metadata_id: {numbers[name]} offset_ps: {round(start * 1e6)} "
                f"duration_ps: {round(duration * 1e6)} }}"
                for name, start, duration in events
            )
            shown.append(f'lines {{ name: "{line}" timestamp_ns: 0 {inner} }}')
        texts.append(f'planes {{ name: "{plane}" {" ".join(shown)} }}')
    text = "\n".join(texts)
    return ProfileData.from_serialized_xspace(ProfileData.text_proto_to_serialized_xspace(text))


def tpu(modules: list[tuple[str, float, float]]) -> ProfileData:
    """One TPU core as a profile shows it: modules, their ops, and the host beside it."""
    return xspace(
        {
            "/host:CPU": {"python": [("jit_f", 0.0, 900.0)]},
            "/device:TPU:0": {
                "XLA Ops": [("fusion.1", 5.0, 1.0)],
                "XLA Modules": modules,
                "Steps": [("0", 0.0, 900.0)],
            },
            "/device:TPU:1": {"XLA Modules": []},
        }
    )


def test_module_runs_come_in_order_of_time_in_seconds() -> None:
    runs = module_runs(tpu([("jit_g(2)", 30.0, 4.0), ("jit_f(1)", 10.0, 2.5)]))
    assert [run.name for run in runs] == ["jit_f(1)", "jit_g(2)"]
    assert [run.duration_s for run in runs] == pytest.approx([2.5e-6, 4e-6])


def test_a_profile_without_a_tpu_says_which_planes_it_has() -> None:
    with pytest.raises(TraceError, match=r"no run of a module on a TPU .*planes: /host:CPU"):
        module_runs(xspace({"/host:CPU": {"python": [("jit_f", 0.0, 1.0)]}}))


def test_a_real_profile_of_a_cpu_has_no_device_time(tmp_path) -> None:
    with jax.profiler.trace(str(tmp_path)):
        jax.block_until_ready(jax.jit(lambda x: x + 1)(jax.numpy.ones(8)))
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    with pytest.raises(TraceError, match="no run of a module on a TPU"):
        module_runs(ProfileData.from_file(str(file)))


def test_modules_on_two_cores_are_refused() -> None:
    profile = xspace(
        {f"/device:TPU:{core}": {"XLA Modules": [("jit_f(1)", 1.0, 1.0)]} for core in (0, 1)}
    )
    with pytest.raises(TraceError, match="several cores"):
        module_runs(profile)


def test_a_call_of_several_modules_is_their_sum_without_the_gaps() -> None:
    runs = module_runs(tpu([("a", 0.0, 1.0), ("b", 50.0, 2.0), ("c", 90.0, 4.0)]))
    found = durations_by_call(runs, ["two", "one"], {"one": ("c",), "two": ("a", "b")})
    assert found["two"] == pytest.approx((3e-6,))
    assert found["one"] == pytest.approx((4e-6,))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "1 module runs in the profile, 2 were expected"),
        (["a", "a", "b"], "3 module runs"),
        (["b", "a"], "module run 0 is b, expected a of x"),
    ],
)
def test_runs_that_are_not_the_calls_are_refused(names: list[str], message: str) -> None:
    runs = module_runs(tpu([(name, 10.0 * i, 1.0) for i, name in enumerate(names)]))
    with pytest.raises(TraceError, match=message):
        durations_by_call(runs, ["x", "y"], {"x": ("a",), "y": ("b",)})


@dataclass
class RecordingTpu:
    """A device that notes which modules its calls run, and a profiler that shows them."""

    stray: bool = False
    now_us: float = 0.0
    ran: list[tuple[str, float, float]] = field(default_factory=list)

    def call(self, *modules: tuple[str, float]):
        def run() -> list[str]:
            for name, duration in modules:
                self.ran.append((name, self.now_us, duration))
                self.now_us += 100.0
            return []

        return run

    @contextmanager
    def session(self) -> Iterator[SimpleNamespace]:
        self.ran.clear()
        found = SimpleNamespace(profile=None)
        yield found
        if self.stray and len(self.ran) > 2:
            self.ran.append(("jit_stray(9)", self.now_us, 1.0))
        found.profile = tpu(self.ran)


def test_the_profiler_gives_each_implementation_its_own_device_times_in_turns() -> None:
    device = RecordingTpu()
    calls = {
        "one": device.call(("jit_one(1)", 2.0)),
        "two": device.call(("jit_two(2)", 3.0), ("jit_post(3)", 1.0)),
    }
    entered: list[str] = []
    clock = TpuProfiler(session=device.session)
    timed = clock.time_all(calls, {}, Protocol("t", 0, 3), entered.append, round_order)
    assert timed.refused == {}
    assert timed.samples_s["one"] == pytest.approx((2e-6,) * 3)
    assert timed.samples_s["two"] == pytest.approx((4e-6,) * 3)
    # Alone first, to learn the modules; then in turns, the order alternating.
    assert entered == ["one", "two", "one", "two", "two", "one", "one", "two"]
    assert clock.clock == "device"


def test_the_profiler_takes_turns_in_the_order_it_is_given() -> None:
    device = RecordingTpu()
    # As of two commits: the same module's name, and other times.
    calls = {
        "base:x": device.call(("jit_x(1)", 2.0)),
        "head:x": device.call(("jit_x(1)", 3.0)),
        "base:y": device.call(("jit_y(2)", 4.0)),
    }
    entered: list[str] = []
    timed = TpuProfiler(session=device.session).time_all(
        calls, {}, Protocol("t", 0, 2), entered.append, side_order
    )
    assert entered[3:] == ["base:x", "head:x", "base:y", "head:x", "base:x", "base:y"]
    assert timed.samples_s["base:x"] == pytest.approx((2e-6,) * 2)
    assert timed.samples_s["head:x"] == pytest.approx((3e-6,) * 2)


def test_a_stray_module_in_the_profile_gives_no_time_and_a_reason() -> None:
    device = RecordingTpu(stray=True)
    calls = {"one": device.call(("jit_one(1)", 2.0))}
    timed = TpuProfiler(session=device.session).time_all(
        calls, {}, Protocol("t", 0, 3), lambda name: None, round_order
    )
    assert timed.samples_s == {}
    assert timed.refused["one"] == "4 module runs in the profile, 3 were expected"


def test_the_real_profiler_on_a_cpu_gives_a_reason_and_no_time() -> None:
    program = jax.jit(lambda x: x + 1)
    x = jax.numpy.ones(8)
    timed = TpuProfiler().time_all(
        {"one": lambda: program(x)}, {}, Protocol("t", 0, 2), lambda name: None, round_order
    )
    assert timed.samples_s == {}
    assert timed.refused["one"].startswith("no run of a module on a TPU in the profile")
