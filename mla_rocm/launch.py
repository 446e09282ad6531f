"""One kernel launch as data: what compiles it, what it moves and computes, how its work is cut."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction

# Triton's names of element types.
TRITON_TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}

# Options that only AMD's backend takes.
HIP_OPTIONS = ("matrix_instr_nonkdim", "waves_per_eu")

# The largest storage whose pointers Triton's ROCm runtime marks with a 32-bit range, which is what
# lets the compiler use buffer loads in place of flat ones.
LARGEST_32BIT_STORAGE = 2**31 - 1

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        name: ``stage1``, ``stage2``, ... within its operation.
        kernel: the Triton function.
        signature: type of every argument by name, in order: ``*bf16``, ``i32``, ``constexpr``.
        constexprs: values of the ``constexpr`` arguments.
        options: for AMD targets; those in ``HIP_OPTIONS`` mean nothing to others.
        grid: workgroups along x, y and z.
        read_bytes: what the launch must read from memory: each tensor element that it uses once,
            what it actually visits for the case (never the allocation).
        written_bytes: what it writes.
        flops: multiply-adds of the mathematics as 2, without padding; exponentials not counted.
        iterations: main-loop iterations of the longest workgroup.
        storage_bytes: of the tensor behind each pointer argument, allocation and all: a pointer
            that 31 bits can index is loaded from by other instructions.
        mean_iterations: of the workgroups that have any; ``iterations`` unless given.
        iteration_bytes: that one iteration of a workgroup loads, tiles alone. Where a compiler has
            unrolled the loop, what its iteration loads is a multiple.
        merge_iterations: of a second loop, in which one workgroup merges what others have just
            left, after its main loop.
        busy_workgroups: that do not return at once; the whole grid unless given.
        attrs: argument properties for the compiler, as Triton derives them at run time: all
            pointers divisible by 16, those of small tensors with a 32-bit range.
    """

    name: str
    kernel: "JITFunction[Any]"
    signature: dict[str, str]
    constexprs: dict[str, Any]
    options: dict[str, int]
    grid: Grid
    read_bytes: int
    written_bytes: int
    flops: int
    iterations: int
    storage_bytes: Mapping[str, int] = field(default_factory=dict)
    mean_iterations: float | None = None
    iteration_bytes: int | None = None
    merge_iterations: int = 0
    busy_workgroups: int | None = None
    attrs: dict[tuple[int, ...], list[list[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.attrs:
            object.__setattr__(self, "attrs", pointer_attrs(self.signature, self.storage_bytes))
        if self.mean_iterations is None:
            object.__setattr__(self, "mean_iterations", float(self.iterations))
        if self.busy_workgroups is None:
            object.__setattr__(self, "busy_workgroups", self.workgroups)

    @property
    def workgroups(self) -> int:
        """Workgroups of the whole grid."""
        x, y, z = self.grid
        return x * y * z

    def source(self) -> "ASTSource":
        """What ``triton.compile`` takes; ``options`` go beside it."""
        from triton.compiler import ASTSource

        return ASTSource(
            self.kernel, dict(self.signature), dict(self.constexprs), attrs=dict(self.attrs)
        )


def pointer_attrs(
    signature: Mapping[str, str], storage_bytes: Mapping[str, int]
) -> dict[tuple[int, ...], list[list[Any]]]:
    """What the runtime tells the compiler of each pointer: torch aligns storages to 16 bytes.

    Args:
        signature: types by argument name, in order.
        storage_bytes: of the pointer arguments' tensors; one that is not named is not claimed to
            be small.
    """
    return {
        (index,): [
            ["tt.divisibility", 16],
            *(
                [["tt.pointer_range", 32]]
                if storage_bytes.get(name, LARGEST_32BIT_STORAGE + 1) <= LARGEST_32BIT_STORAGE
                else []
            ),
        ]
        for index, (name, kind) in enumerate(signature.items())
        if kind.startswith("*")
    }
