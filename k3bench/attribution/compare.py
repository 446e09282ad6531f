"""Two forward passes, or two traces, kernel by kernel; and the MLA form of each by its launch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from k3bench.attribution.blocks import BlockDefinition, MlaForm
from k3bench.attribution.errors import RequestError
from k3bench.attribution.events import ABSENT, Ints, Trace
from k3bench.attribution.totals import counts_by_name


@dataclass(frozen=True)
class KernelDelta:
    """One kernel name in both passes; counts and microseconds over the whole pass."""

    name: str
    first_count: int
    second_count: int
    first_us: float
    second_us: float

    @property
    def ratio(self) -> float | None:
        """Second over first time; None where the first has none."""
        return self.second_us / self.first_us if self.first_us else None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "first": {"dispatches": self.first_count, "us": self.first_us},
            "second": {"dispatches": self.second_count, "us": self.second_us},
            "ratio": self.ratio,
        }


@dataclass(frozen=True)
class MlaLaunch:
    """The MLA prefill attention of one pass, as its launch geometry tells.

    ``query_tokens`` are this pass's tokens, ``prefix_tokens`` those before it; ``pairs`` the
    query-key pairs under the causal mask; ``flop_per_layer`` 2 * pairs * heads * (qk + v).
    ``form`` is "unknown" with the reason in ``detail`` where no rule fits.
    """

    form: str
    detail: str
    grid: tuple[int, ...]
    block_m: int | None
    dispatches: int
    us: float
    query_tokens: int | None
    prefix_tokens: int | None
    pairs: float | None = None
    flop_per_layer: float | None = None

    @property
    def us_per_layer(self) -> float:
        return self.us / self.dispatches

    @property
    def flop_per_s(self) -> float | None:
        if self.flop_per_layer is None:
            return None
        return self.flop_per_layer / (self.us_per_layer * 1e-6)

    def to_json(self) -> dict[str, Any]:
        return {
            "form": self.form,
            "detail": self.detail,
            "grid": list(self.grid),
            "block_m": self.block_m,
            "dispatches": self.dispatches,
            "us_per_layer": self.us_per_layer,
            "query_tokens": self.query_tokens,
            "prefix_tokens": self.prefix_tokens,
            "query_key_pairs": self.pairs,
            "flop_per_layer": self.flop_per_layer,
            "flop_per_s": self.flop_per_s,
        }


@dataclass(frozen=True)
class Side:
    """One of the two that are compared: a pass of a trace, or all of it."""

    label: str
    dispatches: int
    us: float
    mla: MlaLaunch | None

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "dispatches": self.dispatches,
            "us": self.us,
            "mla": None if self.mla is None else self.mla.to_json(),
        }


@dataclass(frozen=True)
class Comparison:
    """``deltas`` holds every kernel name of either side, largest change of time first."""

    first: Side
    second: Side
    deltas: tuple[KernelDelta, ...]

    @property
    def only_first(self) -> tuple[KernelDelta, ...]:
        return tuple(row for row in self.deltas if not row.second_count)

    @property
    def only_second(self) -> tuple[KernelDelta, ...]:
        return tuple(row for row in self.deltas if not row.first_count)

    @property
    def in_both(self) -> tuple[KernelDelta, ...]:
        return tuple(row for row in self.deltas if row.first_count and row.second_count)

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first.to_json(),
            "second": self.second.to_json(),
            "only_first": [row.to_json() for row in self.only_first],
            "only_second": [row.to_json() for row in self.only_second],
            "in_both": [row.to_json() for row in self.in_both],
        }


def split_passes(trace: Trace, definition: BlockDefinition) -> list[Ints]:
    """Rows of the device table of each forward pass: from one boundary kernel to the next.

    Work before the first boundary belongs to no pass. Raises RequestError where the definition
    names no boundary, or the trace has none.
    """
    boundary = definition.forward_boundary
    if boundary is None:
        raise RequestError(
            f"{definition.name} names no forward boundary ([forward] boundary = [...])"
        )
    ids = [n for n, name in enumerate(trace.strings) if boundary.search(name)]
    starts = np.flatnonzero(np.isin(trace.device.name, ids))
    if not len(starts):
        raise RequestError(f"{trace.label}: no kernel {boundary.pattern}, where a pass would begin")
    return np.split(np.arange(len(trace.device)), starts)[1:]


def compare_rows(
    first: tuple[Trace, Ints, str],
    second: tuple[Trace, Ints, str],
    definition: BlockDefinition,
    *,
    tokens: tuple[int | None, int | None] = (None, None),
    prefixes: tuple[int, int] = (0, 0),
) -> Comparison:
    """Compares rows of one trace with rows of another, or of the same, by kernel name.

    ``tokens`` and ``prefixes``: query tokens of each pass and tokens before it, for the MLA form.
    """
    counts = [counts_by_name(trace, rows) for trace, rows, _ in (first, second)]
    deltas = [
        KernelDelta(name, a[0], b[0], a[1], b[1])
        for name in counts[0] | counts[1]
        for a, b in [(counts[0].get(name, (0, 0.0)), counts[1].get(name, (0, 0.0)))]
    ]
    deltas.sort(key=lambda row: (-abs(row.second_us - row.first_us), row.name))
    sides = [
        Side(
            label,
            len(rows),
            float(trace.device.duration_us[rows].sum()),
            mla_launch(trace, rows, definition, tokens[n], prefixes[n]),
        )
        for n, (trace, rows, label) in enumerate((first, second))
    ]
    return Comparison(sides[0], sides[1], tuple(deltas))


def mla_launch(
    trace: Trace, rows: Ints, definition: BlockDefinition, tokens: int | None, prefix: int
) -> MlaLaunch | None:
    """The MLA prefill attention among ``rows``; None where no rule's kernel is among them."""
    forms = definition.mla_forms
    ids = [n for n, name in enumerate(trace.strings) if any(f.kernels.search(name) for f in forms)]
    found = rows[np.isin(trace.device.name[rows], ids)]
    if not len(found):
        return None
    us = float(trace.device.duration_us[found].sum())
    grids = Counter(trace.device.grid[found].tolist())
    if ABSENT in grids:
        detail = "the trace has no launch grids (graph replays on ROCm carry none)"
        return MlaLaunch("unknown", detail, (), None, len(found), us, tokens, prefix)
    if len(grids) > 1:
        shapes = ", ".join(str(list(trace.geometries[g])) for g in list(grids)[:3])
        detail = f"{len(grids)} different grids in one pass: {shapes}"
        return MlaLaunch("unknown", detail, (), None, len(found), us, tokens, prefix)
    grid = trace.geometries[next(iter(grids))]
    if tokens is None:
        detail = "BLOCK_M = tokens / grid z needs the tokens of the pass (--chunk-tokens)"
        return MlaLaunch("unknown", detail, grid, None, len(found), us, None, prefix)
    fitting = [form for form in forms if len(grid) == 3 and _fits(form, tokens, grid[2])]
    if len(fitting) != 1:
        detail = f"grid {list(grid)} over {tokens} tokens fits {len(fitting)} of {len(forms)} forms"
        return MlaLaunch("unknown", detail, grid, None, len(found), us, tokens, prefix)
    form = fitting[0]
    pairs = tokens * prefix + tokens * tokens / 2
    heads = definition.attention_heads or grid[1]
    return MlaLaunch(
        form=form.form,
        detail=f"BLOCK_M {form.block_m}: head dims {form.qk_dim}/{form.v_dim}",
        grid=grid,
        block_m=form.block_m,
        dispatches=len(found),
        us=us,
        query_tokens=tokens,
        prefix_tokens=prefix,
        pairs=pairs,
        flop_per_layer=2 * pairs * heads * (form.qk_dim + form.v_dim),
    )


def _fits(form: MlaForm, tokens: int, grid_z: int) -> bool:
    return -(-tokens // form.block_m) == grid_z


def pass_tokens(
    number: int, chunk_tokens: int | None, input_tokens: int | None
) -> tuple[int | None, int]:
    """(query tokens, prefix tokens) of the pass ``number``, from 0, of a chunked prefill."""
    if chunk_tokens is None:
        return None, 0
    prefix = number * chunk_tokens
    if input_tokens is None:
        return chunk_tokens, prefix
    return max(0, min(chunk_tokens, input_tokens - prefix)) or None, prefix


def choose_passes(passes: Sequence[Ints], label: str, wanted: tuple[int, int]) -> list[Ints]:
    """The two passes asked for, counted from 1. Raises RequestError where there are not so many."""
    if max(wanted) > len(passes):
        raise RequestError(
            f"{label}: {len(passes)} forward pass{'es' if len(passes) != 1 else ''}, so no pass "
            f"{max(wanted)}: give a second trace, or a prefill of more than one chunk"
        )
    return [passes[n - 1] for n in wanted]
