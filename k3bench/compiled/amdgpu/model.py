"""From a code object to microseconds: three constants, and rates that the data sheet states.

    time = launch + sum over rounds of max(wave, issue, LDS, bytes / bandwidth)

A round is as many workgroups as the device holds. ``wave`` is one wave walked in order through the
whole kernel: every first touch of memory takes ``latency``, every access to bytes that were loaded
before, to scratch or to arguments takes ``near_latency``, every instruction its issue cycles, and
waits hold the wave as the counters say. ``issue`` and ``LDS`` are what the waves on one SIMD and
one compute unit need together; ``bytes`` are the launch's own, at the bandwidth that a stream
reaches.

It ranks launches of one kernel. It does not predict a time to better than its stated error, and two
kernels within that error of each other are not ordered by it: no gate may rest on it.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from k3bench.compiled.amdgpu.addresses import Access, steady_accesses
from k3bench.compiled.amdgpu.figures import CodeFigures
from k3bench.compiled.amdgpu.isa import Instruction
from k3bench.compiled.amdgpu.issue import lds_cycles, simd_cycles
from k3bench.compiled.amdgpu.loops import whole_pass
from k3bench.compiled.amdgpu.memory_ops import MemoryOperation
from k3bench.compiled.amdgpu.residency import Residency
from k3bench.compiled.amdgpu.round_trips import execute
from k3bench.compiled.amdgpu.targets import GpuTarget
from k3bench.compiled.errors import CompiledError

CONSTANTS_FILE = "latency_model.json"
ADVICE = (
    "modelled microseconds inform and are no gate: gate on residency, rounds, scratch, round "
    "trips, LDS and instruction counts"
)


@dataclass(frozen=True)
class LatencyModel:
    """The constants, in seconds: a first touch, a repeated access, the launch of a kernel."""

    latency_s: float
    near_latency_s: float
    launch_s: float


@dataclass(frozen=True)
class PathCost:
    """One path on one wave: its time alone, and what it takes of the SIMD and of the LDS."""

    wave_s: float
    simd_s: float
    lds_s: float

    def plus(self, other: "PathCost", times: int = 1) -> "PathCost":
        """This path, then ``times`` times another."""
        return PathCost(
            self.wave_s + times * other.wave_s,
            self.simd_s + times * other.simd_s,
            self.lds_s + times * other.lds_s,
        )


@functools.cache
def latency_model() -> LatencyModel:
    """The committed constants."""
    return LatencyModel(**_document()["model"])


def judged_error(target: str) -> Mapping[str, float] | None:
    """{"mean", "worst"} of the relative error on published points; None where none is known."""
    error = _document()["judged"].get(target)
    return None if error is None else {name: float(value) for name, value in error.items()}


@functools.cache
def _document() -> dict[str, Any]:
    try:
        text = files("k3bench.compiled.amdgpu").joinpath(CONSTANTS_FILE).read_text()
        document: dict[str, Any] = json.loads(text)
    except (OSError, ValueError) as error:
        raise CompiledError(
            f"{CONSTANTS_FILE}: {error!r}: restore it from the repository"
        ) from error
    return document


def path_cost(
    path: Sequence[Instruction],
    model: LatencyModel,
    target: GpuTarget,
    *,
    once: bool,
    all_near: bool = False,
) -> PathCost:
    """One iteration in the steady state, or a single pass with ``once``.

    With ``all_near`` no access is a first touch: the launch before has just written the data.
    """
    accesses, _ = steady_accesses(path, iterations=1 if once else 4)
    by_position: dict[int, Access] = {access.position: access for access in accesses}

    def latency(position: int, operation: MemoryOperation) -> float:
        access = by_position.get(position)
        near = all_near or operation.space == "scalar" or access is None or access.repeated
        # A store is acknowledged by the cache that takes it.
        near = near or not operation.is_load
        return model.near_latency_s if near else model.latency_s

    def issue(instruction: Instruction) -> float:
        return simd_cycles(instruction, target) / target.clock_hz

    walked = execute(path, latency, issue, 0.0, data={}, once=once)
    return PathCost(
        wave_s=float(walked.per_iteration),
        simd_s=sum(simd_cycles(instruction, target) for instruction in path) / target.clock_hz,
        lds_s=sum(lds_cycles(instruction, target) for instruction in path) / target.clock_hz,
    )


def kernel_seconds(
    figures: CodeFigures,
    fit: Residency,
    *,
    waves: int,
    iterations: int,
    hbm_bytes: int,
    target: GpuTarget,
    compute_units: int,
    model: LatencyModel,
    all_near: bool = False,
) -> float:
    """Modelled seconds of one launch, the launch itself included.

    Args:
        figures: of the code object.
        fit: residency of this launch.
        waves: of a workgroup.
        iterations: of the main loop in the longest workgroup; other loops count once.
        hbm_bytes: that the launch must move.
        target: rates; its bandwidth is shared out by compute units.
        compute_units: of the device or partition.
        model: the constants.
        all_near: it reads what the launch before it has just written.
    """
    cost = path_cost(whole_pass(figures.program), model, target, once=True, all_near=all_near)
    if figures.main is not None and iterations > 1:
        loop, _ = figures.loops[figures.main]
        once_more = path_cost(loop.iteration, model, target, once=False, all_near=all_near)
        cost = cost.plus(once_more, iterations - 1)
    bandwidth = target.streamed_hbm_bytes_per_s * compute_units / target.compute_units
    total = model.launch_s
    left = fit.grid
    while left > 0:
        running = min(left, fit.resident_workgroups)
        on_one_unit = -(-running // compute_units)
        full_rounds = left // fit.resident_workgroups
        repeated = max(1, full_rounds)
        waves_on_simd = max(1.0, on_one_unit * waves / target.simds)
        total += repeated * max(
            cost.wave_s,
            waves_on_simd * cost.simd_s,
            on_one_unit * waves * cost.lds_s,
            hbm_bytes * running / fit.grid / bandwidth,
        )
        left -= repeated * running
    return total
