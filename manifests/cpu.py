"""What the processor is and how it is allowed to run: model, topology, caches, clock policy."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from manifests.machine import Machine, cpu_list, key_values, parse_cpu_list

_CPUS = "/sys/devices/system/cpu"
_KHZ = 1000

# The instruction sets that a matrix kernel's code path is chosen by (oneDNN, XLA:CPU, OpenBLAS).
_ISA = re.compile(r"sse4_2|avx\w*|fma|f16c|amx\w*|asimd\w*|bf16|i8mm|sve\w*|sme\w*")


def read_cpu(machine: Machine) -> dict[str, Any]:
    """The stable facts about the processor; a field that cannot be read is None."""
    info = key_values(machine.text("/proc/cpuinfo"), ":")
    flags = sorted((info.get("flags") or info.get("Features") or "").split())
    packages, cores, threads = _topology(machine)
    return {
        "model": info.get("model name") or info.get("CPU part"),
        "vendor": info.get("vendor_id") or info.get("CPU implementer"),
        "family": info.get("cpu family") or info.get("CPU architecture"),
        "model_number": info.get("model") or info.get("CPU variant"),
        "stepping": info.get("stepping") or info.get("CPU revision"),
        "microcode": info.get("microcode"),
        "sockets": packages,
        "cores": cores,
        "threads": threads,
        "smt_active": _flag(machine, f"{_CPUS}/smt/active"),
        "isa": " ".join(flag for flag in flags if _ISA.fullmatch(flag)) if flags else None,
        "flags_sha256": hashlib.sha256(" ".join(flags).encode()).hexdigest() if flags else None,
        "hypervisor": "hypervisor" in flags if flags else None,
        "caches": _caches(machine),
        "clock_policy": _clock_policy(machine),
        "isolated": machine.text(f"{_CPUS}/isolated"),
        # Kernels print an unset mask as "(null)".
        "nohz_full": (machine.text(f"{_CPUS}/nohz_full") or "").replace("(null)", "") or None,
        "vulnerabilities": {
            path.name: machine.text(path) for path in machine.glob(f"{_CPUS}/vulnerabilities/*")
        },
    }


def read_cpu_clocks(machine: Machine) -> dict[str, Any]:
    """The slowest and fastest current core clock in Hz: volatile, and None where not shown."""
    hertz = _cpufreq_hz(machine, "scaling_cur_freq")
    if not hertz:
        shown = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", machine.text("/proc/cpuinfo") or "", re.M)
        hertz = [round(float(value) * 1_000_000) for value in shown]
    return {"min_hz": min(hertz, default=None), "max_hz": max(hertz, default=None)}


def _topology(machine: Machine) -> tuple[int | None, int | None, int | None]:
    online = machine.text(f"{_CPUS}/online")
    if online is None:
        return None, None, None
    cpus = parse_cpu_list(online)
    packages: set[int] = set()
    cores: set[tuple[int, str]] = set()
    for cpu in cpus:
        topology = f"{_CPUS}/cpu{cpu}/topology"
        package = machine.number(f"{topology}/physical_package_id")
        # thread_siblings_list names a core uniquely; core_id repeats across dies.
        siblings = machine.text(f"{topology}/thread_siblings_list")
        if package is None or siblings is None:
            return None, None, len(cpus)
        packages.add(package)
        cores.add((package, siblings))
    return len(packages), len(cores), len(cpus)


def _caches(machine: Machine) -> dict[str, Any]:
    caches: dict[str, Any] = {}
    for index in machine.glob(f"{_CPUS}/cpu0/cache/index*"):
        level = machine.number(index / "level")
        kind = machine.text(index / "type")
        if level is None or kind is None:
            continue
        shared = machine.text(index / "shared_cpu_list")
        name = f"L{level}{ {'Data': 'd', 'Instruction': 'i'}.get(kind, '') }"
        caches[name] = {
            "size_bytes": _size_bytes(machine.text(index / "size")),
            "shared_by_threads": None if shared is None else len(parse_cpu_list(shared)),
        }
    return caches


def _size_bytes(text: str | None) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)", text or "")
    if match is None:
        return None
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def _clock_policy(machine: Machine) -> dict[str, Any]:
    """What may move the clock. Differing cores are shown as every distinct value, once."""

    def distinct(name: str) -> str | None:
        values = {machine.text(path) for path in machine.glob(f"{_CPUS}/cpu*/cpufreq/{name}")}
        return " ".join(sorted(value for value in values if value)) or None

    no_turbo = _flag(machine, f"{_CPUS}/intel_pstate/no_turbo")
    turbo = _flag(machine, f"{_CPUS}/cpufreq/boost") if no_turbo is None else not no_turbo
    return {
        "governor": distinct("scaling_governor"),
        "driver": distinct("scaling_driver"),
        "energy_preference": distinct("energy_performance_preference"),
        "turbo": turbo,
        "min_hz": min(_cpufreq_hz(machine, "scaling_min_freq"), default=None),
        "max_hz": max(_cpufreq_hz(machine, "scaling_max_freq"), default=None),
        "package_power_limits_w": _power_limits(machine),
    }


def _cpufreq_hz(machine: Machine, name: str) -> list[int]:
    """One cpufreq file of every CPU (they count in kHz), in Hz; unreadable ones are left out."""
    values = [machine.number(path) for path in machine.glob(f"{_CPUS}/cpu*/cpufreq/{name}")]
    return [value * _KHZ for value in values if value is not None]


def _power_limits(machine: Machine) -> str | None:
    """The sustained limit of each package in watts, as RAPL shows it, e.g. "225 225"."""
    limits = [
        machine.number(path / "constraint_0_power_limit_uw")
        for path in machine.glob("/sys/class/powercap/*-rapl:*")
        if re.fullmatch(r"package-\d+", machine.text(path / "name") or "")
    ]
    return " ".join(f"{limit / 1e6:g}" for limit in limits if limit is not None) or None


def _flag(machine: Machine, name: str | Path) -> bool | None:
    return {"0": False, "1": True}.get(machine.text(name) or "")


def usable_cpus(affinity: set[int]) -> dict[str, Any]:
    """The CPUs that this process may run on, as Linux lists them, and how many they are."""
    return {"cpus": cpu_list(affinity), "count": len(affinity)}
