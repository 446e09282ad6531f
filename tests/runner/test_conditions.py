"""The machine around a point: what is read, what becomes a figure, and what counts as unsteady."""

import json
import shutil
from pathlib import Path

import pytest
from fake_machines import FakeMachine

from k3bench.runner.conditions import (
    CpuTimes,
    DeviceReader,
    DeviceState,
    MachineWatch,
    cpu_shares,
    device_reader,
    unsteady,
)


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def stat(busy: int, idle: int, steal: int = 0) -> str:
    return f"cpu {busy} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0"


CARD = "/sys/class/drm/card0/device"


def amd_card(fake: FakeMachine, clock_hz: int, power_uw: int) -> None:
    fake.write(CARD, vendor="0x1002", uevent="PCI_SLOT_NAME=0000:05:00.0")
    fake.write(
        f"{CARD}/hwmon/hwmon4", freq1_input=clock_hz, freq2_input=2000000000,
        power1_input=power_uw, temp1_input=61000, temp1_label="junction", temp2_input=40000,
    )  # fmt: skip


def test_an_mi355x_is_read_before_and_after_and_a_moving_clock_is_said(fake: FakeMachine) -> None:
    amd_card(fake, 2_400_000_000, 900_000_000)
    fake.file("/proc/stat", stat(100, 1000))
    reader = device_reader("rocm", fake.machine(), "0000:05:00.0")
    assert reader is not None and reader.quick
    watch = MachineWatch(fake.machine(), reader)
    watch.begin()
    watch.warm()
    amd_card(fake, 2_100_000_000, 1_300_000_000)
    seen = watch.end()
    assert seen["core_clock_before_hz"] == 2_400_000_000
    assert seen["core_clock_after_hz"] == 2_100_000_000
    assert seen["memory_clock_after_hz"] == 2_000_000_000
    assert (seen["power_before_w"], seen["power_after_w"]) == (900.0, 1300.0)
    assert seen["temperature_after_c"] == 61.0
    assert seen["unstable"] == "the core clock moved by -12%: fix it"


AMD_SMI = [
    {
        "gpu": 0,
        "power": {"socket_power": {"value": 1200, "unit": "W"}, "throttle_status": "THROTTLED"},
        "clock": {
            "gfx_0": {"clk": {"value": 2100, "unit": "MHz"}, "min_clk": "N/A"},
            "gfx_1": {"clk": {"value": 2000, "unit": "MHz"}},
            "mem_0": {"clk": {"value": 2000, "unit": "MHz"}},
            "vclk_0": {"clk": "N/A"},
        },
        "temperature": {
            "edge": "N/A",
            "hotspot": {"value": 88, "unit": "C"},
            "mem": {"value": 60, "unit": "C"},
        },
    },
    {"gpu": 1, "power": "N/A", "clock": "N/A", "temperature": "N/A"},
]


@pytest.mark.parametrize("wrapped", [False, True], ids=["rocm6", "rocm7"])
def test_without_sysfs_amd_smi_is_asked_and_the_slowest_die_counts(
    fake: FakeMachine, wrapped: bool
) -> None:
    listed = [{"gpu": n, "bdf": f"0000:{n + 5:02X}:00.0"} for n in (0, 1)]
    for name, document in (("metric", AMD_SMI), ("list", listed)):
        shown = {"gpu_data": document} if wrapped else document
        (fake.bin / f"{name}.json").write_text(json.dumps(shown))
    fake.tool("amd-smi", f'{shutil.which("cat")} "{fake.bin}/$1.json"')
    reader = device_reader("rocm", fake.machine(), "0000:05:00.0")
    assert reader is not None and not reader.quick
    assert reader.read() == DeviceState(2_000_000_000, 2_000_000_000, 1200.0, 88.0, "THROTTLED")
    # Two boards and no address: which one is measured cannot be known.
    assert device_reader("rocm", fake.machine()) is None


def test_rocm_smi_answers_where_amd_smi_does_not(fake: FakeMachine) -> None:
    card = {
        "PCI Bus": "0000:05:00.0", "sclk clock speed:": "(1090Mhz)", "sclk clock level:": "1",
        "mclk clock speed:": "(900Mhz)", "Current Socket Graphics Package Power (W)": "128.0",
        "Temperature (Sensor junction) (C)": "36.0", "Temperature (Sensor memory) (C)": "N/A",
    }  # fmt: skip
    fake.prints("rocm-smi", json.dumps({"card0": card, "system": {"Driver version": "6.8"}}))
    reader = device_reader("rocm", fake.machine())
    assert reader is not None
    assert reader.read() == DeviceState(1_090_000_000, 900_000_000, 128.0, 36.0, None)


def test_a_tool_that_prints_no_json_is_no_reading(fake: FakeMachine) -> None:
    fake.prints("amd-smi", "ERROR: driver not loaded")
    assert device_reader("rocm", fake.machine()) is None


@pytest.mark.parametrize(
    ("output", "throttled"),
    [
        ("k3bench-throttle:0", None),
        ("k3bench-throttle:0,3", "score 3"),
        ("k3bench-throttle:chip1: 2", "score 2"),
        ("k3bench-throttle:", None),
        ("no metric", None),
    ],
)
def test_a_tpu_tells_its_throttle_score_alone(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch, output: str, throttled: str | None
) -> None:
    fake.prints("python", output)
    monkeypatch.setattr("manifests.accelerators.sys.executable", "python")
    reader = device_reader("tpu", fake.machine())
    assert reader is not None and reader.read() == DeviceState(throttled=throttled)


def test_a_cpu_has_no_device_to_read(fake: FakeMachine) -> None:
    assert device_reader("cpu", fake.machine()) is None


def test_the_host_s_load_clock_heat_and_governors_are_figures(fake: FakeMachine) -> None:
    fake.file("/proc/loadavg", "1.25 0.5 0.25 1/200 99")
    fake.write("/sys/devices/system/cpu/cpu0/cpufreq", scaling_cur_freq=3000000)
    fake.write("/sys/devices/system/cpu/cpu0/cpufreq", scaling_governor="powersave")
    fake.write("/sys/devices/system/cpu/cpu1/cpufreq", scaling_governor="performance")
    fake.write("/sys/class/thermal/thermal_zone0", temp=61000)
    fake.file("/proc/stat", stat(0, 0))
    own = iter([1.0, 1.5])
    watch = MachineWatch(fake.machine(), own_cpu_s=lambda: next(own))
    watch.begin()
    watch.warm()
    # Ten seconds of CPU time: 3 busy, of which this process had half a second; 0.5 stolen.
    fake.file("/proc/stat", stat(300, 650, 50))
    assert watch.end() == {
        "load_1min_before": 1.25, "cpu_clock_before_hz": 3_000_000_000,
        "cpu_temperature_before_c": 61.0, "cpu_governor": "performance powersave",
        "load_1min_after": 1.25, "cpu_clock_after_hz": 3_000_000_000,
        "cpu_temperature_after_c": 61.0, "cpu_others_share": 0.25, "cpu_stolen_share": 0.05,
        "unstable": "others used 25% of the CPU; the hypervisor took 5% of the CPU",
    }  # fmt: skip


def test_a_machine_that_shows_nothing_gives_no_figures(fake: FakeMachine) -> None:
    watch = MachineWatch(fake.machine())
    watch.begin()
    watch.warm()
    assert watch.end() == {}


def times(total: float, busy: float, own: float, events: int | None = None) -> CpuTimes:
    return CpuTimes(total, busy, 0.0, own, events)


def test_too_little_time_says_nothing_about_shares() -> None:
    assert cpu_shares(times(10.0, 5.0, 1.0), times(10.2, 5.2, 1.0)) == {}
    assert cpu_shares(None, times(10.0, 5.0, 1.0)) == {}


def test_a_process_s_own_work_is_nobody_s_disturbance() -> None:
    shares = cpu_shares(times(0.0, 0.0, 0.0), times(10.0, 5.0, 5.1))
    assert shares == {"cpu_others_share": 0.0, "cpu_stolen_share": 0.0}
    assert unsteady(None, None, shares, None, None, compare_clocks=False) == []


@pytest.mark.parametrize(
    ("before", "after", "quick", "reasons"),
    [
        (DeviceState(2.4e9), DeviceState(2.3e9), True, 0),
        (DeviceState(2.4e9), DeviceState(2.2e9), True, 1),
        # A slow reader saw the device idle before: no rule can be made of that.
        (DeviceState(1.3e8), DeviceState(2.2e9), False, 0),
        (DeviceState(), DeviceState(throttled="THROTTLED"), True, 1),
        (DeviceState(throttled="a"), DeviceState(throttled="b"), True, 1),
        (DeviceState(), DeviceState(2.2e9), True, 0),
    ],
)
def test_what_a_device_may_not_do_while_it_is_measured(
    before: DeviceState, after: DeviceState, quick: bool, reasons: int
) -> None:
    found = unsteady(before, after, {}, None, None, compare_clocks=quick)
    assert len(found) == reasons


def test_heat_that_throttled_the_cpu_is_said() -> None:
    events = (times(0, 0, 0, 3), times(9, 0, 0, 4))
    assert unsteady(None, None, {}, *events, compare_clocks=False) == [
        "the CPU was throttled by heat"
    ]


def test_a_slow_reader_is_asked_before_the_warm_up_and_a_quick_one_after_it() -> None:
    for quick, where in ((False, "begin"), (True, "warm")):
        log: list[str] = []

        def read(log: list[str] = log) -> DeviceState:
            log.append("read")
            return DeviceState()

        watch = MachineWatch(device=DeviceReader(read, quick))
        watch.begin()
        log.append("begun")
        watch.warm()
        log.append("warm")
        watch.end()
        wanted = {"begin": ["read", "begun", "warm"], "warm": ["begun", "read", "warm"]}[where]
        assert log == [*wanted, "read"]


def test_this_machine_can_be_watched() -> None:
    watch = MachineWatch()
    watch.begin()
    watch.warm()
    assert "load_1min_before" in watch.end()
