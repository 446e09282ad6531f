"""Checks of the machine: devices and whether they can be used, and what would disturb a clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil

from k3bench.doctor.report import Check

_GIB = 1 << 30
# One core in four busy with something else moves a median by more than the changes we look for.
_BUSY_PER_CPU = 0.25
_LITTLE_MEMORY_BYTES = 4 * _GIB
_NO_DISK_BYTES = 1 * _GIB
# A full run, the dataset and one TPU compiler dump (1.3 GB) fit into this.
_LITTLE_DISK_BYTES = 5 * _GIB


def check_tpu(environment: dict[str, Any], jax_answer: dict[str, Any]) -> Check:
    """A TPU that is plugged in is the one jax uses."""
    tpu = environment["accelerators"]["tpu"]
    count = len(tpu["devices"]) or tpu["accel_nodes"]
    if not count:
        mend = "none needed; on a TPU VM, install the extra: pip install -e '.[tpu]'"
        return Check("tpu", "missing", "no chip on the PCI bus, no /dev/accel*", mend)
    kinds = sorted({chip["generation"] for chip in tpu["devices"]}) or ["tpu"]
    found = f"{count} x {', '.join(kinds)}"
    if jax_answer.get("platform") == "tpu":
        return Check("tpu", "ok", found, needed=True)
    platforms = environment["variables"].get("JAX_PLATFORMS")
    if platforms and "tpu" not in platforms:
        mend = f"JAX_PLATFORMS={platforms} leaves the TPU out: unset it"
    else:
        mend = "end the process that holds the chip, and check that libtpu is installed"
    return Check("tpu", "broken", f"{found}, but jax does not reach it", mend, needed=True)


def check_amd(
    environment: dict[str, Any], torch_answer: dict[str, Any], kfd: Path = Path("/dev/kfd")
) -> Check:
    """An AMD accelerator that is plugged in is the one torch uses."""
    amd = environment["accelerators"]["amd"]
    if not amd["devices"] and not amd["compute_nodes"]:
        mend = "none needed; on a ROCm host, load the amdgpu driver and install torch for ROCm"
        return Check("amd", "missing", "no AMD accelerator", mend)
    targets = sorted({node["target"] or "unknown" for node in amd["compute_nodes"]})
    modes = sorted({d["compute_partition"] for d in amd["devices"] if d["compute_partition"]})
    nodes = f"{len(amd['compute_nodes'])} compute nodes ({', '.join(targets)})"
    found = f"{len(amd['devices'])} devices, {nodes}" + (f" in {', '.join(modes)}" if modes else "")
    if torch_answer.get("platform") == "rocm":
        return Check("amd", "ok", found, needed=True)
    if not kfd.exists():
        mend = "load the amdgpu driver; in a container pass --device=/dev/kfd --device=/dev/dri"
    elif not os.access(kfd, os.R_OK | os.W_OK):
        mend = "add yourself to the groups render and video: /dev/kfd is not yours to open"
    elif not torch_answer.get("hip"):
        mend = "install torch's ROCm build: this one was built without HIP"
    else:
        mend = "check HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, then `rocminfo`"
    return Check("amd", "broken", f"{found}, but torch does not reach it", mend, needed=True)


def check_nvidia(environment: dict[str, Any], torch_answer: dict[str, Any]) -> Check:
    """NVIDIA devices are none of this suite's targets, but its torch kernels run on them."""
    nvidia = environment["accelerators"]["nvidia"]
    names = sorted({device["name"] or "unnamed" for device in nvidia["devices"]})
    count = len(nvidia["devices"]) or nvidia["pci_count"]
    if not count:
        return Check("nvidia", "missing", "no NVIDIA device", "none needed")
    found = f"{count} x {', '.join(names) or 'a device whose driver does not answer'}"
    if torch_answer.get("platform") == "cuda":
        return Check("nvidia", "ok", found)
    mend = "install torch's CUDA build to measure it" if names else "see `nvidia-smi`"
    return Check("nvidia", "warning", f"{found}, not used by torch", mend)


def check_clock(environment: dict[str, Any]) -> Check:
    """Whether the processor's clock stays where it is while something is timed."""
    cpu = environment["cpu"]
    policy = cpu["clock_policy"]
    governor, turbo = policy["governor"], policy["turbo"]
    shown = {True: "on", False: "off", None: "not readable"}[turbo]
    found = f"governor {governor or 'not readable'}, turbo {shown}"
    mends = []
    if governor not in (None, "performance"):
        mends.append("`sudo cpupower frequency-set -g performance`")
    if turbo:
        file = "cpufreq/boost" if policy["driver"] != "intel_pstate" else "intel_pstate/no_turbo"
        value = 0 if file.endswith("boost") else 1
        mends.append(f"`echo {value} | sudo tee /sys/devices/system/cpu/{file}`")
    if mends:
        return Check("cpu clock", "warning", found, "hold the clock: " + " and ".join(mends))
    if governor is None and cpu["hypervisor"]:
        mend = "the host decides: trust ratios within one run, not times across runs"
        return Check("cpu clock", "warning", f"{found} (virtual machine)", mend)
    if governor is None:
        mend = "trust ratios within one run, not times across runs"
        return Check("cpu clock", "warning", found, mend)
    return Check("cpu clock", "ok", found)


def check_cpus(environment: dict[str, Any]) -> Check:
    """How many CPUs may be used, and whether a quota interrupts them."""
    affinity, quota = environment["affinity"], environment["limits"]["cpu_cores"]
    threads = environment["cpu"]["threads"]
    found = f"{affinity['count']} of {threads or 'an unknown number of'} CPUs ({affinity['cpus']})"
    if isinstance(quota, int | float) and quota < affinity["count"]:
        mend = (
            "give whole CPUs instead of a quota (--cpuset-cpus): a quota stops all threads at once"
        )
        return Check("cpus", "warning", f"{found}, under a quota of {quota:g} cores", mend)
    isolated = environment["cpu"]["isolated"]
    if isolated:
        found += f"; isolated: {isolated}"
    return Check("cpus", "ok", found)


def check_load(state: dict[str, Any], usable: int) -> Check:
    """Whether something else is using the processor."""
    load = state["load"]["load_1min"]
    if load is None:
        return Check(
            "load", "warning", "not readable", "check with `uptime` that nothing else runs"
        )
    found = f"load average {load:g} over {usable} CPUs"
    if load > _BUSY_PER_CPU * usable:
        return Check("load", "warning", found, "wait for the machine to be quiet, then measure")
    return Check("load", "ok", found)


def check_memory() -> Check:
    """Whether a workload fits without swapping."""
    memory = psutil.virtual_memory()
    found = f"{memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB available"
    if memory.available < _LITTLE_MEMORY_BYTES:
        mend = "end other programs: swapping ruins every sample"
        return Check("memory", "warning", found, mend)
    return Check("memory", "ok", found)


def check_disk(directory: Path) -> Check:
    """Room for results, the dataset and compiler dumps."""
    free = psutil.disk_usage(str(directory)).free
    found = f"{free / _GIB:.1f} GiB free where the project lies"
    if free < _NO_DISK_BYTES:
        return Check("disk", "broken", found, "make room: results would be lost", needed=True)
    if free < _LITTLE_DISK_BYTES:
        mend = "the dataset (0.7 GB) or a compiler dump (1.3 GB) may not fit: make room"
        return Check("disk", "warning", found, mend)
    return Check("disk", "ok", found, needed=True)
