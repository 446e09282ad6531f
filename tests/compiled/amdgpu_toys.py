"""Toy Triton kernels and their launches, compiled for GPUs that are not here."""

import os
from dataclasses import dataclass, field

import triton
import triton.language as tl


@triton.jit
def copy_scaled(source, target, count, BLOCK: tl.constexpr):
    """One pass, no loop."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count) * 2.0, mask=at < count)


@triton.jit
def gather_rows(rows, indices, target, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """A loop whose data loads depend on index loads of the same iteration: two round trips."""
    column = tl.arange(0, WIDTH)
    total = tl.zeros([BLOCK, WIDTH], tl.float32)
    for first in range(0, count, BLOCK):
        index = tl.load(indices + first + tl.arange(0, BLOCK))
        total += tl.load(rows + index[:, None] * WIDTH + column[None, :])
    at = tl.arange(0, BLOCK)[:, None] * WIDTH + column[None, :]
    tl.store(target + at, total)


@triton.jit
def multiply(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    """A matrix product; with large M and N its accumulator does not fit and spills."""
    row, column, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros([M, N], tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + row[:, None] * K + k + inner[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + column[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * N + column[None, :], total)


@dataclass(frozen=True)
class ToyLaunch:
    """What the compiled tier asks of a launch."""

    name: str
    kernel: object
    signature: dict
    constexprs: dict
    options: dict
    grid: tuple = (1, 1, 1)
    read_bytes: int = 1 << 20
    written_bytes: int = 1 << 10
    flops: int = 1 << 20
    iterations: int = 8
    iteration_bytes: int | None = None
    merge_iterations: int = 0
    attrs: dict = field(default_factory=dict)

    def __post_init__(self):
        aligned = {
            (n,): [["tt.divisibility", 16]]
            for n, kind in enumerate(self.signature.values())
            if kind.startswith("*")
        }
        object.__setattr__(self, "attrs", aligned)

    @property
    def mean_iterations(self):
        """All workgroups of a toy do the same."""
        return float(self.iterations)

    @property
    def busy_workgroups(self):
        """All of them."""
        x, y, z = self.grid
        return x * y * z


def _signature(kernel, **types):
    return {name: types.get(name, "constexpr") for name in kernel.arg_names}


def launches(kind, stages=1, warps=4, **constexprs):
    """The launches of one kind of toy."""
    options = {"num_warps": warps, "num_stages": stages}
    if kind == "copy":
        types = _signature(copy_scaled, source="*fp32", target="*fp32", count="i32")
        return [ToyLaunch("copy", copy_scaled, types, {"BLOCK": 1024}, options, iterations=1)]
    if kind == "gather":
        types = _signature(gather_rows, rows="*fp32", indices="*i32", target="*fp32", count="i32")
        return [ToyLaunch("gather", gather_rows, types, {"WIDTH": 64, "BLOCK": 16}, options)]
    if kind == "multiply":
        types = _signature(multiply, a="*bf16", b="*bf16", c="*fp32", K="i32")
        return [ToyLaunch("multiply", multiply, types, constexprs, options)]
    if kind == "broken":
        raise ValueError("this launch\ncannot be described")
    if kind == "dies":
        os._exit(7)
    raise AssertionError(kind)


def refused():
    """An implementation that does not take the point."""
    from k3bench.compiled.built import UnsupportedError

    raise UnsupportedError("heads is 5: must be even")
