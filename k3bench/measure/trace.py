"""Device times out of a profile: each run of a compiled module on a TPU, by the TPU's own clock.

The format (XSpace, read by ``jax.profiler.ProfileData``): a plane ``/device:TPU:<n>`` a core, in it
a line ``XLA Modules`` with one event a module run, named ``jit_<function>(<fingerprint>)``.
"""

import re
from dataclasses import dataclass
from typing import Any

_TPU_PLANE = re.compile(r"/device:TPU:\d+")
_MODULES = "XLA Modules"


class TraceError(RuntimeError):
    """A profile that does not say what is wanted; the message says what is missing."""


@dataclass(frozen=True)
class ModuleRun:
    """One run of one compiled module: its name, its start since the profile's, its duration."""

    name: str
    start_s: float
    duration_s: float


def module_runs(profile: Any) -> list[ModuleRun]:
    """Every module run on the one TPU core that ran any, in order of time.

    Args:
        profile: a ``jax.profiler.ProfileData``.

    Raises:
        TraceError: no TPU plane, no module run, or runs on several cores (whose times would have to
            be combined).
    """
    found: dict[str, list[ModuleRun]] = {}
    planes = []
    for plane in profile.planes:
        planes.append(plane.name)
        if not _TPU_PLANE.fullmatch(plane.name):
            continue
        for line in plane.lines:
            if line.name == _MODULES:
                runs = [
                    ModuleRun(event.name, event.start_ns * 1e-9, event.duration_ns * 1e-9)
                    for event in line.events
                ]
                found.setdefault(plane.name, []).extend(runs)
    busy = {name: runs for name, runs in found.items() if runs}
    if not busy:
        seen = ", ".join(planes) or "none"
        raise TraceError(f"no run of a module on a TPU in the profile (its planes: {seen})")
    if len(busy) > 1:
        raise TraceError(f"modules ran on several cores ({', '.join(sorted(busy))}): one is wanted")
    [runs] = busy.values()
    return sorted(runs, key=lambda run: run.start_s)


def durations_by_call(
    runs: list[ModuleRun], order: list[str], modules: dict[str, tuple[str, ...]]
) -> dict[str, tuple[float, ...]]:
    """Device seconds of each call, by caller.

    Args:
        runs: all module runs, in order of time.
        order: who was called, call by call.
        modules: the names of the modules that one call of each runs, in order.

    Returns:
        For every caller one figure a call: the sum over its modules, without the gaps between them.

    Raises:
        TraceError: the runs are not those of the calls, one for one and by name.
    """
    expected = [(caller, module) for caller in order for module in modules[caller]]
    if len(runs) != len(expected):
        raise TraceError(f"{len(runs)} module runs in the profile, {len(expected)} were expected")
    seconds: dict[str, list[float]] = {caller: [] for caller in modules}
    position = 0
    for caller in order:
        total = 0.0
        for module in modules[caller]:
            if runs[position].name != module:
                raise TraceError(
                    f"module run {position} is {runs[position].name}, expected {module} of {caller}"
                )
            total += runs[position].duration_s
            position += 1
        seconds[caller].append(total)
    return {caller: tuple(values) for caller, values in seconds.items()}
