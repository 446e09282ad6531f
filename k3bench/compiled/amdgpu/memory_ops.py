"""What a memory instruction moves: its space, its width, its counter, and where its address is."""

import functools
import re
from dataclasses import dataclass

from k3bench.compiled.amdgpu.isa import Instruction
from k3bench.compiled.errors import CompiledFormatError

_WIDTHS = {
    "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4,
    "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "dwordx8": 32, "dwordx16": 64,
}  # fmt: skip
_VECTOR = re.compile(
    r"^(global|buffer|flat|scratch)_(load|store)(_lds)?_(u?s?byte|u?s?short|dword(?:x\d+)?)"
    r"(?:_d16)?(?:_hi)?$"
)
_ATOMIC = re.compile(r"^(global|buffer|flat)_atomic_\w+?(_x2)?$")
_SCALAR = re.compile(r"^s_(?:buffer_)?load_(dword(?:x\d+)?)$")
_LOCAL = re.compile(r"^ds_(read|write|bpermute|permute|swizzle|add|max|min|or|and)\w*$")
_NO_TRANSFER = re.compile(r"^(buffer_(wbl2|inv|wbinvl1\w*|gl\w*)|s_dcache\w*|s_icache\w*)$")
_LOOKS_LIKE_MEMORY = re.compile(r"^(global|buffer|flat|scratch|ds|s_load|s_buffer|s_scratch)_?")


@dataclass(frozen=True)
class MemoryOperation:
    """One memory instruction of one wave.

    Attributes:
        space: ``global`` (buffer and flat included), ``scratch``, ``scalar`` or ``lds``.
        is_load: it brings data in; stores and atomics without a result do not.
        to_lds: the data goes to LDS without passing through registers.
        lane_bytes: of one lane; of the whole wave where ``scalar``; 0 where LDS.
        counter: which counter tracks it: ``vmcnt`` or ``lgkmcnt``.
        result: operand that receives the data; None for a store or a load into LDS.
        address: operands and modifiers that say where; equal text over equal register values is an
            equal address.
        data: operands that a store reads.
    """

    space: str
    is_load: bool
    to_lds: bool
    lane_bytes: int
    counter: str
    result: str | None
    address: tuple[str, ...]
    data: tuple[str, ...] = ()


@functools.lru_cache(maxsize=65536)
def memory_operation(instruction: Instruction) -> MemoryOperation | None:
    """What the instruction moves; None where it is none of memory's.

    Raises CompiledFormatError for one that looks like memory's and is not known.
    """
    mnemonic, operands = instruction.mnemonic, instruction.operands
    if vector := _VECTOR.match(mnemonic):
        prefix, direction, lds, width = vector.groups()
        words = instruction.modifiers.split()
        to_lds = bool(lds) or "lds" in words
        space = "scratch" if prefix == "scratch" else "global"
        placement = tuple(word for word in words if word != "lds")
        is_load = direction == "load"
        if is_load:
            result, address = (None, operands) if to_lds else (operands[0], operands[1:])
            data: tuple[str, ...] = ()
        elif prefix == "buffer":
            result, address, data = None, operands[1:], operands[:1]
        else:
            result, address, data = None, (operands[0], *operands[2:]), operands[1:2]
        return MemoryOperation(
            space, is_load, to_lds, _WIDTHS[width], "vmcnt", result, (*address, *placement), data
        )
    if atomic := _ATOMIC.match(mnemonic):
        # With a result ("sc0", "glc") it is waited for like a load; its bytes are no stream.
        returns = bool({"sc0", "glc"} & set(instruction.modifiers.split()))
        return MemoryOperation(
            "global", returns, False, 8 if atomic.group(2) else 4, "vmcnt",
            operands[0] if returns else None, operands[1:] if returns else operands,
        )  # fmt: skip
    if scalar := _SCALAR.match(mnemonic):
        return MemoryOperation(
            "scalar", True, False, _WIDTHS[scalar.group(1)], "lgkmcnt", operands[0], operands[1:]
        )
    if local := _LOCAL.match(mnemonic):
        brings = local.group(1) in ("read", "bpermute", "permute", "swizzle")
        return MemoryOperation(
            "lds", brings, False, 0, "lgkmcnt", operands[0] if brings else None,
            operands[1:] if brings else operands,
        )  # fmt: skip
    if _NO_TRANSFER.match(mnemonic) or not _LOOKS_LIKE_MEMORY.match(mnemonic):
        return None
    raise CompiledFormatError(f"memory instruction {mnemonic} is not known to this analysis")
