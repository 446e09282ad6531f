"""TPUs, AMD and NVIDIA devices: what is plugged in, which driver and firmware run it, its clocks.

The kernel's own files come first; a vendor's program is asked only where its devices are present,
for what the kernel does not show. Each vendor's reader returns (stable facts, volatile readings).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from manifests.amd import read_amd
from manifests.machine import Machine
from manifests.nvidia import read_nvidia

_GOOGLE = 0x1AE0
# PCI device ids of TPU chips, as jax 0.10.2 tells them apart.
_TPU_GENERATIONS = {
    0x0027: "tpu-v3",
    0x005E: "tpu-v4",
    0x0062: "tpu-v5p",
    0x0063: "tpu-v5e",
    0x006F: "tpu-v6e",
    0x0076: "tpu-7x",
}
# Starting the TPU runtime takes seconds; it hangs where another process holds the chip.
_TPU_RUNTIME_TIMEOUT_S = 60.0
# Its answer comes at once or, where it looks for what is not there, after minutes.
_TPU_METRIC_TIMEOUT_S = 3.0
_THROTTLE_SCORE = """
from libtpu.sdk import tpumonitoring
scores = tpumonitoring.get_metric("tpu_throttle_score").data()
print("k3bench-throttle:" + ",".join(str(score) for score in scores))
"""
_DEVICE_KIND = """
import jax
kinds = {device.device_kind for device in jax.devices() if device.platform == "tpu"}
print("k3bench-kinds:" + ",".join(sorted(kinds)))
"""


def read_accelerators(
    machine: Machine, ask_tpu_runtime: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Stable facts and volatile readings, each by vendor: "tpu", "amd", "nvidia"."""
    amd, amd_now = read_amd(machine)
    nvidia, nvidia_now = read_nvidia(machine)
    return (
        {"tpu": read_tpu(machine, ask_tpu_runtime), "amd": amd, "nvidia": nvidia},
        {"amd": amd_now, "nvidia": nvidia_now},
    )


def read_tpu(machine: Machine, ask_tpu_runtime: bool = True) -> dict[str, Any]:
    """TPU chips on the PCI bus and their device nodes.

    `device_kind` is what the TPU runtime calls the chip. It is asked in a process of its own, and
    only where a chip is present; None where it was not to be asked or did not answer (a chip in
    use elsewhere).
    """
    chips = []
    for path in machine.glob("/sys/bus/pci/devices/*"):
        device = machine.number(path / "device")
        if machine.number(path / "vendor") != _GOOGLE or device not in _TPU_GENERATIONS:
            continue
        chips.append(
            {
                "generation": _TPU_GENERATIONS[device],
                "pci_device": f"{device:#06x}",
                "pci_revision": machine.text(path / "revision"),
                "driver": _link_name(path / "driver"),
                "driver_version": machine.text(path / "driver/module/version"),
                "pci_address": path.name,
            }
        )
    accel_nodes = len(machine.glob("/dev/accel[0-9]*")) + len(machine.glob("/dev/accel/accel*"))
    return {
        "devices": chips,
        "accel_nodes": accel_nodes,
        "vfio_groups": len(machine.glob("/dev/vfio/[0-9]*")),
        "device_kind": (
            _device_kind(machine) if ask_tpu_runtime and (chips or accel_nodes) else None
        ),
    }


def read_tpu_throttling(machine: Machine) -> str | None:
    """libtpu's throttle score where it is not 0, e.g. "score 3"; None if it is, or nobody answers.

    The runtime of the process that uses the chip answers, on a port of this host. A TPU tells
    neither clock nor power nor temperature.
    """
    output = machine.run([sys.executable, "-c", _THROTTLE_SCORE], timeout_s=_TPU_METRIC_TIMEOUT_S)
    match = re.search(r"^k3bench-throttle:(.*)$", output or "", re.M)
    # One entry a chip, whose last number is the score.
    entries = match.group(1).split(",") if match else []
    scores = [int(numbers[-1]) for entry in entries if (numbers := re.findall(r"\d+", entry))]
    return f"score {max(scores)}" if any(scores) else None


def _device_kind(machine: Machine) -> str | None:
    output = machine.run([sys.executable, "-c", _DEVICE_KIND], timeout_s=_TPU_RUNTIME_TIMEOUT_S)
    match = re.search(r"^k3bench-kinds:(.+)$", output or "", re.M)
    return match.group(1) if match else None


def _link_name(link: Path) -> str | None:
    try:
        return link.readlink().name
    except OSError:
        return None
