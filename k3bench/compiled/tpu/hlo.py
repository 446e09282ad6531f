"""Reads optimised HLO text: which operations run, how often, where their operands lie."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from k3bench.compiled.errors import CompiledFormatError

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+)(?: \(.*\) -> .*)? \{$")
_LINE = re.compile(r"^  (ROOT )?%([\w.\-]+) = (.*)$")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)(?::([^}]*))?\})?")
_TILE = re.compile(r"T\(([\d,*]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")
_ITEM_BITS = {"pred": 8, "bf16": 16, "u4": 4, "s4": 4}
# These place, name or regroup values and run nothing.
_FREE = frozenset(
    [
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "copy-done",
        "slice-done",
        "after-all",
        "partition-id",
        "replica-id",
        "opt-barrier",
        "add-dependency",
        "while",
        "call",
    ]
)
_SAME_VALUE = frozenset({"copy", "bitcast", "copy-start", "copy-done", "reshape"})
MOSAIC_TARGET = 'custom_call_target="tpu_custom_call"'
HBM, VMEM = 0, 1


@dataclass(frozen=True)
class Array:
    """One array of a shape: physical bytes (padded to its tiles) and memory space."""

    bytes: int
    space: int


@dataclass(frozen=True)
class Instruction:
    """One line of HLO."""

    name: str
    opcode: str
    shape: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str

    @property
    def is_mosaic(self) -> bool:
        """Whether it is a Pallas TPU kernel."""
        return self.opcode == "custom-call" and MOSAIC_TARGET in self.attributes


@dataclass(frozen=True)
class Operation:
    """An operation that runs at top level or inside loops of the top level.

    Attributes:
        name: its HLO name, which the compiler's dumps carry.
        opcode: ``fusion``, ``copy``, ``custom-call``, ...
        runs: executions a call.
        hbm_bytes: its operands and results that lie in HBM, each counted once a run.
        estimated_cycles: the compiler's own estimate for one run, None where it states none.
        is_mosaic: whether it is a Pallas kernel.
        parameters: operand index to the entry parameter that it is, unchanged.
    """

    name: str
    opcode: str
    runs: int
    hbm_bytes: int
    estimated_cycles: int | None
    is_mosaic: bool
    parameters: Mapping[int, int] = field(default_factory=dict)


def parse_arrays(shape: str) -> tuple[Array, ...]:
    """The arrays of a printed shape, tuples flattened."""
    arrays = []
    for dtype, dims, order, layout in _ARRAY.findall(shape):
        if dtype == "token":
            continue
        space = _SPACE.search(layout)
        arrays.append(Array(_bytes(dtype, dims, order, layout), int(space[1]) if space else HBM))
    return tuple(arrays)


def _bytes(dtype: str, dims: str, order: str, layout: str) -> int:
    bits = _ITEM_BITS.get(dtype)
    if bits is None:
        match = re.fullmatch(r"[a-z]+?(\d+)\w*", dtype)
        if match is None:
            raise CompiledFormatError(f"HLO: unknown element type {dtype!r}")
        bits = int(match[1])
    sizes = [int(size) for size in dims.split(",") if size]
    minor_first = [sizes[int(index)] for index in order.split(",") if index] or sizes[::-1]
    tile = _TILE.search(layout)
    if tile and "*" not in tile[1]:
        # The tile covers the most minor dimensions, its last number the most minor one.
        for position, length in enumerate(reversed([int(n) for n in tile[1].split(",")])):
            if position < len(minor_first):
                minor_first[position] = -(-minor_first[position] // length) * length
    return prod(minor_first) * bits // 8


class Module:
    """A parsed HLO module. Raises CompiledFormatError where there is no entry computation."""

    def __init__(self, text: str) -> None:
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.entry = ""
        current: dict[str, Instruction] | None = None
        for line in text.splitlines():
            header = _HEADER.match(line)
            if header is not None:
                current = self.computations.setdefault(header[2], {})
                self.entry = header[2] if header[1] else self.entry
            elif line == "}":
                current = None
            elif current is not None and (match := _LINE.match(line)) is not None:
                current[match[2]] = _instruction(match[2], match[3])
        if not self.entry:
            raise CompiledFormatError("HLO: no entry computation in the module's text")

    def operations(self) -> list[Operation]:
        """Everything that runs, in order, with how often."""
        return list(self._walk(self.entry, 1))

    def _walk(self, computation: str, runs: int) -> Iterator[Operation]:
        scope = self.computations[computation]
        for instruction in scope.values():
            if instruction.opcode == "while":
                body = _called(instruction, "body")
                yield from self._walk(body, runs * self._trip_count(instruction, scope))
            elif instruction.opcode == "call":
                yield from self._walk(_called(instruction, "to_apply"), runs)
            elif instruction.opcode == "conditional":
                raise CompiledFormatError(
                    f"HLO: {instruction.name} is a conditional: how often its branches run is "
                    "not known"
                )
            elif instruction.opcode not in _FREE:
                yield self._operation(instruction, scope, runs)

    def _operation(
        self, instruction: Instruction, scope: Mapping[str, Instruction], runs: int
    ) -> Operation:
        touched = list(instruction.shape)
        if instruction.opcode == "slice-start":
            # (operand, piece, flag): of the operand only the piece is read.
            operand, piece = instruction.shape[:2]
            touched = [Array(piece.bytes, operand.space), piece]
        else:
            if instruction.opcode == "copy-start":  # its result repeats the operand, and a flag
                touched = list(instruction.shape[:1])
            for name in instruction.operands:
                touched += scope[name].shape if name in scope else ()
        estimate = re.search(r'"estimated_cycles":"(\d+)"', instruction.attributes)
        return Operation(
            name=instruction.name,
            opcode=instruction.opcode,
            runs=runs,
            hbm_bytes=sum(array.bytes for array in touched if array.space == HBM),
            estimated_cycles=None if estimate is None else int(estimate[1]),
            is_mosaic=instruction.is_mosaic,
            parameters={
                index: number
                for index, operand in enumerate(instruction.operands)
                if (number := self._parameter(operand, scope)) is not None
            },
        )

    def _parameter(self, name: str, scope: Mapping[str, Instruction]) -> int | None:
        """The number of the entry parameter that a value equals, None where it is computed."""
        if scope is not self.computations[self.entry]:
            return None
        while name in scope:
            instruction = scope[name]
            if instruction.opcode == "parameter":
                return int(instruction.attributes.strip("()"))
            if instruction.opcode not in _SAME_VALUE:
                return None
            name = instruction.operands[0]
        return None

    def _trip_count(self, loop: Instruction, scope: Mapping[str, Instruction]) -> int:
        """N of a loop whose condition is ``counter < N`` and whose counter starts at 0."""
        known = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes)
        if known is not None:
            return int(known[1])
        condition = self.computations[_called(loop, "condition")]
        limits = [
            int(value)
            for instruction in condition.values()
            if (value := _integer(instruction)) is not None
        ]
        compares = [i for i in self._reachable(condition) if "direction=LT" in i.attributes]
        initial = scope.get(loop.operands[0])
        starts_at_zero = initial is not None and any(
            _integer(scope[operand]) == 0
            for operand in self._sources(initial, scope)
            if operand in scope
        )
        if len(limits) != 1 or len(compares) != 1 or not starts_at_zero:
            raise CompiledFormatError(f"HLO: the trip count of {loop.name} is not known")
        return limits[0]

    def _reachable(self, computation: Mapping[str, Instruction]) -> Iterator[Instruction]:
        for instruction in computation.values():
            yield instruction
            for called in re.findall(r"calls=%?([\w.\-]+)", instruction.attributes):
                yield from self._reachable(self.computations[called])

    @staticmethod
    def _sources(initial: Instruction, scope: Mapping[str, Instruction]) -> Iterator[str]:
        for name in initial.operands:
            while name in scope and scope[name].opcode in _SAME_VALUE:
                name = scope[name].operands[0]
            yield name


def _integer(instruction: Instruction) -> int | None:
    if instruction.opcode != "constant":
        return None
    match = re.match(r"\((-?\d+)\)", instruction.attributes)
    return None if match is None else int(match[1])


def _called(instruction: Instruction, role: str) -> str:
    match = re.search(rf"{role}=%?([\w.\-]+)", instruction.attributes)
    if match is None:
        raise CompiledFormatError(f"HLO: {instruction.name} names no {role}")
    return match[1]


def _instruction(name: str, text: str) -> Instruction:
    end = _closing(text, 0) if text.startswith("(") else text.index(" ")
    shape, rest = text[:end], text[end:].lstrip()
    match = re.match(r"([\w\-]+)\(", rest)
    if match is None:
        raise CompiledFormatError(f"HLO: {name} is no operation: {rest[:60]!r}")
    close = _closing(rest, match.end() - 1)
    inside = rest[match.end() : close - 1]
    opcode = match[1]
    names = tuple(re.findall(r"%([\w.\-]+)", inside))
    attributes = rest[close:]
    if opcode in ("parameter", "constant"):
        names, attributes = (), f"({inside})"
    return Instruction(name, opcode, parse_arrays(shape), names, attributes)


def _closing(text: str, start: int) -> int:
    """The position after the bracket that closes the one at ``start``."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    raise CompiledFormatError("HLO: unbalanced brackets")


def scoped_vmem_bytes(report: str) -> dict[str, int]:
    """Scoped VMEM by operation, from the compiler's VMEM report (a page with JSON inside)."""
    start = report.find("const DATA =")
    if start < 0:
        raise CompiledFormatError("VMEM report: its data is not where it was")
    try:
        data, _ = json.JSONDecoder().raw_decode(report[start + len("const DATA =") :].lstrip())
        return {
            name: sum(
                block["block_size"] for block in entry["blocks"] if block["block_type"] == "SCOPED"
            )
            for name, entry in data["hlo_breakdowns"].items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise CompiledFormatError(f"VMEM report: {error!r}") from error
