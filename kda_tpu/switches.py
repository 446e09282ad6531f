"""The five switches of the optimisation ladder, which combinations exist, and the named rungs."""

import dataclasses
from dataclasses import dataclass

from kda_tpu.errors import KdaArgumentError
from kda_tpu.gate import Gate

HEAD_GROUP = 8  # head_block: heads fill whole sublane tiles of the native layout

# What each switch stands on. safe_gate stands alone: it changes arithmetic, the others structure.
_NEEDS = {
    "unified_layout": ("fuse",),
    "flat_grid": ("fuse", "unified_layout"),
    "head_block": ("fuse", "unified_layout", "flat_grid"),
}


@dataclass(frozen=True)
class Switches:
    """One point of the ladder. All off is ``original``.

    safe_gate
        Scores by strip GEMMs and the solve on the MXU. Off: the decay of every pair spelt out.
        Only gates with a known bound can take it: see ``for_case``.
    fuse
        Two kernels: gate, cumsum and intra-chunk; recurrence and output.
    unified_layout
        Both kernels share one transposed layout; no gather and no scatter. Needs fuse.
    flat_grid
        The recurrence walks the real chunks of all sequences. Needs unified_layout.
    head_block
        All heads of a chunk in one grid step of one kernel, on the native layout. Needs flat_grid;
        falls back to it, with identical numbers, where heads are not a multiple of 8.

    Raises KdaArgumentError for a combination that does not exist.
    """

    safe_gate: bool = False
    fuse: bool = False
    unified_layout: bool = False
    flat_grid: bool = False
    head_block: bool = False

    def __post_init__(self) -> None:
        for name, needs in _NEEDS.items():
            missing = [need for need in needs if not getattr(self, need)]
            if getattr(self, name) and missing:
                raise KdaArgumentError(
                    f"switches.{name} is on without {', '.join(missing)}: it builds on "
                    f"{'them' if len(missing) > 1 else 'it'}, so switch that on too"
                )

    def for_case(self, gate: Gate, heads: int) -> "Switches":
        """What actually runs: the same numbers, fewer switches, where a switch cannot apply.

        A gate without a known bound never takes safe_gate, nor head_block, which builds on it
        (its pairwise decays of all heads would not fit VMEM). Heads that do not fill groups of 8
        do not take head_block.
        """
        found = self
        if self.safe_gate and not gate.is_bounded:
            found = dataclasses.replace(found, safe_gate=False, head_block=False)
        if heads % HEAD_GROUP:
            found = dataclasses.replace(found, head_block=False)
        return found

    @property
    def label(self) -> str:
        """The switches that are on, joined by ``+``; ``none`` if all are off."""
        on = [field.name for field in dataclasses.fields(self) if getattr(self, field.name)]
        return "+".join(on) or "none"


# Cumulative: each rung switches one more on than the rung before.
RUNGS = {
    "mxu_port": Switches(safe_gate=True),
    "fused": Switches(True, fuse=True),
    "unified": Switches(True, fuse=True, unified_layout=True),
    "flat": Switches(True, fuse=True, unified_layout=True, flat_grid=True),
    "optimized": Switches(True, True, True, True, True),
}


def legal_switches() -> tuple[Switches, ...]:
    """Every combination that exists, from none to all."""
    count = len(dataclasses.fields(Switches))
    found = []
    for bits in range(1 << count):
        try:
            found.append(Switches(*(bool(bits >> i & 1) for i in range(count))))
        except KdaArgumentError:
            continue
    return tuple(found)
