"""The machine around a point: clocks, power, heat and neighbours, before and after its samples.

What is read becomes figures of the record, in SI units; ``unstable`` says in words what should not
have happened. Nothing is guessed: what cannot be read is not there.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from manifests.accelerators import read_tpu_throttling
from manifests.amd import read_amd_state
from manifests.cpu import read_cpu_clocks
from manifests.machine import Machine
from manifests.nvidia import read_nvidia

Scalar = str | int | float | bool

# Shares of all CPU time between begin and end. A neighbour that takes a tenth moves a median by
# more than the 3% that a gate looks for; stolen time is never the measured program's own doing.
OTHERS_SHARE = 0.10
STOLEN_SHARE = 0.02
# The clock under load before and after: fixed clocks stay within one step of their table.
CLOCK_MOVED = 0.05
# Below this much CPU time (all cores together) the kernel's 10 ms ticks say nothing about shares.
LEAST_CPU_S = 0.5


@dataclass(frozen=True)
class DeviceState:
    """One device at one moment; None is what the device or its driver does not tell.

    Attributes:
        throttled: what holds its clock down, in the vendor's words; None where nothing does or
            nobody says.
    """

    core_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: str | None = None

    def figures(self, when: str) -> dict[str, Scalar]:
        """As figures of a record: ``core_clock_before_hz`` and so on."""
        named = {
            f"core_clock_{when}_hz": self.core_clock_hz,
            f"memory_clock_{when}_hz": self.memory_clock_hz,
            f"power_{when}_w": self.power_w,
            f"temperature_{when}_c": self.temperature_c,
            f"throttled_{when}": self.throttled,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds since boot, all cores together, and of this process alone."""

    total_s: float
    busy_s: float
    stolen_s: float
    own_s: float
    throttle_events: int | None


@dataclass(frozen=True)
class DeviceReader:
    """How a device's state is had.

    Attributes:
        read: its state now.
        quick: whether reading takes less than a device needs to leave its working clock: only then
            is it read between warm-up and samples, and only then do two clocks compare.
    """

    read: Callable[[], DeviceState]
    quick: bool


@dataclass
class MachineWatch:
    """Watches the host and one device around the samples of one point.

    Args:
        machine: what is read.
        device: how the device is read; None on a CPU.
        own_cpu_s: CPU seconds of the process that measures.
    """

    machine: Machine = field(default_factory=Machine)
    device: DeviceReader | None = None
    own_cpu_s: Callable[[], float] = lambda: sum(os.times()[:4])
    _before: DeviceState | None = None
    _times: CpuTimes | None = None
    _seen: dict[str, Scalar] = field(default_factory=dict)

    def begin(self) -> None:
        """Before the warm-up: a slow reader's device, and the host's load."""
        self._seen = _host_figures(self.machine, "before")
        if self.device is not None and not self.device.quick:
            self._before = self.device.read()

    def warm(self) -> None:
        """Before the first sample: a quick reader's device at its working clock, CPU times."""
        if self.device is not None and self.device.quick:
            self._before = self.device.read()
        self._times = read_cpu_times(self.machine, self.own_cpu_s())

    def end(self) -> Mapping[str, Scalar]:
        """After the last sample: everything again, and what was not steady."""
        times = read_cpu_times(self.machine, self.own_cpu_s())
        after = self.device.read() if self.device is not None else None
        seen = dict(self._seen) | _host_figures(self.machine, "after")
        for when, state in (("before", self._before), ("after", after)):
            seen |= state.figures(when) if state is not None else {}
        shares = cpu_shares(self._times, times)
        seen |= shares
        quick = self.device is not None and self.device.quick
        reasons = unsteady(self._before, after, shares, self._times, times, compare_clocks=quick)
        if reasons:
            seen["unstable"] = "; ".join(reasons)
        return seen


def unsteady(
    before: DeviceState | None,
    after: DeviceState | None,
    shares: Mapping[str, float],
    times_before: CpuTimes | None,
    times_after: CpuTimes | None,
    *,
    compare_clocks: bool,
) -> list[str]:
    """What should not have happened while a point was measured, in words; empty if nothing did."""
    reasons = []
    for state in (before, after):
        if state is not None and state.throttled:
            reasons.append(f"the device was throttled ({state.throttled})")
            break
    if compare_clocks and before and after and before.core_clock_hz and after.core_clock_hz:
        moved = after.core_clock_hz / before.core_clock_hz - 1
        if abs(moved) > CLOCK_MOVED:
            reasons.append(f"the core clock moved by {moved:+.0%}: fix it")
    if shares.get("cpu_others_share", 0.0) > OTHERS_SHARE:
        reasons.append(f"others used {shares['cpu_others_share']:.0%} of the CPU")
    if shares.get("cpu_stolen_share", 0.0) > STOLEN_SHARE:
        reasons.append(f"the hypervisor took {shares['cpu_stolen_share']:.0%} of the CPU")
    events = [times.throttle_events for times in (times_before, times_after) if times is not None]
    if len(events) == 2 and None not in events and events[0] != events[1]:
        reasons.append("the CPU was throttled by heat")
    return reasons


def cpu_shares(before: CpuTimes | None, after: CpuTimes | None) -> dict[str, float]:
    """Shares of all CPU time that others used and that the hypervisor took.

    Empty where too little time passed for the kernel's ticks, or nothing could be read.
    """
    if before is None or after is None or after.total_s - before.total_s < LEAST_CPU_S:
        return {}
    total = after.total_s - before.total_s
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return {
        "cpu_others_share": round(min(max(others / total, 0.0), 1.0), 4),
        "cpu_stolen_share": round(max((after.stolen_s - before.stolen_s) / total, 0.0), 4),
    }


def read_cpu_times(machine: Machine, own_s: float) -> CpuTimes | None:
    """The kernel's account of CPU time; None where it cannot be read."""
    first = (machine.text("/proc/stat") or "").partition("\n")[0].split()
    if len(first) < 9 or first[0] != "cpu":
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    # user nice system idle iowait irq softirq steal; guests are in user and nice already.
    user, nice, system, idle, iowait, irq, softirq, steal = (int(x) / ticks for x in first[1:9])
    busy = user + nice + system + irq + softirq
    counters = machine.glob("/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count")
    events = [machine.number(path) for path in counters]
    counted = [event for event in events if event is not None]
    return CpuTimes(
        busy + idle + iowait + steal, busy, steal, own_s, sum(counted) if counted else None
    )


def _host_figures(machine: Machine, when: str) -> dict[str, Scalar]:
    """Load, the fastest core's clock, the hottest zone and, once, the governors."""
    found: dict[str, Scalar] = {}
    load = (machine.text("/proc/loadavg") or "").partition(" ")[0]
    if re.fullmatch(r"[\d.]+", load):
        found[f"load_1min_{when}"] = float(load)
    clock = read_cpu_clocks(machine)["max_hz"]
    if clock is not None:
        found[f"cpu_clock_{when}_hz"] = clock
    zones = [machine.number(path) for path in machine.glob("/sys/class/thermal/thermal_zone*/temp")]
    heat = [zone / 1000 for zone in zones if zone is not None]
    if heat:
        found[f"cpu_temperature_{when}_c"] = max(heat)
    if when == "before":
        paths = machine.glob("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
        governors = sorted({text for path in paths if (text := machine.text(path))})
        if governors:
            found["cpu_governor"] = " ".join(governors)
    return found


def device_reader(
    platform: str, machine: Machine | None = None, address: str | None = None
) -> DeviceReader | None:
    """How the device of a measuring process is read; None for a CPU or where nothing can be.

    Args:
        platform: the backend's: ``cpu``, ``tpu``, ``rocm``, ``cuda``, ``gpu``.
        machine: what is read.
        address: the device's PCI address, where the runtime tells it; without one a host's only
            device is meant, and none of several.
    """
    machine = machine or Machine()
    if platform == "tpu":
        return DeviceReader(lambda: DeviceState(throttled=read_tpu_throttling(machine)), False)
    if platform == "rocm":
        states, quick = read_amd_state(machine)
        if _chosen(states, address) is None:
            return None
        return DeviceReader(lambda: _device_state(read_amd_state(machine)[0], address), quick)
    if platform == "cuda":
        # nvidia-smi takes half a second and more: long enough for a GPU to idle.
        if _chosen(_nvidia(machine), address) is None:
            return None
        return DeviceReader(lambda: _device_state(_nvidia(machine), address), False)
    return None


def torch_address() -> str | None:
    """The PCI address of torch's first GPU; None where this torch does not tell it."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    parts = [getattr(properties, name, None) for name in names]
    known = [part for part in parts if isinstance(part, int)]
    return "{:04x}:{:02x}:{:02x}.0".format(*known) if len(known) == len(parts) else None


def _nvidia(machine: Machine) -> dict[str, dict[str, Any]]:
    facts, readings = read_nvidia(machine)
    return {
        # Eight digits of domain in nvidia-smi, four in the kernel.
        str(device["pci_address"] or index).lower().removeprefix("0000"): reading
        for index, (device, reading) in enumerate(zip(facts["devices"], readings, strict=True))
    }


def _chosen(states: Mapping[str, Mapping[str, Any]], address: str | None) -> str | None:
    if address is not None and address in states:
        return address
    return next(iter(states)) if len(states) == 1 else None


def _device_state(states: Mapping[str, Mapping[str, Any]], address: str | None) -> DeviceState:
    chosen = _chosen(states, address)
    if chosen is None:
        print("k3bench: the device's state cannot be read any more", file=sys.stderr)
        return DeviceState()
    reading = states[chosen]
    heat = [value for value in (reading.get("temperatures_c") or {}).values() if value is not None]
    return DeviceState(
        core_clock_hz=reading.get("core_clock_hz"),
        memory_clock_hz=reading.get("memory_clock_hz"),
        power_w=reading.get("power_w"),
        temperature_c=max(heat) if heat else reading.get("temperature_c"),
        throttled=reading.get("throttled"),
    )
