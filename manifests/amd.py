"""AMD accelerators, from amdgpu's sysfs files and the KFD topology; names from amd-smi or rocm-smi.

`devices` are the boards; `compute_nodes` are what HIP enumerates. The two differ where a board is
partitioned: one MI355X in CPX mode is one device with eight compute nodes of 32 CUs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from manifests.amd_tools import ask_amd_tools_for_state
from manifests.machine import Machine, key_values

_AMD = 0x1002


def read_amd(machine: Machine) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Stable facts, and one volatile reading a device in the same order."""
    paths = [
        path / "device"
        for path in machine.glob("/sys/class/drm/card*")
        # Not card0-DP-1, and only boards with a compute or display function of AMD's.
        if re.fullmatch(r"card\d+", path.name) and machine.number(path / "device/vendor") == _AMD
    ]
    names, tool_driver = _ask_tools(machine) if paths else ({}, None)
    return (
        {
            "driver_version": machine.text("/sys/module/amdgpu/version") or tool_driver,
            # A driver that ships with the kernel has no version, but a digest of its source.
            "driver_source": machine.text("/sys/module/amdgpu/srcversion"),
            "devices": [_device(machine, path, names) for path in paths],
            "compute_nodes": _compute_nodes(machine),
        },
        [_reading(machine, path) for path in paths],
    )


def read_amd_state(machine: Machine) -> tuple[dict[str, dict[str, Any]], bool]:
    """Clocks, power and temperatures of every AMD board now, by PCI address, and whether quickly.

    From sysfs in milliseconds (True). Where the driver shows neither clock nor power there, as in a
    container without /sys of the host, amd-smi or rocm-smi is asked, which takes a second (False);
    amd-smi also says whether the clock is held down.
    """
    found = {}
    for card in machine.glob("/sys/class/drm/card*"):
        path = card / "device"
        if not re.fullmatch(r"card\d+", card.name) or machine.number(path / "vendor") != _AMD:
            continue
        uevent = key_values(machine.text(path / "uevent"), "=")
        found[uevent.get("PCI_SLOT_NAME", card.name).lower()] = _reading(machine, path)
    if any(state["core_clock_hz"] or state["power_w"] for state in found.values()):
        return found, True
    return ask_amd_tools_for_state(machine), False


def _device(machine: Machine, path: Path, names: dict[str, str]) -> dict[str, Any]:
    uevent = key_values(machine.text(path / "uevent"), "=")
    address = uevent.get("PCI_SLOT_NAME", "").lower() or None
    return {
        "name": machine.text(path / "product_name") or names.get(address or ""),
        "pci_device": machine.text(path / "device"),
        "pci_revision": machine.text(path / "revision"),
        "pci_subsystem": machine.text(path / "subsystem_device"),
        "vram_bytes": machine.number(path / "mem_info_vram_total"),
        "vbios": machine.text(path / "vbios_version"),
        "firmware": {
            file.name.removesuffix("_fw_version"): machine.text(file)
            for file in sorted((path / "fw_version").glob("*_fw_version"))
        },
        "compute_partition": machine.text(path / "current_compute_partition"),
        "memory_partition": machine.text(path / "current_memory_partition"),
        "performance_level": machine.text(path / "power_dpm_force_performance_level"),
        "core_clocks": _clock_levels(machine.text(path / "pp_dpm_sclk")),
        "memory_clocks": _clock_levels(machine.text(path / "pp_dpm_mclk")),
        "power_cap_w": _scaled(_sensor(machine, path, "power1_cap"), 1e6),
        "unique_id": machine.text(path / "unique_id"),
        "pci_address": address,
    }


def _reading(machine: Machine, path: Path) -> dict[str, Any]:
    power = _sensor(machine, path, "power1_average")
    if power is None:
        power = _sensor(machine, path, "power1_input")
    return {
        "core_clock_hz": _sensor(machine, path, "freq1_input"),
        "memory_clock_hz": _sensor(machine, path, "freq2_input"),
        "power_w": _scaled(power, 1e6),
        "temperatures_c": {
            (machine.text(file.with_name(file.name.replace("_input", "_label"))) or file.name): (
                _scaled(machine.number(file), 1e3)
            )
            for file in sorted(path.glob("hwmon/hwmon*/temp*_input"))
        },
        "busy_percent": machine.number(path / "gpu_busy_percent"),
        "vram_used_bytes": machine.number(path / "mem_info_vram_used"),
    }


def _compute_nodes(machine: Machine) -> list[dict[str, Any]]:
    nodes = []
    for path in machine.glob("/sys/class/kfd/kfd/topology/nodes/*"):
        shown = key_values(machine.text(path / "properties"), " ")
        properties = {name: int(value) for name, value in shown.items() if value.isdigit()}
        # Nodes without SIMDs are the host's processors.
        if not properties.get("simd_count"):
            continue
        per_cu = properties.get("simd_per_cu")
        nodes.append(
            {
                "target": _target(properties.get("gfx_target_version")),
                "compute_units": properties["simd_count"] // per_cu if per_cu else None,
                "xccs": properties.get("num_xcc"),
                "wavefront_size": properties.get("wave_front_size"),
                "lds_bytes": _kibibytes(properties.get("lds_size_in_kb")),
                "max_engine_clock_hz": _megahertz(properties.get("max_engine_clk_fcompute")),
            }
        )
    return nodes


def _target(version: int | None) -> str | None:
    """The compiler's name of a target: 90500 is gfx950, 90010 is gfx90a, 110000 is gfx1100."""
    if version is None:
        return None
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def _clock_levels(text: str | None) -> str | None:
    """The selectable levels in MHz, e.g. "132 2400"; which one is current is left out."""
    return " ".join(re.findall(r"^\d+:\s*(\d+)Mhz", text or "", re.M | re.I)) or None


def _sensor(machine: Machine, path: Path, name: str) -> int | None:
    values = [machine.number(file) for file in sorted(path.glob(f"hwmon/hwmon*/{name}"))]
    return next((value for value in values if value is not None), None)


def _ask_tools(machine: Machine) -> tuple[dict[str, str], str | None]:
    """Market names by PCI address, and the driver's version, from whichever tool answers."""
    return _ask_amd_smi(machine) or _ask_rocm_smi(machine) or ({}, None)


def _ask_amd_smi(machine: Machine) -> tuple[dict[str, str], str | None] | None:
    document = _json(machine.run(["amd-smi", "static", "--asic", "--bus", "--driver", "--json"]))
    # A list up to ROCm 6, an object around the list from ROCm 7.
    devices = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(devices, list):
        return None
    names: dict[str, str] = {}
    driver = None
    for device in devices:
        address, name = _entry(device, "bus", "bdf"), _entry(device, "asic", "market_name")
        if address and name:
            names[address.lower()] = name
        driver = driver or _entry(device, "driver", "version")
    return names, driver


def _ask_rocm_smi(machine: Machine) -> tuple[dict[str, str], str | None] | None:
    document = _json(
        machine.run(["rocm-smi", "--showproductname", "--showbus", "--showdriverversion", "--json"])
    )
    if not isinstance(document, dict):
        return None
    names: dict[str, str] = {}
    for card in document:
        address = _entry(document, card, "PCI Bus")
        name = _entry(document, card, "Card Series") or _entry(document, card, "Card series")
        if address and name:
            names[address.lower()] = name
    return names, _entry(document, "system", "Driver version")


def _entry(document: Any, section: str, key: str) -> str | None:
    """A text two levels down; both tools write "N/A" for what they cannot tell."""
    inner = document.get(section) if isinstance(document, dict) else None
    value = inner.get(key) if isinstance(inner, dict) else None
    return value if isinstance(value, str) and value not in ("", "N/A") else None


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _scaled(value: int | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _kibibytes(value: int | None) -> int | None:
    return None if value is None else value * 1024


def _megahertz(value: int | None) -> int | None:
    return None if value is None else value * 1_000_000
