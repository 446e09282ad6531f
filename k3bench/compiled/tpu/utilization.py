"""Reads how many slots each scheduled bundle uses, of each of the ten kinds."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from k3bench.compiled.errors import CompiledFormatError

# Column heads of the dump, in order, and our name of each.
_HEADS = {
    "MXU": "MXU",
    "XLU": "XLU",
    "VALU": "VALU",
    "VPOP": "VPOP",
    "EUP": "EUP",
    "VLOAD": "VLOAD",
    "VLOAD:FILL": "FILL",
    "VSTORE": "VSTORE",
    "VSTORE:SPILL": "SPILL",
    "SALU": "SALU",
}


def parse_utilization(text: str, slots: Mapping[str, int], name: str) -> NDArray[np.int64]:
    """Slots used, [bundles, 10] in the order of ``slots``.

    slots: the target's capacities, which the dump must state; name: the kernel's, for messages.
    Raises CompiledFormatError for other columns, other capacities, or a row beyond them.
    """
    head, separator, body = text.partition("== UTILIZATION:")
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    if not separator or len(lines) != 3:
        raise CompiledFormatError(f"{name}: the utilization dump has another layout")
    columns = [_HEADS.get(column.strip(), "") for column in lines[1].split(",")]
    if columns != list(slots):
        raise CompiledFormatError(
            f"{name}: utilization columns are {lines[1]!r}, expected {', '.join(_HEADS)}"
        )
    capacities = [int(word) for word in lines[2].split()]
    if capacities != list(slots.values()):
        raise CompiledFormatError(
            f"{name}: the dump states capacities {capacities}, the target "
            f"{list(slots.values())}: correct k3bench/compiled/tpu/targets.py"
        )
    try:
        rows = np.array([line.split() for line in body.split("\n") if line.strip()], np.int64)
    except ValueError as error:
        raise CompiledFormatError(f"{name}: utilization rows are not ten integers") from error
    if rows.ndim != 2 or rows.shape[1] != len(capacities):
        raise CompiledFormatError(f"{name}: utilization rows are not ten integers")
    if (rows < 0).any() or (rows > np.array(capacities)).any():
        raise CompiledFormatError(f"{name}: a bundle uses more slots than there are")
    return rows
