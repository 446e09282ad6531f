"""How often every bundle of a kernel runs: its scalar program is executed, nothing is estimated.

Grid loops, pl.when regions and DMAs are steered by the scalar unit, whose program the dump holds
whole. The part of it that branches and DMA guards depend on is cut out, turned into Python and
run, with the kernel's scalar-prefetch operands as the caller knows them. What depends on anything
else is unknown: an unknown guard counts as executed (the worst case) and is reported as assumed;
an unknown loop exit is an error.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3bench.compiled.errors import CompiledFormatError
from k3bench.compiled.tpu import scalar
from k3bench.compiled.tpu.bundles import Bundle, Instruction, virtual
from k3bench.compiled.tpu.memory import ScalarMemory, operand_index

BRANCH_DELAY_BUNDLES = 4
GRANULE_BYTES = 32
# A 64 x 1,024-token batch runs about two million blocks; more than this is a loop gone wrong.
MAX_BLOCK_EXECUTIONS = 200_000_000

# The first operand of these is the source, the second the size.
_DMA = re.compile(r"dma\.(\w+)_to_(\w+)")


@dataclass(frozen=True)
class Execution:
    """One call of a kernel.

    Attributes:
        counts: executions of each bundle, by address.
        read_bytes, written_bytes: HBM traffic of the DMAs that were issued.
        assumed_regions: predicated regions that were counted as executed without being known to.
        assumed_dmas: DMAs that were counted without their guard or size being known.
    """

    counts: tuple[int, ...]
    read_bytes: int
    written_bytes: int
    assumed_regions: int
    assumed_dmas: int


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    end: int
    branch: Instruction | None


def execute(
    bundles: Sequence[Bundle], name: str, operands: Mapping[int, Sequence[int]] | None = None
) -> Execution:
    """Runs the control flow of one kernel.

    Args:
        bundles: the schedule.
        name: the kernel's, for messages.
        operands: known values of its integer operands, flattened, by operand index.

    Raises:
        CompiledFormatError: a loop whose trip count the dump does not determine, or control flow
            of a form that is not understood.
    """
    blocks = _blocks(bundles, name)
    program = _Program(bundles, blocks, operands or {})
    namespace: dict[str, Any] = {
        key: getattr(scalar, key) for key in ("select", "either", "both", "negate", "lookup")
    }
    namespace |= {"UNKNOWN": scalar.UNKNOWN, "tables": dict(operands or {})}
    source = program.source()
    # The text is generated from a fixed table of operations: nothing of the dump enters it but
    # register numbers, integers, and names of allocations as quoted strings.
    exec(compile(source, f"<scalar program of {name}>", "exec"), namespace)
    block_counts = [0] * len(blocks)
    assumed = [False] * len(blocks)
    dmas = [[0, False] for _ in program.dmas]
    try:
        finished = namespace["run"](block_counts, assumed, dmas, MAX_BLOCK_EXECUTIONS)
    except TypeError as error:
        raise CompiledFormatError(f"{name}: {error}: a loop's trip count is not known") from error
    if not finished:
        raise CompiledFormatError(f"{name}: the control flow does not end")
    counts = [0] * len(bundles)
    for block, count in zip(blocks, block_counts, strict=True):
        for address in range(block.start, block.end):
            counts[address] = count
    read_bytes = written_bytes = 0
    for instruction, (granules, _) in zip(program.dmas, dmas, strict=True):
        source, destination = instruction.opcode.removeprefix("dma.").split("_to_")
        read_bytes += granules * GRANULE_BYTES * (source == "hbm")
        written_bytes += granules * GRANULE_BYTES * (destination == "hbm")
    return Execution(
        counts=tuple(counts),
        read_bytes=read_bytes,
        written_bytes=written_bytes,
        assumed_regions=sum(assumed),
        assumed_dmas=sum(bool(unknown) for _, unknown in dmas),
    )


def _blocks(bundles: Sequence[Bundle], name: str) -> list[_Block]:
    branches: dict[int, Instruction] = {}
    for address, bundle in enumerate(bundles):
        for instruction in bundle.instructions:
            if instruction.target is None:
                continue
            if address in branches:
                raise CompiledFormatError(f"{name}: two branches in bundle {address:#x}")
            branches[address] = instruction
    leaders = {0, len(bundles)}
    for address, branch in branches.items():
        assert branch.target is not None
        leaders |= {address + 1 + BRANCH_DELAY_BUNDLES, branch.target}
    if max(leaders) > len(bundles):
        raise CompiledFormatError(f"{name}: a branch leads past the last bundle")
    edges = sorted(leaders)
    blocks = []
    for start, end in itertools.pairwise(edges):
        inside = [address for address in branches if start <= address < end]
        # A leader inside the delay slots, or a branch there, would need a finer model.
        if len(inside) > 1 or any(a + 1 + BRANCH_DELAY_BUNDLES != end for a in inside):
            raise CompiledFormatError(
                f"{name}: bundles {start:#x} to {end:#x}: a branch in, or a jump into, the delay "
                "slots of another"
            )
        blocks.append(_Block(start, end, branches[inside[0]] if inside else None))
    return blocks


class _Program:
    """The slice of the scalar program that control flow depends on, as Python source."""

    def __init__(
        self,
        bundles: Sequence[Bundle],
        blocks: Sequence[_Block],
        operands: Mapping[int, Sequence[int]],
    ) -> None:
        self._bundles = bundles
        self._blocks = blocks
        self._operands = operands
        self._memory = ScalarMemory(bundles)
        self._definitions: dict[str, Instruction] = {}
        self._stores: dict[str, list[Instruction]] = {}
        self.dmas: list[Instruction] = []
        for bundle in bundles:
            for instruction in bundle.instructions:
                if instruction.opcode == "sst":
                    address = self._memory.address(instruction.operands[0])
                    if address is not None:
                        self._stores.setdefault(address.base, []).append(instruction)
                elif touches_hbm(instruction):
                    self.dmas.append(instruction)
                elif instruction.dest is not None and instruction.dest[0] in "sp":
                    self._definitions[instruction.dest] = instruction
        self._wanted_registers: set[str] = set()
        self._wanted_bases: set[str] = set()
        self._find_slice()

    def _find_slice(self) -> None:
        pending = [b.branch.predicate[0] for b in self._blocks if b.branch and b.branch.predicate]
        for dma in self.dmas:
            if dma.predicate is not None:
                pending.append(dma.predicate[0])
            pending += _registers(dma.operands[1:2])
        while pending:
            register = pending.pop()
            if register in self._wanted_registers:
                continue
            self._wanted_registers.add(register)
            definition = self._definitions.get(register)
            if definition is None:
                continue
            pending += _registers(definition.operands)
            if definition.opcode == "sld":
                address = self._memory.address(definition.operands[0])
                if address is not None and address.base not in self._wanted_bases:
                    self._wanted_bases.add(address.base)
                    for store in self._stores.get(address.base, ()):
                        pending += _registers(store.operands)
                        if store.predicate is not None:
                            pending.append(store.predicate[0])

    def source(self) -> str:
        """The text of ``run(counts, assumed, dmas, limit) -> finished``."""
        names = sorted(_python_name(register) for register in self._wanted_registers)
        lines = ["def run(counts, assumed, dmas, limit):"]
        lines += [f"    {name} = UNKNOWN" for name in names]
        lines += ["    memory = {}", "    block = 0", "    steps = 0", "    while steps < limit:"]
        lines += ["        steps += 1", "        counts[block] += 1"]
        for number, block in enumerate(self._blocks):
            lines.append(f"        {'if' if number == 0 else 'elif'} block == {number}:")
            lines += ["            " + line for line in self._block(number, block)]
        lines.append(f"        if block == {len(self._blocks)}:")
        lines.append("            return True")
        lines.append("    return False")
        return "\n".join(lines) + "\n"

    def _block(self, number: int, block: _Block) -> list[str]:
        lines: list[str] = []
        for bundle in self._bundles[block.start : block.end]:
            for instruction in bundle.instructions:
                lines += self._statement(instruction)
        onwards = [*self._enter(number + 1, backwards=False), f"block = {number + 1}"]
        branch = block.branch
        if branch is None:
            return lines + onwards
        target = next(i for i, b in enumerate(self._blocks) if b.start == branch.target)
        jump = [*self._enter(target, backwards=target <= number), f"block = {target}"]
        if branch.predicate is None:
            return lines + jump
        taken = _guard(branch.predicate)
        # Delay slots run before the jump, but the predicate is the one at the branch: registers
        # are written once an iteration, so its value is the same at the end of the block.
        if target > number:
            lines += [f"taken = {taken}", "if taken is UNKNOWN:"]
            lines += [f"    assumed[{number}] = True", "    taken = False"]
        else:
            lines += [f"taken = {taken}"]
        lines += ["if taken:", *("    " + line for line in jump)]
        return [*lines, "else:", *("    " + line for line in onwards)]

    def _enter(self, number: int, *, backwards: bool) -> list[str]:
        """The phi copies at a loop's head: entry value first, loop-carried value second."""
        if number >= len(self._blocks):
            return []
        block = self._blocks[number]
        targets, sources = [], []
        for bundle in self._bundles[block.start : block.end]:
            for instruction in bundle.instructions:
                if instruction.opcode != "sphi" or instruction.dest not in self._wanted_registers:
                    continue
                if len(instruction.operands) != 2:
                    raise CompiledFormatError(f"a phi with {len(instruction.operands)} sources")
                targets.append(_python_name(str(instruction.dest)))
                sources.append(self._value(instruction.operands[1 if backwards else 0]))
        return [f"{', '.join(targets)} = {', '.join(sources)}"] if targets else []

    def _statement(self, instruction: Instruction) -> list[str]:
        if instruction.opcode == "sst":
            return self._store(instruction)
        if touches_hbm(instruction):
            return self._dma(instruction)
        dest = instruction.dest
        if dest not in self._wanted_registers or instruction.opcode == "sphi":
            return []
        return [f"{_python_name(dest)} = {self._expression(instruction)}"]

    def _expression(self, instruction: Instruction) -> str:
        operands = instruction.operands
        if instruction.opcode == "sld":
            return self._load(operands[0])
        if instruction.opcode == "inlined_call_operand.":  # "<no memory space>": a scalar itself
            operand = operand_index(instruction)
            return f"lookup(tables.get({operand}), 0)" if operand is not None else "UNKNOWN"
        if instruction.opcode == "smov":
            if len(operands) == 2 and operands[0].startswith("("):  # smov (p, kept), new
                predicate, kept = operands[0].strip("()").split(",")
                chosen = self._value(predicate), self._value(operands[1]), self._value(kept)
                return "select({}, {}, {})".format(*chosen)
            return self._value(operands[0])
        make = scalar.EXPRESSIONS.get(instruction.opcode)
        return "UNKNOWN" if make is None else make([self._value(text) for text in operands])

    def _value(self, text: str) -> str:
        text = text.strip()
        if text.startswith("!"):
            return f"negate({self._value(text[1:])})"
        if text.startswith("%"):
            register = virtual(text)
            return _python_name(register) if register in self._wanted_registers else "UNKNOWN"
        if text.isdecimal():
            value = int(text)
            return str(value - (1 << 32) if value >= 1 << 31 else value)
        return "UNKNOWN"

    def _load(self, operand: str) -> str:
        address = self._memory.address(operand)
        if address is None:
            return "UNKNOWN"
        table = self._memory.table(address.base)
        if table is not None:
            index = "0" if address.register is None else self._value(f"%{address.register}")
            return f"lookup(tables.get({table}), {index} + {address.offset})"
        if address.register is not None:
            return "UNKNOWN"
        return f"memory.get(({address.base!r}, {address.offset}), UNKNOWN)"

    def _store(self, instruction: Instruction) -> list[str]:
        address = self._memory.address(instruction.operands[0])
        if address is None or address.base not in self._wanted_bases:
            return []
        if address.register is not None:  # somewhere in the allocation: forget all of it
            clear = f"if key[0] != {address.base!r}"
            return [f"memory = {{key: value for key, value in memory.items() {clear}}}"]
        place = f"memory[({address.base!r}, {address.offset})]"
        value = self._value(instruction.operands[1])
        if instruction.predicate is None:
            return [f"{place} = {value}"]
        kept = f"memory.get(({address.base!r}, {address.offset}), UNKNOWN)"
        return [f"{place} = select({_guard(instruction.predicate)}, {value}, {kept})"]

    def _dma(self, instruction: Instruction) -> list[str]:
        number = self.dmas.index(instruction)
        size = instruction.operands[1]
        if not size.startswith("granules="):
            raise CompiledFormatError(f"{instruction.opcode} without a size in granules")
        value = self._value(size.removeprefix("granules="))
        guard = "True" if instruction.predicate is None else _guard(instruction.predicate)
        return [
            f"wanted, size = {guard}, {value}",
            "if wanted is UNKNOWN or size is UNKNOWN:",
            f"    dmas[{number}][1] = True",
            "if wanted is UNKNOWN or wanted:",
            f"    dmas[{number}][0] += 0 if size is UNKNOWN else size",
        ]


def touches_hbm(instruction: Instruction) -> bool:
    """Whether it is a DMA from or to HBM (``dma.general`` says neither and is not counted)."""
    match = _DMA.fullmatch(instruction.opcode)
    return match is not None and "hbm" in match.groups()


def _registers(operands: Sequence[str]) -> list[str]:
    found = []
    for operand in operands:
        for piece in operand.replace("granules=", "").replace("(", " ").replace(")", " ").split():
            for word in piece.replace("[", " ").replace("]", " ").replace(",", " ").split():
                if word.lstrip("!").startswith(("%s", "%p")):
                    found.append(virtual(word.lstrip("!")))
    return found


def _guard(predicate: tuple[str, bool]) -> str:
    name = _python_name(predicate[0])
    return name if predicate[1] else f"negate({name})"


def _python_name(register: str) -> str:
    if not (register[0] in "sp" and register[1:].isdecimal()):
        raise CompiledFormatError(f"{register!r} is no scalar register")
    return f"r_{register}"
