"""Clocks, power and temperatures as amd-smi or rocm-smi tell them, where sysfs does not."""

from __future__ import annotations

import json
import re
from typing import Any

from manifests.machine import Machine

_MHZ = 1_000_000


def ask_amd_tools_for_state(machine: Machine) -> dict[str, dict[str, Any]]:
    """One reading a device by PCI address (or by its number, where the tool tells no address)."""
    return _ask_amd_smi(machine) or _ask_rocm_smi(machine)


def _ask_amd_smi(machine: Machine) -> dict[str, dict[str, Any]]:
    command = ["amd-smi", "metric", "--clock", "--power", "--temperature", "--json"]
    devices = _listed(_json(machine.run(command)))
    addresses = _addresses(machine) if devices else {}
    found = {}
    for position, device in enumerate(devices):
        index = device.get("gpu", position)
        power = _section(device, "power")
        clocks = _section(device, "clock")
        status = power.get("throttle_status")
        found[addresses.get(index, str(index))] = {
            # gfx_0 to gfx_7 are the XCDs of one board; the slowest sets the pace.
            "core_clock_hz": _slowest_hz(clocks, "gfx_"),
            "memory_clock_hz": _slowest_hz(clocks, "mem_"),
            "power_w": _value(power.get("socket_power"), "W"),
            "temperatures_c": {
                place: _value(shown, "C")
                for place, shown in _section(device, "temperature").items()
                if _value(shown, "C") is not None
            },
            "throttled": status if status == "THROTTLED" else None,
        }
    return found


def _addresses(machine: Machine) -> dict[int, str]:
    """amd-smi's numbers to PCI addresses."""
    devices = _listed(_json(machine.run(["amd-smi", "list", "--json"])))
    return {
        device["gpu"]: device["bdf"].lower()
        for device in devices
        if isinstance(device.get("gpu"), int) and isinstance(device.get("bdf"), str)
    }


def _ask_rocm_smi(machine: Machine) -> dict[str, dict[str, Any]]:
    command = ["rocm-smi", "--showclocks", "--showpower", "--showtemp", "--showbus", "--json"]
    document = _json(machine.run(command))
    found = {}
    for card, shown in document.items() if isinstance(document, dict) else ():
        match = re.fullmatch(r"card(\d+)", card)
        if match is None or not isinstance(shown, dict):
            continue
        power = [
            _number(value)
            for name, value in shown.items()
            if re.fullmatch(r"(Average|Current Socket) Graphics Package Power \(W\)", name)
        ]
        found[str(shown.get("PCI Bus", match.group(1))).lower()] = {
            "core_clock_hz": _megahertz(shown.get("sclk clock speed:")),
            "memory_clock_hz": _megahertz(shown.get("mclk clock speed:")),
            "power_w": next((value for value in power if value is not None), None),
            "temperatures_c": {
                place.group(1): _number(value)
                for name, value in shown.items()
                if (place := re.fullmatch(r"Temperature \(Sensor (.+)\) \(C\)", name))
                and _number(value) is not None
            },
            "throttled": None,
        }
    return found


def _slowest_hz(clocks: dict[str, Any], prefix: str) -> int | None:
    values = [
        value
        for name in clocks
        if name.startswith(prefix)
        and (value := _value(_section(clocks, name).get("clk"), "MHz")) is not None
    ]
    return round(min(values) * _MHZ) if values else None


def _listed(document: Any) -> list[dict[str, Any]]:
    """A list up to ROCm 6, an object around the list from ROCm 7."""
    devices = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(devices, list):
        return []
    return [device for device in devices if isinstance(device, dict)]


def _section(device: dict[str, Any], name: str) -> dict[str, Any]:
    inner = device.get(name)
    return inner if isinstance(inner, dict) else {}


def _value(shown: Any, unit: str) -> float | None:
    """{"value": 133, "unit": "W"}; None for "N/A" and for another unit."""
    if not isinstance(shown, dict) or shown.get("unit") != unit:
        return None
    return _number(shown.get("value"))


def _number(shown: Any) -> float | None:
    try:
        return float(shown)
    except (TypeError, ValueError):
        return None


def _megahertz(shown: Any) -> int | None:
    """rocm-smi writes "(132Mhz)"."""
    match = re.fullmatch(r"\(?(\d+)Mhz\)?", str(shown), re.I)
    return int(match.group(1)) * _MHZ if match else None


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None
