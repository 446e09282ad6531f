"""Writing tiles of differing numbers of tokens to [T, H, V] in HBM, two of them in flight.

A tile of 5 tokens must not write the 59 rows behind them, and a copy's size is static: it goes out
whole or in powers of two. Every condition is one comparison with a scalar that says how many rows
to move, none at the ends of the grid: conditions within conditions cost 16 cycles a copy and step.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


class TileWriter:
    """Of one step of a grid (C + behind,), which writes the tile of ``behind`` steps ago.

    hbm: [T, H, V]; buffer: [2, R, H, V] VMEM; semaphores: [2] DMA; token_start, valid: [C] scalars.
    A step calls ``slot``, fills it, then calls ``send``.
    """

    def __init__(
        self, hbm: Any, buffer: Any, semaphores: Any, token_start: Any, valid: Any, behind: int
    ) -> None:
        self._hbm, self._buffer, self._semaphores = hbm, buffer, semaphores
        self._start, self._valid, self._behind = token_start, valid, behind
        self._step, self._last = pl.program_id(0), pl.num_programs(0) - 1

    def slot(self) -> Any:
        """[R, H, V] to fill at this step, once the copy from two steps ago has left it."""
        self._visit(2, lambda copy: copy.wait())
        return self._buffer.at[jax.lax.rem(self._step, 2)]

    def send(self) -> None:
        """Starts this step's copy; at the last step, waits for all."""
        self._visit(0, lambda copy: copy.start())

        @pl.when(self._step == self._last)
        def _() -> None:
            # A loop is jumped over; waits without one would be passed one by one at every step.
            @pl.loop(0, 2)
            def _(ago: Any) -> None:
                self._visit(ago, lambda copy: copy.wait())

    def _visit(self, ago: Any, visit: Callable[[Any], None]) -> None:
        """The copies of the step ``ago`` steps ago: one of all rows, or of powers of two."""
        slot = jax.lax.rem(self._step + ago, 2)
        tile = self._step - ago - self._behind
        here = jnp.maximum(tile, 0)
        start, rows = self._start[here], jnp.where(tile >= 0, self._valid[here], 0)
        full = self._buffer.shape[1]
        part = jnp.where(rows < full, rows, 0)
        for count in (full >> n for n in range(full.bit_length())):
            if count > self._hbm.shape[0]:  # it cannot occur
                continue
            whole = count == full
            # Of a part, the set bits above this one come first.
            offset = 0 if whole else part & ~(2 * count - 1)

            @pl.when(rows == full if whole else part & count != 0)
            def _(count: int = count, offset: Any = offset) -> None:
                visit(
                    pltpu.make_async_copy(
                        self._buffer.at[slot, pl.ds(offset, count)],
                        self._hbm.at[pl.ds(start + offset, count)],
                        self._semaphores.at[slot],
                    )
                )
