"""Scalar memory of a scheduled kernel: which allocations hold a table that the caller knows.

A Pallas kernel's scalar-prefetch operands (chunk tables, lengths) decide which regions of it run.
They lie in scalar memory, whole or after a copy; this finds where.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from k3bench.compiled.tpu.bundles import Bundle, Instruction, virtual

_OPERAND = re.compile(r"\[shape: \w+\[[\d,]*\], index: (\d+), kind: input")
_ADDRESS = re.compile(r"\[(?:smem:)?\[(.*)\]\]|\[(#.*)\]$")
# Pointers survive these unchanged (shifts by four turn granules into bytes).
_PASS_THROUGH = ("int_to_ptr", "sshll.u32", "smov")


@dataclass(frozen=True, slots=True)
class Address:
    """One place in scalar memory: an allocation or an operand, plus constant and register."""

    base: str
    offset: int
    register: str | None


class ScalarMemory:
    """Resolves pointers of one kernel. Operands are named ``operand:k``, allocations as printed."""

    def __init__(self, bundles: Iterable[Bundle]) -> None:
        self._definitions: dict[str, Instruction] = {}
        copies: list[Instruction] = []
        for bundle in bundles:
            for instruction in bundle.instructions:
                if instruction.dest is not None and instruction.dest.startswith("s"):
                    self._definitions[instruction.dest] = instruction
                if re.fullmatch(r"dma\.(vmem|hbm)_to_smem", instruction.opcode):
                    copies.append(instruction)
        self._table_of: dict[str, int] = {}
        for copy in copies:
            source = self.pointer(copy.operands[0])
            destination = self.pointer(copy.operands[2])
            if source and destination and source.startswith("operand:"):
                self._table_of[destination] = int(source.removeprefix("operand:"))

    def pointer(self, text: str, depth: int = 8) -> str | None:
        """What a register or an ``[#allocation3]`` points to; None where it is computed."""
        if "#allocation" in text:
            match = re.search(r"#allocation\w+", text)
            return match[0] if match else None
        definition = self._definitions.get(virtual(text))
        if definition is None or depth == 0:
            return None
        if definition.opcode.startswith("inlined_call_operand"):
            operand = operand_index(definition)
            return None if operand is None else f"operand:{operand}"
        if definition.opcode.startswith(_PASS_THROUGH) and definition.operands:
            # "[resolvable:$true] %s15_s11": the register is the last word.
            return self.pointer(definition.operands[0].split()[-1], depth - 1)
        return None

    def address(self, operand: str) -> Address | None:
        """``[smem:[#allocation4 + %s7 + $0x1]]`` taken apart; None for a computed base."""
        match = _ADDRESS.search(operand)
        if match is None:
            return None
        base, offset, register = None, 0, None
        for position, term in enumerate((match[1] or match[2]).split(" + ")):
            term = term.strip()
            if term.startswith("$"):
                offset += int(term[1:], 16)
            elif position == 0:
                base = self.pointer(term)
            elif register is None:
                register = virtual(term)
            else:
                return None
        return None if base is None else Address(base, offset, register)

    def table(self, base: str) -> int | None:
        """The operand whose values lie at ``base``, if any."""
        if base.startswith("operand:"):
            return int(base.removeprefix("operand:"))
        return self._table_of.get(base)


def operand_index(instruction: Instruction) -> int | None:
    """k of an ``inlined_call_operand`` that is input k; None for outputs."""
    match = _OPERAND.search(", ".join(instruction.operands))
    return None if match is None else int(match[1])
