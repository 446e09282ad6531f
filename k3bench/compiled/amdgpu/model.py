"""From a code object to microseconds: three fitted constants, and rates that are stated.

    time = launch + sum over rounds of max(wave, issue, LDS, bytes / bandwidth) + tail

A round is as many workgroups as the device holds. ``wave`` is one wave walked in order through the
whole kernel, waiting as the wait counters say:

- a first touch of a cache line takes ``latency_s`` (memory);
- what the launch before has just written, arguments, spills and stores take ``near_latency_s`` (L2
  or Infinity Cache);
- a line that the wave has read before takes the L1's cycles, an LDS access the LDS's;
- loaded data comes in at the L1's bytes a cycle, shared by the workgroup's waves;
- every instruction takes its issue cycles.

``issue`` and ``LDS`` are what the waves on one SIMD and one compute unit need together; ``bytes``
are the launch's own, at the bandwidth that a stream reaches. Rounds are as long as their mean
workgroup, and the longest one's rest is the ``tail``: under a causal mask the two are far apart.
Where the compiler has unrolled the main loop, its iterations are fewer than the source's: they
follow from the bytes that one loads.

Fitted by fit.py on published points: latency_s, near_latency_s, launch_s. It ranks launches of one
kernel. It does not predict a time to better than its stated error, and two kernels within that
error of each other are not ordered by it: no gate may rest on it.
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
from k3bench.compiled.amdgpu.round_trips import Step, execute, prepare
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

    def plus(self, other: "PathCost", times: float = 1) -> "PathCost":
        """This path, then ``times`` times another."""
        return PathCost(
            self.wave_s + times * other.wave_s,
            self.simd_s + times * other.simd_s,
            self.lds_s + times * other.lds_s,
        )


@functools.cache
def latency_model() -> LatencyModel:
    """The committed constants."""
    return LatencyModel(**fit_document()["model"])


def judged_error(target: str) -> Mapping[str, float] | None:
    """{"mean", "worst"} of the relative error on published points; None where none is known."""
    error = fit_document()["judged"].get(target)
    return None if error is None else {name: float(value) for name, value in error.items()}


@functools.cache
def fit_document() -> dict[str, Any]:
    """What fit.py has written: constants, errors by published point and by half, and how."""
    try:
        text = files("k3bench.compiled.amdgpu").joinpath(CONSTANTS_FILE).read_text()
        document: dict[str, Any] = json.loads(text)
    except (OSError, ValueError) as error:
        raise CompiledError(
            f"{CONSTANTS_FILE}: {error!r}: restore it from the repository"
        ) from error
    return document


@dataclass(frozen=True)
class Work:
    """What a launch must do.

    Attributes:
        iterations: of the source's main loop in the longest workgroup; other loops count once.
        mean_iterations: of a workgroup.
        iteration_bytes: that one of them loads; None where the code's loop is the source's.
        merge_iterations: of the loop in which one workgroup merges what the others have left.
        hbm_bytes: that the launch must move.
    """

    iterations: int
    mean_iterations: float
    iteration_bytes: int | None
    merge_iterations: int
    hbm_bytes: int


@dataclass(frozen=True)
class PathProfile:
    """A path with everything known of it but the fitted constants; times in seconds.

    Attributes:
        steps: its instructions.
        issue_s, simd_s: of each instruction, and their sum.
        lds_s: of the compute unit's LDS.
        fixed_s: latency by position, where no fitted constant has it.
        near: positions that pay the near latency; the others that load pay memory's.
        transfer_s: for which a byte of a lane keeps the next load's data from coming in.
        once: a single pass.
    """

    steps: Sequence[Step]
    issue_s: Sequence[float]
    simd_s: float
    lds_s: float
    fixed_s: Mapping[int, float]
    near: frozenset[int]
    transfer_s: float
    once: bool

    def cost(self, model: LatencyModel) -> PathCost:
        """One iteration in the steady state, or the single pass."""

        def latency(position: int, operation: MemoryOperation) -> float:
            del operation
            if position in self.near:
                return model.near_latency_s
            return self.fixed_s.get(position, model.latency_s)

        def transfer(operation: MemoryOperation) -> float:
            vector = operation.is_load and operation.space in ("global", "scratch")
            return operation.lane_bytes * self.transfer_s if vector else 0.0

        walked = execute(
            self.steps,
            latency,
            self.issue_s.__getitem__,
            0.0,
            data={},
            once=self.once,
            transfer=transfer,
        )
        return PathCost(float(walked.per_iteration), self.simd_s, self.lds_s)


def path_profile(
    path: Sequence[Instruction],
    target: GpuTarget,
    *,
    waves: int,
    once: bool,
    all_near: bool = False,
    constants: Mapping[str, int] | None = None,
) -> PathProfile:
    """What a path's accesses are, by where their data comes from.

    Args:
        path: the instructions.
        target: rates.
        waves: of the workgroup, which share the L1's bytes a cycle.
        once: a single pass; else one iteration of many.
        all_near: no access is a first touch: the launch before has just written the data.
        constants: registers that hold a literal where the path begins.
    """
    accesses, _ = steady_accesses(path, iterations=1 if once else 4, constants=constants)
    by_position: dict[int, Access] = {access.position: access for access in accesses}
    steps = prepare(path)
    fixed: dict[int, float] = {}
    near: set[int] = set()
    for position, (operation, _) in enumerate(steps):
        if operation is None:
            continue
        access = by_position.get(position)
        if operation.space == "lds":
            fixed[position] = target.lds_latency_cycles / target.clock_hz
        # A store is acknowledged by the cache that takes it.
        elif access is None or operation.space in ("scalar", "scratch") or not operation.is_load:
            near.add(position)
        elif access.same_line:
            fixed[position] = target.l1_latency_cycles / target.clock_hz
        elif all_near:
            near.add(position)
    issue = [simd_cycles(instruction, target) / target.clock_hz for instruction in path]
    return PathProfile(
        steps=steps,
        issue_s=issue,
        simd_s=sum(issue),
        lds_s=sum(lds_cycles(instruction, target) for instruction in path) / target.clock_hz,
        fixed_s=fixed,
        near=frozenset(near),
        transfer_s=target.wave_threads * waves / (target.l1_bytes_per_cycle * target.clock_hz),
        once=once,
    )


@dataclass(frozen=True)
class KernelProfile:
    """A kernel's whole pass, its main loop's iteration, the bytes that one loads, and its merge's.

    What is merged has just been written: its loads are near.
    """

    whole: PathProfile
    loop: PathProfile | None
    loop_bytes: int
    merge: PathProfile | None


def kernel_profile(
    figures: CodeFigures, target: GpuTarget, *, waves: int, all_near: bool
) -> KernelProfile:
    """As ``path_profile``, of a code object."""
    passed = whole_pass(figures.program)
    whole = path_profile(passed, target, waves=waves, once=True, all_near=all_near)
    if figures.main is None:
        return KernelProfile(whole, None, 0, None)
    loop, found = figures.loops[figures.main]
    again = path_profile(
        loop.iteration,
        target,
        waves=waves,
        once=False,
        all_near=all_near,
        constants=loop.constants,
    )
    merge = None
    if figures.merge is not None:
        beside, _ = figures.loops[figures.merge]
        merge = path_profile(
            beside.iteration,
            target,
            waves=waves,
            once=False,
            all_near=True,
            constants=beside.constants,
        )
    return KernelProfile(whole, again, found.data_bytes, merge)


def kernel_seconds(
    profile: KernelProfile,
    fit: Residency,
    model: LatencyModel,
    *,
    waves: int,
    work: Work,
    target: GpuTarget,
    compute_units: int,
) -> float:
    """Modelled seconds of one launch, the launch itself included.

    Args:
        profile: of the code object.
        fit: residency of this launch.
        model: the constants.
        waves: of a workgroup.
        work: what it must do.
        target: rates; its bandwidth is shared out by compute units.
        compute_units: of the device or partition.
    """
    mean = longest = profile.whole.cost(model)
    if profile.loop is not None:
        again = profile.loop.cost(model)
        share = 1.0
        if work.iteration_bytes and profile.loop_bytes:
            share = work.iteration_bytes / profile.loop_bytes
        mean, longest = (
            mean.plus(again, max(0.0, iterations * share - 1))
            for iterations in (work.mean_iterations, work.iterations)
        )
    if profile.merge is not None and work.merge_iterations > 1:
        longest = longest.plus(profile.merge.cost(model), work.merge_iterations - 1)
    bandwidth = target.streamed_hbm_bytes_per_s * compute_units / target.compute_units
    total = model.launch_s + longest.wave_s - mean.wave_s
    left = fit.grid
    while left > 0:
        running = min(left, fit.resident_workgroups)
        on_one_unit = -(-running // compute_units)
        repeated = max(1, left // fit.resident_workgroups)
        waves_on_simd = max(1.0, on_one_unit * waves / target.simds)
        total += repeated * max(
            mean.wave_s,
            waves_on_simd * mean.simd_s,
            on_one_unit * waves * mean.lds_s,
            work.hbm_bytes * running / fit.grid / bandwidth,
        )
        left -= repeated * running
    return total
