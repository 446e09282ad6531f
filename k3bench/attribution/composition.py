"""What attribution answers: the composition of one decode step or one prefill, block by block."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "failed", "skipped"]
Phase = Literal["decode", "prefill"]

OK: Status = "ok"
FAILED: Status = "failed"
SKIPPED: Status = "skipped"


@dataclass(frozen=True)
class BlockShare:
    """One block's part of a step (decode) or of a forward pass (prefill).

    ``dispatches`` and ``us`` are per step; ``share`` is a fraction of the composition's
    ``total_us``, 0 to 1. ``layers`` is how many layers of the model have this block, where the
    block definition says so. ``shared_us`` is the part of ``us`` that came from kernels whose name
    also belongs to another block, that is, the part which rests on a split and not on a name.
    """

    name: str
    dispatches: float
    us: float
    share: float
    layers: int | None = None
    shared_us: float = 0.0

    @property
    def us_per_layer(self) -> float | None:
        return self.us / self.layers if self.layers else None


@dataclass(frozen=True)
class CheckOutcome:
    """One check: its name, how it went, and what was expected and found.

    ``skipped`` means that the check had nothing to compare with; the detail says what was missing.
    """

    name: str
    status: Status
    detail: str

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status, "detail": self.detail}


@dataclass(frozen=True)
class SourceFile:
    """A trace that went in: its file name (no directory), size in bytes and SHA-256."""

    name: str
    size_bytes: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "size_bytes": self.size_bytes, "sha256": self.sha256}


@dataclass(frozen=True)
class KernelShare:
    """One kernel name within one block; ``dispatches`` and ``us`` are per step.

    ``shared`` says that the name also occurs in another block; ``split`` then says how its
    dispatches were divided ("by position", "by count", "by eager ratio") and is empty otherwise.
    """

    name: str
    block: str
    dispatches: float
    us: float
    shared: bool = False
    split: str = ""

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "name": self.name,
            "block": self.block,
            "dispatches": tidy(self.dispatches),
            "us": self.us,
            "shared": self.shared,
        }
        return {**row, "split": self.split} if self.split else row


@dataclass(frozen=True)
class Unmapped:
    """Device work of the trace that no block owns; per step."""

    name: str
    dispatches: float
    us: float

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "dispatches": tidy(self.dispatches), "us": self.us}


@dataclass(frozen=True)
class Composition:
    """How one step (decode) or one forward pass over a prompt (prefill) divides into blocks.

    ``total_us`` is the device time per step that the shares add up to: compute only for decode,
    collectives included where the caller asked for them. ``excluded_us`` is the time per step of
    the collectives left out and ``outside_us`` the time per step of device work in the trace that
    belongs to no step (eager kernels between two graph replays). ``method`` is how kernels found
    their blocks: "ranges", "paired" or "map". ``measured_us`` is an independently measured ITL or
    TTFT, if one was given. ``device`` is the device's name as the trace gives it.
    """

    label: str
    phase: Phase
    device: str
    steps: int
    blocks: tuple[BlockShare, ...]
    total_us: float
    method: str
    definition: str
    sources: tuple[SourceFile, ...]
    unmapped: tuple[Unmapped, ...] = ()
    checks: tuple[CheckOutcome, ...] = ()
    kernels: tuple[KernelShare, ...] = ()
    excluded_us: float = 0.0
    excluded_dispatches: float = 0.0
    outside_us: float = 0.0
    input_tokens: int | None = None
    chunks: int | None = None
    measured_us: float | None = None
    notes: tuple[str, ...] = ()
    kind: Literal["measured"] = field(default="measured")

    @property
    def passed(self) -> bool:
        """No check failed (a skipped check does not fail)."""
        return all(check.status != FAILED for check in self.checks)

    @property
    def dispatches(self) -> float:
        """Dispatches per step over all blocks, collectives not among them unless included."""
        return sum(block.dispatches for block in self.blocks)

    def block(self, name: str) -> BlockShare | None:
        """The named block, or None where the composition has no such block."""
        return next((block for block in self.blocks if block.name == name), None)

    def to_json(self, *, kernels: bool = False) -> dict[str, Any]:
        """Plain JSON; times in microseconds, shares as fractions. ``kernels`` adds every name."""
        found: dict[str, Any] = {
            "label": self.label,
            "kind": self.kind,
            "phase": self.phase,
            "device": self.device,
            "definition": self.definition,
            "method": self.method,
            "steps": self.steps,
            "blocks": {block.name: _block_json(block) for block in self.blocks},
            "total_us": self.total_us,
            "dispatches": tidy(self.dispatches),
            "unmapped": [row.to_json() for row in self.unmapped],
            "checks": [check.to_json() for check in self.checks],
            "collectives_excluded": {
                "dispatches": tidy(self.excluded_dispatches),
                "us": self.excluded_us,
            },
            "outside_steps_us": self.outside_us,
            "input_tokens": self.input_tokens,
            "chunks": self.chunks,
            "measured_us": self.measured_us,
            "notes": list(self.notes),
            "sources": [source.to_json() for source in self.sources],
        }
        if kernels:
            found["kernels"] = [row.to_json() for row in self.kernels]
        return found


def _block_json(block: BlockShare) -> dict[str, Any]:
    row: dict[str, Any] = {
        "dispatches": tidy(block.dispatches),
        "us": block.us,
        "share": block.share,
    }
    if block.layers is not None:
        row["layers"] = block.layers
        row["us_per_layer"] = block.us_per_layer
    if block.shared_us:
        row["shared_us"] = block.shared_us
    return row


def tidy(count: float) -> float | int:
    """A count as an int where it is one: 69, not 69.0."""
    return int(count) if float(count).is_integer() else count


def make_blocks(
    totals: Sequence[tuple[str, float, float, float]],
    layers: dict[str, int] | None = None,
) -> tuple[tuple[BlockShare, ...], float]:
    """Blocks with their shares, and the total, from (name, dispatches, us, shared_us) per step."""
    total = sum(us for _, _, us, _ in totals)
    return tuple(
        BlockShare(
            name, dispatches, us, us / total if total else 0.0, (layers or {}).get(name), shared_us
        )
        for name, dispatches, us, shared_us in totals
    ), total
