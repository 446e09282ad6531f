"""The doctor: what this machine can measure and compile, what is missing and how to mend it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k3bench.devices import environment_for_this_machine
from k3bench.doctor import data, hardware, software
from k3bench.doctor.children import DEADLINE_S, ask
from k3bench.doctor.probe import PROBES
from k3bench.doctor.report import Capability, Check, Report, Status
from k3bench.paths import ProjectNotFound, project_root
from manifests import capture

__all__ = ["Capability", "Check", "Report", "Status", "diagnose"]

# As a compiler on any host: no chip is looked for, and other processes may have it loaded too.
_COMPILER_ONLY = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def diagnose(deadline_s: float = DEADLINE_S) -> Report:
    """Looks at this machine; takes about five seconds, and never much more than `deadline_s`.

    Nothing is changed: no ledger is made, nothing is downloaded, and every runtime that could hang
    is asked in a process that is ended at the deadline.
    """
    try:
        root: Path | None = project_root()
    except ProjectNotFound:
        root = None
    here = root or Path.cwd()
    # Before the probes start: they would be the load. They ask the TPU's runtime, too.
    manifest = capture(here, ask_tpu_runtime=False)
    answers = ask(_environments(os.environ), here, deadline_s)
    environment, state = manifest["environment"], manifest["state"]
    jax, torch = answers["jax"], answers["torch"]
    checks = (
        software.check_python(),
        software.check_git(),
        software.check_asv(),
        software.check_project(root),
        software.check_jax(jax),
        software.check_torch(torch),
        software.check_kernels("kda_tpu", jax),
        software.check_kernels("mla_rocm", torch),
        software.check_triton(answers["triton"]),
        software.check_libtpu(answers["libtpu"]),
        hardware.check_tpu(environment, jax),
        hardware.check_amd(environment, torch),
        hardware.check_nvidia(environment, torch),
        hardware.check_clock(environment),
        hardware.check_cpus(environment),
        hardware.check_load(state, environment["affinity"]["count"]),
        hardware.check_memory(),
        hardware.check_disk(here),
        data.check_ledger(answers["ledger"]),
        data.check_dataset(),
    )
    by_name = {check.name: check for check in checks}
    return Report(
        checks=checks,
        can_measure=capabilities(
            [
                answer
                for name, answer in (("jax", jax), ("torch", torch))
                if by_name[name].status == "ok"
            ]
        ),
        can_compile=tuple(
            target
            for target, name in (("tpu-v6e", "libtpu"), ("gfx950", "triton"))
            if by_name[name].status == "ok"
        ),
    )


def capabilities(answers: list[dict[str, Any]]) -> tuple[Capability, ...]:
    """One entry a device, from what jax and torch said; a family that nothing runs is left out."""
    runs: dict[str, dict[str, tuple[str, ...]]] = {}
    refused: dict[str, dict[str, dict[str, str]]] = {}
    for answer in answers:
        device = answer["device"]
        for family, support in answer["families"].items():
            names = tuple(name for name, reason in support.items() if reason is None)
            reasons = {name: reason for name, reason in support.items() if reason is not None}
            if names:
                runs.setdefault(device, {})[family] = names
            if reasons:
                refused.setdefault(device, {})[family] = reasons
    return tuple(
        Capability(device, families, refused.get(device, {})) for device, families in runs.items()
    )


def _environments(environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The environment of each probe: as a benchmark has it, or for libtpu as a compiler has it."""
    as_measured = {**environ, **environment_for_this_machine(environ)}
    return {
        name: {**environ, **_COMPILER_ONLY} if name == "libtpu" else as_measured for name in PROBES
    }
