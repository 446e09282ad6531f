"""Records the Triton launches that host code makes, for a GPU that is not there.

Another project's launch geometry lives in its host code: block sizes, warps and stages by device,
batch and head width. Run on tensors without memory (torch's ``meta`` device) while launches are
recorded instead of run, that code describes itself; nothing of it is repeated here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mla_rocm.errors import MlaArgumentError

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction


@dataclass(frozen=True)
class Specialized:
    """A call's arguments as Triton's runtime would compile for them.

    Attributes:
        signature: type of every argument by name, in order.
        constexprs: values of the ``constexpr`` arguments, which None and the integer 1 become.
        attrs: divisibility and, on AMD, pointer ranges, by argument number.
    """

    signature: dict[str, str]
    constexprs: dict[str, Any]
    attrs: dict[tuple[int, ...], list[list[Any]]]


@dataclass
class Recorded:
    """One launch that host code asked for: the kernel, its arguments, its grid and options."""

    kernel: "JITFunction[Any]"
    positional: tuple[Any, ...]
    named: dict[str, Any]
    grid: tuple[int, int, int]
    options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        arguments = set(self.kernel.arg_names)
        self.options = {name: v for name, v in self.named.items() if name not in arguments}

    def take_instead(self, values: Mapping[str, Any]) -> None:
        """Replaces arguments or options that were given by name.

        Raises MlaArgumentError for a name that the launch does not have.
        """
        for name, value in values.items():
            if name not in self.named:
                raise MlaArgumentError(
                    f"{name} is {value!r}: the launch of {self.kernel.__name__} has no {name}"
                )
            self.named[name] = value
            if name in self.options:
                self.options[name] = value

    def specialized(self, backend: str, arch: str | int, wave_threads: int) -> Specialized:
        """What the runtime of that target makes of the arguments."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import make_backend
        from triton.runtime.jit import create_function_from_signature

        compiler = make_backend(GPUTarget(backend, arch, wave_threads))
        bind = create_function_from_signature(self.kernel.signature, self.kernel.params, compiler)
        bound, kinds, _ = bind(*self.positional, **self.named)
        named = dict(zip(bound, kinds, strict=True))
        return Specialized(
            signature={name: kind for name, (kind, _) in named.items()},
            constexprs={name: bound[name] for name, (kind, _) in named.items() if kind == CONSTANT},
            attrs={
                (number,): compiler.parse_attr(found)
                for number, (kind, found) in enumerate(named.values())
                if kind != CONSTANT and found
            },
        )


CONSTANT = "constexpr"


@contextmanager
def recorded_launches() -> Iterator[list[Recorded]]:
    """While it is open, launches of Triton kernels are appended to its list and not run.

    Process-wide and not for threads: meant for a compiling process.
    """
    from triton.runtime.jit import JITFunction

    launches: list[Recorded] = []

    def record(
        kernel: "JITFunction[Any]",
        *positional: Any,
        grid: Any,
        warmup: bool = False,
        **named: Any,
    ) -> None:
        del warmup
        if callable(grid):
            grid = grid(dict(zip(kernel.arg_names, positional, strict=False)) | named)
        x, y, z = (*(int(size) for size in grid), 1, 1)[:3]
        launches.append(Recorded(kernel, positional, named, (x, y, z)))

    run = JITFunction.run
    JITFunction.run = record
    try:
        yield launches
    finally:
        JITFunction.run = run


@contextmanager
def replaced(module: ModuleType, **values: Any) -> Iterator[None]:
    """While it is open, the module's globals of these names, where it has them, have the values."""
    before = {name: getattr(module, name) for name in values if hasattr(module, name)}
    try:
        for name in before:
            setattr(module, name, values[name])
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
