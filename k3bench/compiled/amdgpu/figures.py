"""The exact figures of one kernel's code: its loops, their traffic, mix and serialised waits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from k3bench.compiled.amdgpu.addresses import Access, steady_accesses
from k3bench.compiled.amdgpu.isa import Instruction, Program
from k3bench.compiled.amdgpu.issue import mfma
from k3bench.compiled.amdgpu.loops import Loop, find_loops, whole_pass
from k3bench.compiled.amdgpu.memory_ops import memory_operation
from k3bench.compiled.amdgpu.round_trips import bytes_in_flight, serial_round_trips


@dataclass(frozen=True)
class PathFigures:
    """One full iteration of a loop, or one full pass of a kernel. Bytes are of a workgroup.

    Attributes:
        instructions: executed by a wave.
        mix: their number by class: valu, salu, mfma, lds, global_load, global_store, scratch,
            scalar_load, wait, branch.
        mfma: number of matrix instructions by shape and operand type, e.g. ``16x16x32 bf16``.
        mfma_flops: of those, padding included.
        load_widths: number of global loads by bytes of a lane.
        direct_to_lds_share: share of the bytes loaded that go to LDS without registers.
        load_bytes: all global loads, as if every lane asked for bytes of its own.
        data_bytes: of those, first touches that feed no address: the tiles of the computation.
        index_loads: loads that an address depends on.
        repeated_loads: loads of bytes that were loaded before.
        scratch_operations: loads and stores of scratch.
        round_trips: serialised memory round trips: every wait for loads that were issued after the
            last wait, wherever their data is.
        bytes_in_flight: most data_bytes on their way at one moment.
    """

    instructions: int
    mix: Mapping[str, int]
    mfma: Mapping[str, int]
    mfma_flops: int
    load_widths: Mapping[str, int]
    direct_to_lds_share: float
    load_bytes: int
    data_bytes: int
    index_loads: int
    repeated_loads: int
    scratch_operations: int
    round_trips: float
    bytes_in_flight: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class CodeFigures:
    """What one code object's text says.

    Attributes:
        program: registers, scratch, occupancy.
        whole: the full pass, every loop taken once.
        loops: with their figures, in the order of the text.
        main: the innermost loop that loads most; None for a kernel without loops.
        merge: the loop beside the main one, neither around it nor in it, that loads most.
    """

    program: Program
    whole: PathFigures
    loops: tuple[tuple[Loop, PathFigures], ...]
    main: int | None
    merge: int | None

    @property
    def described(self) -> PathFigures:
        """The main loop's iteration, or the whole pass of a kernel without loops."""
        return self.whole if self.main is None else self.loops[self.main][1]

    @property
    def scratch_operations_in_loops(self) -> int:
        """Loads and stores of scratch over one iteration of every innermost loop."""
        return sum(figures.scratch_operations for loop, figures in self.loops if loop.innermost)


def code_figures(program: Program, *, waves: int, wave_threads: int) -> CodeFigures:
    """Figures of a parsed kernel whose workgroups have ``waves`` waves.

    Raises CompiledFormatError where the code has a form that is not understood.
    """
    threads = waves * wave_threads
    loops = find_loops(program)
    passed = whole_pass(program)
    figures = [path_figures(loop.iteration, threads, constants=loop.constants) for loop in loops]
    innermost = [number for number, loop in enumerate(loops) if loop.innermost]
    main = max(
        innermost,
        key=lambda n: (figures[n].load_bytes, figures[n].mfma_flops, figures[n].instructions, -n),
        default=None,
    )
    return CodeFigures(
        program=program,
        whole=path_figures(passed, threads, once=True),
        loops=tuple(zip(loops, figures, strict=True)),
        main=main,
        merge=_beside(loops, figures, main),
    )


def _beside(loops: Sequence[Loop], figures: Sequence[PathFigures], main: int | None) -> int | None:
    if main is None:
        return None
    apart = [n for n, loop in enumerate(loops) if not loop.blocks & loops[main].blocks]
    return max(apart, key=lambda n: (figures[n].load_bytes, -n), default=None)


def path_figures(
    path: Sequence[Instruction],
    threads: int,
    *,
    once: bool = False,
    constants: Mapping[str, int] | None = None,
) -> PathFigures:
    """Figures of one path; ``once`` for one that is not repeated, ``constants`` where it begins."""
    accesses, feeds = steady_accesses(path, iterations=1 if once else 4, constants=constants)
    loads = [a for a in accesses if a.operation.is_load and a.operation.space == "global"]
    data = data_loads(accesses, feeds)
    matrix = [found for found in map(mfma, path) if found is not None]
    in_flight = {position: size * threads for position, size in data.items()}
    loaded = sum(access.operation.lane_bytes for access in loads)
    direct = sum(access.operation.lane_bytes for access in loads if access.operation.to_lds)
    trips: Fraction = serial_round_trips(path, once=once)
    return PathFigures(
        instructions=len(path),
        mix=dict(sorted(Counter(map(instruction_class, path)).items())),
        mfma=dict(sorted(Counter(f"{found.shape} {found.operands}" for found in matrix).items())),
        mfma_flops=sum(found.flops for found in matrix),
        load_widths=dict(
            sorted(Counter(f"{access.operation.lane_bytes}" for access in loads).items())
        ),
        direct_to_lds_share=direct / loaded if loaded else 0.0,
        load_bytes=loaded * threads,
        data_bytes=sum(data.values()) * threads,
        index_loads=sum(feeds[access.position] for access in loads),
        repeated_loads=sum(access.repeated for access in loads),
        scratch_operations=sum(access.operation.space == "scratch" for access in accesses),
        round_trips=float(trips),
        bytes_in_flight=bytes_in_flight(path, in_flight, once=once),
    )


def data_loads(accesses: Sequence[Access], feeds: Mapping[int, bool]) -> dict[int, int]:
    """Bytes of a lane by position, for first-touch global loads that feed no address."""
    return {
        access.position: access.operation.lane_bytes
        for access in accesses
        if access.operation.is_load
        and access.operation.space == "global"
        and not access.repeated
        and not feeds[access.position]
    }


def instruction_class(instruction: Instruction) -> str:
    """Which of the classes of ``mix`` an instruction belongs to."""
    name = instruction.mnemonic
    operation = memory_operation(instruction)
    if operation is not None:
        if operation.space in ("lds", "scratch"):
            return operation.space
        if operation.space == "scalar":
            return "scalar_load"
        return "global_load" if operation.is_load else "global_store"
    if "mfma" in name:
        return "mfma"
    if name.startswith(("s_waitcnt", "s_barrier", "s_nop", "s_sleep")):
        return "wait"
    if name.startswith(("s_branch", "s_cbranch", "s_endpgm")):
        return "branch"
    return "valu" if name.startswith("v_") else "salu"
