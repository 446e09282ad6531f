"""Reading and writing single heads of the layout that callers use, [T, H, D], inside a kernel.

T is the untiled dimension there, so a window of rows may begin at any token: ragged packings need
no padding in HBM. One head of a window is a row in every H: a strided load of 32-bit words. Two
bf16 heads share a word, the even head in its low half. (Indexing the window by head instead costs
4.7 times as many bundles: every token's row is fetched and shuffled into place alone.)
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

_HIGH = np.uint32(0xFFFF0000)


def window(rows: int, heads: int, width: int) -> pl.BlockSpec:
    """A block of ``rows`` tokens of [T, H, D] beginning at the first scalar table's entry.

    Grid (C,). It may run over the end of the array; what it holds there is undefined.
    """
    return pl.BlockSpec(
        (pl.Element(rows, (0, rows - 1)), pl.Element(heads), pl.Element(width)),
        lambda c, token_start, *_: (token_start[c], 0, 0),
    )


def _words(ref: Any) -> Any:
    """[BT, H, D] as 32-bit rows, [BT * H / packing, D]."""
    rows, heads, width = ref.shape
    flat = ref.reshape(rows * heads, width)
    return flat if ref.dtype.itemsize == 4 else flat.bitcast(jnp.uint32)


def load_head(ref: Any, head: int, *, interpret: Any) -> jax.Array:
    """[BT, D] fp32 of one head of a window [BT, H, D], bf16 or fp32."""
    rows, heads, _ = ref.shape
    if interpret:  # whose references cannot be bitcast
        return ref[:, head, :].astype(jnp.float32)
    if ref.dtype.itemsize == 4:
        return _words(ref)[pl.ds(head, rows, stride=heads), :]
    words = _words(ref)[pl.ds(head // 2, rows, stride=heads // 2), :]
    bits = words & _HIGH if head % 2 else words << 16
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def load_pair(ref: Any, pair: int, *, interpret: Any) -> tuple[jax.Array, jax.Array]:
    """Heads 2 pair and 2 pair + 1 of a window, as load_head; bf16 words are read once for both."""
    rows, heads, _ = ref.shape
    if interpret or ref.dtype.itemsize == 4:
        even, odd = (load_head(ref, 2 * pair + n, interpret=interpret) for n in (0, 1))
        return even, odd
    words = _words(ref)[pl.ds(pair, rows, stride=heads // 2), :]
    even, odd = (
        jax.lax.bitcast_convert_type(bits, jnp.float32) for bits in (words << 16, words & _HIGH)
    )
    return even, odd


def store_pair(ref: Any, head: int, even: jax.Array, odd: jax.Array, *, interpret: Any) -> None:
    """Writes heads ``head`` (even) and ``head + 1`` of a window [BT, H, D], from [BT, D] fp32."""
    rows, heads, _ = ref.shape
    if interpret:
        for index, x in ((head, even), (head + 1, odd)):
            ref[:, index, :] = x.astype(ref.dtype)
    elif ref.dtype.itemsize == 4:
        for index, x in ((head, even), (head + 1, odd)):
            _words(ref)[pl.ds(index, rows, stride=heads), :] = x
    else:
        _words(ref)[pl.ds(head // 2, rows, stride=heads // 2), :] = pltpu.pack_elementwise(
            [even, odd], packed_dtype=ref.dtype
        )


def _copies(window_ref: Any, hbm_ref: Any, start: Any, rows: Any, semaphore: Any, visit: Any):
    """Visits the copies that move the first ``rows`` rows of a window: one, or powers of two."""
    full = window_ref.shape[0]

    def copy(offset: Any, count: int) -> Any:
        return pltpu.make_async_copy(
            window_ref.at[pl.ds(offset, count)], hbm_ref.at[pl.ds(start + offset, count)], semaphore
        )

    holds = hbm_ref.shape[0]  # maybe less than a window: copies that cannot occur are left out
    if holds >= full:

        @pl.when(rows == full)
        def _() -> None:
            visit(copy(0, full))

    @pl.when(rows < full)
    def _() -> None:
        count = full // 2
        while count:
            if count <= holds:
                # The set bits above this one come first.
                @pl.when(rows & count != 0)
                def _(count: int = count) -> None:
                    visit(copy(rows & ~(2 * count - 1), count))

            count //= 2


class RaggedWriter:
    """Writes windows of differing numbers of rows to [T, H, D] in HBM, two in flight.

    Overlapping block outputs would race: a chunk of 5 tokens must not write the 59 behind them.
    buffer: [2, BT, H, D] VMEM; semaphores: [2] DMA; token_start, valid: [C] scalars.
    One step of a grid (C,) calls ``slot``, fills it, then calls ``send``.
    """

    def __init__(
        self, hbm: Any, buffer: Any, semaphores: Any, token_start: Any, valid: Any
    ) -> None:
        self._hbm, self._buffer, self._semaphores = hbm, buffer, semaphores
        self._start, self._valid = token_start, valid
        self._step, self._last = pl.program_id(0), pl.num_programs(0) - 1

    def _each(self, step: Any, visit: Any) -> None:
        slot = jax.lax.rem(step, 2)
        _copies(
            self._buffer.at[slot], self._hbm, self._start[step], self._valid[step],
            self._semaphores.at[slot], visit,
        )  # fmt: skip

    def slot(self) -> Any:
        """The window to fill at this step, once the copy from two steps ago has left it."""

        @pl.when(self._step >= 2)
        def _() -> None:
            self._each(self._step - 2, lambda copy: copy.wait())

        return self._buffer.at[jax.lax.rem(self._step, 2)]

    def send(self) -> None:
        """Starts this step's copy; at the last step, waits for all."""
        self._each(self._step, lambda copy: copy.start())

        @pl.when(self._step == self._last)
        def _() -> None:
            @pl.when(self._step >= 1)
            def _() -> None:
                self._each(self._step - 1, lambda copy: copy.wait())

            self._each(self._step, lambda copy: copy.wait())
