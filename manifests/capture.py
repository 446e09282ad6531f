"""Takes the manifest of this machine, now."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from manifests.accelerators import read_accelerators
from manifests.cpu import read_cpu, read_cpu_clocks, usable_cpus
from manifests.errors import ManifestError
from manifests.host import read_host, read_limits, read_load, read_memory, read_temperatures
from manifests.machine import Machine
from manifests.software import read_distributions, read_libraries, read_python
from manifests.source import read_source
from manifests.validation import SCHEMA_VERSION, validate
from manifests.variables import read_variables

Manifest = dict[str, Any]

# Who sets a thread pool's size: OpenMP (torch, OpenBLAS builds on it), MKL, OpenBLAS, NumExpr.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def capture(
    project_root: Path,
    workload_pins: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
    ask_tpu_runtime: bool = True,
) -> Manifest:
    """The manifest of this machine and of the checkout at `project_root`, validated.

    `workload_pins` maps workload ids to the SHA-256 of their content. "environment" holds what
    stays the same from run to run, "state" what the moment brought (load, clocks, temperatures),
    "source" what was measured. Nothing in it is an absolute path or a secret; what cannot be read
    is None. Where a TPU is present its runtime is asked too, which takes seconds and the chip;
    `ask_tpu_runtime=False` leaves that out.

    Raises ManifestError where `project_root` is not a directory or a pin is malformed.
    """
    machine = machine or Machine()
    if not project_root.is_dir():
        raise ManifestError("project: not a directory; name the checkout that is measured")
    captured_at = datetime.now(UTC)
    accelerators, readings = read_accelerators(machine, ask_tpu_runtime)
    variables, settings = read_variables(machine.environ, _places(machine, project_root))
    distributions = read_distributions()
    affinity = os.sched_getaffinity(0)
    manifest: Manifest = {
        "schema_version": SCHEMA_VERSION,
        "environment": {
            "host": read_host(machine),
            "cpu": read_cpu(machine),
            "affinity": usable_cpus(affinity),
            "limits": read_limits(machine),
            "memory": read_memory(machine),
            "accelerators": accelerators,
            "python": read_python(),
            "libraries": read_libraries(machine, distributions),
            "threads": _threads(machine, len(affinity)),
            "variables": variables,
            "distributions": distributions,
        },
        "state": {
            "captured_at": captured_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "load": read_load(machine),
            "cpu_clocks": read_cpu_clocks(machine),
            "temperatures_c": read_temperatures(machine),
            "accelerators": readings,
            "settings": settings,
        },
        "source": {
            **read_source(machine, project_root),
            "workload_pins": dict(sorted((workload_pins or {}).items())),
        },
    }
    validate(manifest)
    return manifest


def _places(machine: Machine, project_root: Path) -> dict[Path, str]:
    places = {}
    home = machine.environ.get("HOME")
    if home and Path(home).is_absolute():
        places.update({Path(home): "~", Path(home).resolve(): "~"})
    # Last, so that a project in the home directory itself is called the project.
    places.update({project_root.absolute(): "<project>", project_root.resolve(): "<project>"})
    return places


def _threads(machine: Machine, usable: int) -> dict[str, Any]:
    """What sizes the thread pools: the usable CPUs, and every variable that overrules them.

    The sizes that torch or XLA derive from these are theirs to choose, and asking would import
    them; equal inputs and equal libraries give equal sizes.
    """
    return {
        "usable_cpus": usable,
        "requested": {name: machine.environ.get(name) for name in _THREAD_VARIABLES},
    }
