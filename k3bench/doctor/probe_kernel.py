"""The smallest useful Triton kernel: load, multiply, store. Compiled by the doctor, never run."""

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]


@triton.jit  # type: ignore[untyped-decorator]
def double(x, y, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """y[i] = 2 x[i] for i < n, both fp32."""
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    inside = offsets < n
    tl.store(y + offsets, 2 * tl.load(x + offsets, mask=inside), mask=inside)
