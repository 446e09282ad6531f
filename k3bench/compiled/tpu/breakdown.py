"""What the cycles of a schedule were spent on: six categories that sum to one.

A bundle issues several operations at once, so its cycle is split evenly among the kinds of vector
work in it; a bundle counts as ``other`` only where scalar work is all it has. An empty bundle is a
stall: the schedule waits for a result.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from k3bench.compiled.tpu.bundles import Bundle

CATEGORIES = ("mxu", "vector", "layout", "memory", "other", "stall")

_MXU = ("vmatmul", "vmatprep", "vmatpush", "vmatres", "vdwg", "vlatch")
# Moves between lanes, sublanes and packings: what transposes, broadcasts and relayouts become.
_LAYOUT = (
    "vxpose",
    "vrot",
    "vbcast",
    "vperm",
    "vcombine",
    "vpack",
    "vunpack",
    "vshuffle",
    "vset.pattern",
    "vsetiar",
    "vpop.permute",
    "vpop.trf",
)
_MEMORY = ("vld", "vst", "dma.", "vsync", "vwait", "sld", "sst", "sfence")
_NOTHING = ("compiler-scheduling-barrier", "inlined_call_operand", "sphi")


def category(opcode: str) -> str | None:
    """The category of an operation; None for what issues nothing."""
    if opcode.startswith(_NOTHING):
        return None
    if opcode.startswith(_MXU) or (opcode.startswith("vpop") and ".mr" in opcode):
        return "mxu"
    if opcode.startswith(_LAYOUT):
        return "layout"
    if opcode.startswith(_MEMORY) and not opcode.startswith("vstv"):  # vstv: scalar to vector
        return "memory"
    return "vector" if opcode.startswith("v") else "other"


def bundle_shares(bundles: Sequence[Bundle]) -> NDArray[np.float64]:
    """[bundles, 6]: each bundle's cycle split among CATEGORIES; every row sums to one."""
    shares = np.zeros((len(bundles), len(CATEGORIES)))
    column = {name: index for index, name in enumerate(CATEGORIES)}
    for row, bundle in zip(shares, bundles, strict=True):
        kinds = [kind for i in bundle.instructions if (kind := category(i.opcode)) is not None]
        work = [kind for kind in kinds if kind != "other"] or kinds or ["stall"]
        for kind in work:
            row[column[kind]] += 1.0 / len(work)
    return shares
