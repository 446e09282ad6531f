"""Host, operating system, limits and memory: what surrounds the process that measures."""

from __future__ import annotations

import os
import platform
import re
from pathlib import PurePosixPath
from typing import Any

from manifests.machine import Machine, key_values, selected

_GIB = 1 << 30
# cgroup 1 says "no limit" by a number close to 2**63 that depends on the page size.
_V1_NO_LIMIT = 1 << 62


def read_host(machine: Machine) -> dict[str, Any]:
    """Name, OS, kernel, container. K3BENCH_HOST names a host whose own name should not leave."""
    release = {
        key: value.strip("\"'")
        for key, value in key_values(machine.text("/etc/os-release"), "=").items()
    }
    libc_name, libc_version = platform.libc_ver()
    return {
        "name": machine.environ.get("K3BENCH_HOST") or platform.node() or None,
        "system": platform.system() or None,
        "os": release.get("ID"),
        "os_version": release.get("VERSION_ID"),
        "kernel": machine.text("/proc/sys/kernel/osrelease"),
        "architecture": platform.machine() or None,
        "libc": f"{libc_name} {libc_version}".strip() or None,
        "container": _container(machine),
        "product": machine.text("/sys/class/dmi/id/product_name"),
        "address_randomisation": machine.number("/proc/sys/kernel/randomize_va_space"),
    }


def _container(machine: Machine) -> str | None:
    """The kind of container, by the marks each leaves; None where no mark is seen."""
    if machine.path("/.dockerenv").exists():
        return "docker"
    if machine.path("/run/.containerenv").exists():
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in machine.environ:
        return "kubernetes"
    named = machine.environ.get("container") or machine.text("/run/systemd/container")
    if named and re.fullmatch(r"[a-z][a-z0-9-]{0,30}", named):
        return named
    groups = machine.text("/proc/1/cgroup") or ""
    match = re.search(r"docker|kubepods|lxc|libpod|containerd", groups)
    return match.group(0) if match else None


def read_limits(machine: Machine) -> dict[str, Any]:
    """What the control groups allow: cores of CPU time, bytes of memory.

    "max" means that no limit is set, None that it could not be read. The tightest limit on the way
    from this process's group up to the root counts.
    """
    groups = _control_groups(machine)
    base = "/sys/fs/cgroup"
    if "" in groups and machine.path(f"{base}/cgroup.controllers").exists():
        paths = _upwards(groups[""])
        quotas = [_v2_quota(_v2_limit(machine, path, "cpu.max", "max 100000")) for path in paths]
        memory = [_v2_bytes(_v2_limit(machine, path, "memory.max", "max")) for path in paths]
        return {"cgroup": 2, "cpu_cores": _tightest(quotas), "memory_bytes": _tightest(memory)}
    if "cpu" in groups or "memory" in groups:
        quotas = [
            _v1_quota(
                machine.number(f"{base}/cpu{path}/cpu.cfs_quota_us"),
                machine.number(f"{base}/cpu{path}/cpu.cfs_period_us"),
            )
            for path in _upwards(groups.get("cpu", "/"))
        ]
        memory = [
            _v1_bytes(machine.number(f"{base}/memory{path}/memory.limit_in_bytes"))
            for path in _upwards(groups.get("memory", "/"))
        ]
        return {"cgroup": 1, "cpu_cores": _tightest(quotas), "memory_bytes": _tightest(memory)}
    return {"cgroup": None, "cpu_cores": None, "memory_bytes": None}


def _control_groups(machine: Machine) -> dict[str, str]:
    """Controller to group path; the unified hierarchy has the empty name."""
    groups: dict[str, str] = {}
    for line in (machine.text("/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            groups.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return groups


def _upwards(group: str) -> list[str]:
    """A group's path and those above it; the root is the empty string."""
    path = PurePosixPath(group)
    return [str(step).rstrip("/") for step in (path, *path.parents)]


def _v2_limit(machine: Machine, group: str, name: str, unlimited: str) -> str | None:
    text = machine.text(f"/sys/fs/cgroup{group}/{name}")
    # The true root group has no limit files; a container's root, which looks the same, has them.
    return unlimited if text is None and group == "" else text


def _v2_quota(text: str | None) -> float | str | None:
    match = re.fullmatch(r"(max|\d+) (\d+)", text or "")
    if match is None or int(match[2]) == 0:
        return None
    return "max" if match[1] == "max" else int(match[1]) / int(match[2])


def _v2_bytes(text: str | None) -> float | str | None:
    if text == "max":
        return text
    return int(text) if text is not None and text.isdigit() else None


def _v1_quota(quota: int | None, period: int | None) -> float | str | None:
    if quota is None or not period:
        return None
    return "max" if quota < 0 else quota / period


def _v1_bytes(limit: int | None) -> float | str | None:
    return "max" if limit is not None and limit >= _V1_NO_LIMIT else limit


def _tightest(limits: list[float | str | None]) -> float | str | None:
    """The smallest number; "max" where every readable level is unlimited; None where none is."""
    numbers = [limit for limit in limits if isinstance(limit, int | float)]
    return min(numbers) if numbers else ("max" if "max" in limits else None)


def read_memory(machine: Machine) -> dict[str, Any]:
    """Memory and how it is paged.

    The total is rounded to whole GiB: kernels reserve some megabytes more or less from boot to
    boot, which says nothing about the machine.
    """
    total = _kilobytes(machine, "MemTotal")
    nodes = {}
    for node in machine.glob("/sys/devices/system/node/node*"):
        if re.fullmatch(r"node\d+", node.name):
            nodes[node.name] = machine.text(node / "cpulist")
    return {
        "total_gib": None if total is None else round(total / _GIB),
        "numa_nodes": nodes,
        "numa_balancing": machine.number("/proc/sys/kernel/numa_balancing"),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "transparent_hugepages": selected(
            machine.text("/sys/kernel/mm/transparent_hugepage/enabled")
        ),
        "swappiness": machine.number("/proc/sys/vm/swappiness"),
    }


def read_load(machine: Machine) -> dict[str, Any]:
    """How busy the machine is right now: load averages, runnable tasks, memory in use."""
    match = re.match(r"([\d.]+) ([\d.]+) ([\d.]+) (\d+)/(\d+)", machine.text("/proc/loadavg") or "")
    loads = [float(match[i]) for i in (1, 2, 3)] if match else [None, None, None]
    uptime = (machine.text("/proc/uptime") or "").partition(" ")[0]
    swap_total, swap_free = _kilobytes(machine, "SwapTotal"), _kilobytes(machine, "SwapFree")
    return {
        "load_1min": loads[0],
        "load_5min": loads[1],
        "load_15min": loads[2],
        "runnable_tasks": int(match[4]) if match else None,
        "tasks": int(match[5]) if match else None,
        "uptime_s": float(uptime) if uptime else None,
        "memory_free_bytes": _kilobytes(machine, "MemFree"),
        "memory_available_bytes": _kilobytes(machine, "MemAvailable"),
        "swap_used_bytes": (
            None if swap_total is None or swap_free is None else swap_total - swap_free
        ),
    }


def read_temperatures(machine: Machine) -> dict[str, float | None]:
    """Thermal zones of the board in degrees Celsius, by zone number and type."""
    zones: dict[str, float | None] = {}
    for zone in machine.glob("/sys/class/thermal/thermal_zone*"):
        reading = machine.number(zone / "temp")
        name = f"{zone.name.removeprefix('thermal_zone')} {machine.text(zone / 'type') or 'zone'}"
        zones[name] = None if reading is None else reading / 1000
    return zones


def _kilobytes(machine: Machine, field: str) -> int | None:
    """A field of /proc/meminfo (which counts in KiB), in bytes."""
    match = re.fullmatch(r"(\d+) kB", key_values(machine.text("/proc/meminfo"), ":").get(field, ""))
    return int(match[1]) * 1024 if match else None
