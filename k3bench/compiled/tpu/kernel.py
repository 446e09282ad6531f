"""One scheduled program, executed: cycles, stalls, slots, spills, bytes, and what they went on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from k3bench.compiled.errors import CompiledFormatError
from k3bench.compiled.tpu.breakdown import CATEGORIES, bundle_shares
from k3bench.compiled.tpu.bundles import parse_bundles
from k3bench.compiled.tpu.control import execute
from k3bench.compiled.tpu.utilization import parse_utilization


@dataclass(frozen=True)
class KernelFigures:
    """What one call of one kernel costs, as the compiler scheduled it.

    Attributes:
        name: the HLO instruction's.
        cycles: bundles issued, every loop counted as often as it runs, stalls included.
        stall_cycles: empty bundles among them.
        trips: passes through the first loop, 1 where there is none (a Pallas grid has its steps,
            plus the two in which its pipeline fills and drains).
        slot_uses: uses of each slot over the call.
        spill_stores, spill_fills: vector registers written to and read back from VMEM.
        read_bytes, written_bytes: HBM traffic of the DMAs issued.
        category_cycles: cycles by category (breakdown.CATEGORIES); they sum to ``cycles``.
        assumed_regions, assumed_dmas: guards that were not known and counted as taken.
        untyped_dmas: DMAs whose direction the dump does not state; they are not in the bytes.
        schedule_sha256: of the schedule's instructions, comments left out.
    """

    name: str
    cycles: int
    stall_cycles: int
    trips: int
    slot_uses: Mapping[str, int]
    spill_stores: int
    spill_fills: int
    read_bytes: int
    written_bytes: int
    category_cycles: Mapping[str, float]
    assumed_regions: int
    assumed_dmas: int
    untyped_dmas: int
    schedule_sha256: str

    def slot_shares(self, slots: Mapping[str, int]) -> dict[str, float]:
        """Share of each slot's capacity that is used; ``slots``: capacities per bundle."""
        return {slot: self.slot_uses[slot] / (slots[slot] * self.cycles) for slot in slots}


def analyse(
    name: str,
    schedule: str,
    utilization: str,
    slots: Mapping[str, int],
    operands: Mapping[int, Sequence[int]] | None = None,
) -> KernelFigures:
    """The figures of one kernel from its two dumps.

    Args:
        name: the kernel's.
        schedule: text of its ``packed-bundles-post-ra`` dump.
        utilization: text of its ``hlo-static-per-bundle-utilization`` dump.
        slots: capacities per bundle.
        operands: known values of integer operands, by operand index.

    Raises:
        CompiledFormatError: the dumps are not understood or do not fit each other.
    """
    bundles = parse_bundles(schedule, name)
    used = parse_utilization(utilization, slots, name)
    if len(used) != len(bundles):
        raise CompiledFormatError(
            f"{name}: {len(bundles)} bundles in the schedule, {len(used)} in the utilization"
        )
    execution = execute(bundles, name, operands)
    counts = np.array(execution.counts, np.int64)
    uses = dict(zip(slots, (int(n) for n in counts @ used), strict=True))
    shares = bundle_shares(bundles)
    stalled = shares[:, CATEGORIES.index("stall")] == 1.0
    heads = [n for n, bundle in zip(counts, bundles, strict=True) if bundle.label == "LB"]
    opcodes = [i.opcode for bundle in bundles for i in bundle.instructions]
    text = "\n".join(
        f"{i.dest} {i.opcode} {i.predicate} {i.operands} {i.target}"
        for bundle in bundles
        for i in bundle.instructions
    )
    return KernelFigures(
        name=name,
        cycles=int(counts.sum()),
        stall_cycles=int(counts[stalled].sum()),
        trips=int(heads[0]) if heads else 1,
        slot_uses=uses,
        spill_stores=uses["SPILL"],
        spill_fills=uses["FILL"],
        read_bytes=execution.read_bytes,
        written_bytes=execution.written_bytes,
        category_cycles=dict(zip(CATEGORIES, map(float, counts @ shares), strict=True)),
        assumed_regions=execution.assumed_regions,
        assumed_dmas=execution.assumed_dmas,
        untyped_dmas=opcodes.count("dma.general"),
        schedule_sha256=sha256(text.encode()).hexdigest(),
    )
