"""The learned map from kernel names to blocks: learning it, how injective it is, keeping it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from k3bench.attribution.blocks import BlockDefinition
from k3bench.attribution.composition import CheckOutcome, SourceFile, tidy
from k3bench.attribution.errors import MapError
from k3bench.attribution.events import Trace
from k3bench.attribution.graphs import captures, pair, refuse_replays
from k3bench.attribution.ranges import BlockColumn, blocks_of_dispatches
from k3bench.attribution.steps import count_steps
from k3bench.attribution.totals import counts_by_name

FORMAT = "k3bench block map"
VERSION = 1


@dataclass(frozen=True)
class BlockUse:
    """One block's use of a kernel name: dispatches per step, and its duration where known (us)."""

    block: str
    per_step: float
    mean_us: float | None
    median_us: float | None


@dataclass(frozen=True)
class MappedName:
    """A kernel name with every block that launches it.

    ``stray`` counts dispatches of the learning trace beyond a whole number per step: work of a
    prologue, outside of every range.
    """

    name: str
    uses: tuple[BlockUse, ...]
    collective: bool = False
    stray: int = 0

    @property
    def shared(self) -> bool:
        return len(self.uses) > 1

    @property
    def per_step(self) -> float:
        return sum(use.per_step for use in self.uses)

    @property
    def us_per_step(self) -> float | None:
        if any(use.mean_us is None for use in self.uses):
            return None
        return sum(use.per_step * (use.mean_us or 0.0) for use in self.uses)

    def spread(self) -> float | None:
        """Largest over smallest median duration among its blocks; None where not all are known."""
        medians = [use.median_us for use in self.uses]
        known = [median for median in medians if median is not None]
        if len(known) < len(medians) or not min(known, default=0.0) > 0:
            return None
        return max(known) / min(known)


@dataclass(frozen=True)
class Injectivity:
    """The part of non-collective work whose kernel name occurs in one block only, 0 to 1.

    ``time`` is None where the map was learned without durations.
    """

    dispatches: float
    time: float | None


@dataclass(frozen=True)
class BlockMap:
    """What `learn` makes and `apply` uses. ``scope`` is "graph" where it was learned from a
    capture, and then says nothing of work outside of the graph; else "step"."""

    definition: str
    scope: str
    steps: int
    names: tuple[MappedName, ...]
    sources: tuple[SourceFile, ...]
    checks: tuple[CheckOutcome, ...] = ()

    @property
    def dispatches_per_step(self) -> float:
        """All device work of a step, collectives among it."""
        return sum(entry.per_step for entry in self.names)

    @property
    def shared_names(self) -> tuple[MappedName, ...]:
        """Names of more than one block, without the collectives, most dispatches first."""
        found = [entry for entry in self.names if entry.shared and not entry.collective]
        return tuple(sorted(found, key=lambda entry: -entry.per_step))

    def injectivity(self) -> Injectivity:
        compute = [entry for entry in self.names if not entry.collective]
        unique = [entry for entry in compute if not entry.shared]
        times = [entry.us_per_step for entry in compute]
        known = [us for us in times if us is not None]
        time = None
        if len(known) == len(times) and sum(known) > 0:
            time = sum(entry.us_per_step or 0.0 for entry in unique) / sum(known)
        every = sum(entry.per_step for entry in compute)
        return Injectivity(sum(e.per_step for e in unique) / every if every else 0.0, time)

    def to_json(self) -> dict[str, Any]:
        injective = self.injectivity()
        return {
            "format": FORMAT,
            "version": VERSION,
            "definition": self.definition,
            "scope": self.scope,
            "steps": self.steps,
            "dispatches_per_step": tidy(self.dispatches_per_step),
            "injectivity": {"dispatches": injective.dispatches, "time": injective.time},
            "shared": [
                {
                    "name": entry.name,
                    "split": {use.block: tidy(use.per_step) for use in entry.uses},
                    "duration_spread": entry.spread(),
                }
                for entry in self.shared_names
            ],
            "names": [_name_json(entry) for entry in self.names],
            "checks": [check.to_json() for check in self.checks],
            "sources": [source.to_json() for source in self.sources],
        }


def learn_from_eager(
    trace: Trace, definition: BlockDefinition, *, steps: int | None = None
) -> BlockMap:
    """The map from an eager decode trace with ranges.

    Raises MapError where no range of the definition encloses any launch.
    """
    refuse_replays(trace)
    column = blocks_of_dispatches(trace, definition)
    if not column.in_range.any():
        raise MapError(
            f"{trace.label}: no kernel was launched inside a range or module of "
            f"{definition.name}: was the server run eagerly, with SGLANG_K3_PROF_RANGES=1?"
        )
    rows = np.arange(len(trace.device))
    counted, _ = count_steps(trace, counts_by_name(trace, rows), definition, "decode", stated=steps)
    return BlockMap(
        definition=definition.name,
        scope="step",
        steps=counted,
        names=tuple(_learned_names(trace, rows, column, definition, counted)),
        sources=(trace.source,),
    )


def learn_from_capture(
    capture: Trace, definition: BlockDefinition, replay: Trace | None = None
) -> BlockMap:
    """The map from a capture trace, with durations if its replay is given too.

    Raises PairingError where capture and replay differ, MapError for several captured graphs and
    no replay to choose by.
    """
    if replay is not None:
        paired = pair(capture, replay, definition)
        return BlockMap(
            definition=definition.name,
            scope="graph",
            steps=paired.replays,
            names=tuple(
                _learned_names(replay, paired.rows, paired.blocks, definition, paired.replays)
            ),
            sources=(capture.source, replay.source),
        )
    known = captures(capture, definition)
    if len(known) > 1:
        raise MapError(
            f"{capture.label}: {len(known)} graphs were captured: give the replay of one "
            "(--replay), so that its graph is learned"
        )
    counts: dict[str, dict[str, int]] = {}
    for name, block in zip(known[0].names, known[0].blocks, strict=True):
        uses = counts.setdefault(name, {})
        uses[block] = uses.get(block, 0) + 1
    return BlockMap(
        definition=definition.name,
        scope="graph",
        steps=1,
        names=tuple(
            MappedName(
                name,
                tuple(
                    BlockUse(block, count, None, None)
                    for block, count in sorted(uses.items(), key=lambda item: -item[1])
                ),
                definition.is_collective(name),
            )
            for name, uses in counts.items()
        ),
        sources=(capture.source,),
    )


def _learned_names(
    trace: Trace,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    column: BlockColumn,
    definition: BlockDefinition,
    steps: int,
) -> Iterable[MappedName]:
    width = len(column.names)
    keys = trace.device.name[rows] * width + column.index
    durations = trace.device.duration_us[rows]
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    uses: dict[str, list[BlockUse]] = {}
    strays: dict[str, int] = {}
    for key, group in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
        name, block = trace.strings[key // width], column.names[key % width]
        whole, stray = divmod(len(group), steps)
        # Only work outside of every range may start before the first step.
        lenient = stray and whole and not column.in_range[group].any()
        strays[name] = strays.get(name, 0) + (stray if lenient else 0)
        uses.setdefault(name, []).append(
            BlockUse(
                block,
                whole if lenient else len(group) / steps,
                float(durations[group].mean()),
                float(np.median(durations[group])),
            )
        )
    for name, found in uses.items():
        found.sort(key=lambda use: -use.per_step)
        yield MappedName(name, tuple(found), definition.is_collective(name), strays[name])


def save_map(block_map: BlockMap, path: Path) -> None:
    """Writes the map whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(block_map.to_json(), indent=1, ensure_ascii=False), "utf-8")
    part.replace(path)


def load_map(path: str | Path) -> BlockMap:
    """A map that `learn` wrote. Raises MapError for anything else, OSError where unreadable."""
    path = Path(path)
    try:
        data = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MapError(f"{path.name}: not JSON ({error}): give a map written by learn") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise MapError(f"{path.name}: not a block map: give one written by learn")
    if data.get("version") != VERSION:
        raise MapError(f"{path.name}: version {data.get('version')!r}: learn it again")
    try:
        return BlockMap(
            definition=str(data["definition"]),
            scope={"graph": "graph", "step": "step"}[data["scope"]],
            steps=int(data["steps"]),
            names=tuple(_name_from_json(entry) for entry in data["names"]),
            sources=tuple(
                SourceFile(str(s["name"]), int(s["size_bytes"]), str(s["sha256"]))
                for s in data["sources"]
            ),
            checks=tuple(
                CheckOutcome(str(c["name"]), c["status"], str(c["detail"])) for c in data["checks"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MapError(
            f"{path.name}: not a sound map ({type(error).__name__}: {error}): learn it again"
        ) from None


def _name_json(entry: MappedName) -> dict[str, Any]:
    return {
        "name": entry.name,
        "collective": entry.collective,
        "stray": entry.stray,
        "blocks": {
            use.block: {
                "per_step": tidy(use.per_step),
                "mean_us": use.mean_us,
                "median_us": use.median_us,
            }
            for use in entry.uses
        },
    }


def _name_from_json(entry: dict[str, Any]) -> MappedName:
    uses = tuple(
        BlockUse(
            str(block),
            _amount(use["per_step"]),
            None if use["mean_us"] is None else _amount(use["mean_us"]),
            None if use["median_us"] is None else _amount(use["median_us"]),
        )
        for block, use in entry["blocks"].items()
    )
    if not uses or not sum(use.per_step for use in uses) > 0:
        raise ValueError(f"{str(entry['name'])[:60]!r} belongs to no block")
    return MappedName(str(entry["name"]), uses, bool(entry["collective"]), int(entry["stray"]))


def _amount(value: Any) -> float:
    amount = float(value)
    if not 0 <= amount < 1e15:
        raise ValueError(f"{value!r} is no count or time")
    return amount
