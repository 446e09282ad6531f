"""NVIDIA accelerators, from nvidia-smi's XML report.

XML and not --query-gpu: one field name that a driver does not know makes such a query fail whole,
while an absent element is just absent.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from manifests.machine import Machine

_NVIDIA = 0x10DE
_DISPLAY_CLASS = 0x03


def read_nvidia(machine: Machine) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Stable facts, and one volatile reading a device in the same order.

    `pci_count` counts the devices on the bus, so that a device whose driver is broken still shows.
    """
    report = machine.run(["nvidia-smi", "-q", "-x"])
    try:
        log = ElementTree.fromstring(report) if report else ElementTree.Element("none")
    except ElementTree.ParseError:
        log = ElementTree.Element("none")
    gpus = log.findall("gpu")
    kernel_module = machine.text("/proc/driver/nvidia/version") or ""
    shown = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", kernel_module)
    return (
        {
            "driver_version": _text(log, "driver_version") or (shown.group(1) if shown else None),
            "driver_cuda_version": _text(log, "cuda_version"),
            "pci_count": _pci_count(machine),
            "devices": [_device(gpu) for gpu in gpus],
        },
        [_reading(gpu) for gpu in gpus],
    )


def _device(gpu: ElementTree.Element) -> dict[str, Any]:
    return {
        "name": _text(gpu, "product_name"),
        "vbios": _text(gpu, "vbios_version"),
        "memory_bytes": _quantity(gpu, "MiB", 1 << 20, "fb_memory_usage/total"),
        "persistence_mode": _text(gpu, "persistence_mode"),
        "compute_mode": _text(gpu, "compute_mode"),
        "mig_mode": _text(gpu, "mig_mode/current_mig"),
        "ecc_mode": _text(gpu, "ecc_mode/current_ecc"),
        "power_limit_w": _quantity(
            gpu,
            "W",
            1,
            "gpu_power_readings/current_power_limit",
            "power_readings/enforced_power_limit",
            "power_readings/power_limit",
        ),
        "max_core_clock_hz": _quantity(gpu, "MHz", 10**6, "max_clocks/sm_clock"),
        "max_memory_clock_hz": _quantity(gpu, "MHz", 10**6, "max_clocks/mem_clock"),
        "application_core_clock_hz": _quantity(
            gpu, "MHz", 10**6, "applications_clocks/graphics_clock"
        ),
        "application_memory_clock_hz": _quantity(
            gpu, "MHz", 10**6, "applications_clocks/mem_clock"
        ),
        "uuid": _text(gpu, "uuid"),
        "pci_address": _text(gpu, "pci/pci_bus_id"),
    }


def _reading(gpu: ElementTree.Element) -> dict[str, Any]:
    return {
        "core_clock_hz": _quantity(gpu, "MHz", 10**6, "clocks/sm_clock"),
        "memory_clock_hz": _quantity(gpu, "MHz", 10**6, "clocks/mem_clock"),
        "power_w": _quantity(
            gpu,
            "W",
            1,
            "gpu_power_readings/instant_power_draw",
            "gpu_power_readings/power_draw",
            "gpu_power_readings/average_power_draw",
            "power_readings/power_draw",
        ),
        "temperature_c": _quantity(gpu, "C", 1, "temperature/gpu_temp"),
        "busy_percent": _quantity(gpu, "%", 1, "utilization/gpu_util"),
        "memory_used_bytes": _quantity(gpu, "MiB", 1 << 20, "fb_memory_usage/used"),
    }


def _text(element: ElementTree.Element, *paths: str) -> str | None:
    """The first readable of several places; nvidia-smi writes "N/A" for what it cannot tell."""
    for path in paths:
        text = (element.findtext(path) or "").strip()
        if text and text not in ("N/A", "[N/A]", "Requested functionality has been deprecated"):
            return text
    return None


def _quantity(
    element: ElementTree.Element, unit: str, scale: int, *paths: str
) -> int | float | None:
    """A number with its unit, e.g. "1980 MHz", times `scale`; None where the unit is another."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(\S+)", _text(element, *paths) or "")
    if match is None or match[2] != unit:
        return None
    return float(match[1]) * scale if "." in match[1] else int(match[1]) * scale


def _pci_count(machine: Machine) -> int:
    return sum(
        machine.number(path / "vendor") == _NVIDIA
        and (machine.number(path / "class") or 0) >> 16 == _DISPLAY_CLASS
        for path in machine.glob("/sys/bus/pci/devices/*")
    )
