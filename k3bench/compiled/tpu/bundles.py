"""Reads the scheduled VLIW program of one kernel: bundles, instructions, labels, branches."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from k3bench.compiled.errors import CompiledFormatError

# "  0x18f PF: > { a ;; b } /* ... */": address, label of a control target, loop depth, instructions
_BUNDLE = re.compile(r"^ *(0x[0-9a-f]+|0) (?:([A-Z]{2}))? *: *(?:>+ *)?\{(.*?)\} *$", re.M | re.S)
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_INSTRUCTION = re.compile(r"(?:%(\w+) = )?([a-z][\w.-]*)\s*(.*)", re.S)
_PREDICATE = re.compile(r"\((!?)%(p\d+)(?:_p\d+)?\)")
_NAME = re.compile(r"%?([sp]\d+)(?:_[sp]\d+)?$")
_THREAD = re.compile(r"\[thread:\$\d+\] *")
_TARGET = re.compile(r"target bundleno = (\d+)")
_LABELS = frozenset({"LH", "LB", "LE", "PB", "PF", "CT"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation of a bundle.

    Attributes:
        dest: virtual register written, such as ``s754`` or ``p12``; a bare number for operations
            without a register; None where nothing is named.
        opcode: as printed, such as ``vmatmul.mubr.f32.gmra.mxu0``.
        predicate: (register, wanted value) that guards it, None where it always runs.
        operands: comma-separated operands as printed, comments removed.
        target: bundle address that a branch jumps to.
    """

    dest: str | None
    opcode: str
    predicate: tuple[str, bool] | None
    operands: tuple[str, ...]
    target: int | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The instructions issued in one cycle; an empty one is a stall."""

    label: str | None
    instructions: tuple[Instruction, ...]


def parse_bundles(text: str, name: str) -> tuple[Bundle, ...]:
    """The bundles of a ``packed-bundles-post-ra`` dump, in address order.

    name: the kernel's, for messages. Raises CompiledFormatError if addresses are not consecutive,
    a line is not understood, or there is no bundle at all.
    """
    # DMA sizes are named in a comment in front of the number: keep the name, drop other comments.
    text = text.replace("/*size_in_granules=*/", "granules=")
    text = _COMMENT.sub("", text)
    bundles: list[Bundle] = []
    for match in _BUNDLE.finditer(text):
        address, label, body = int(match[1], 16), match[2], match[3]
        if address != len(bundles):
            raise CompiledFormatError(
                f"{name}: bundle {len(bundles):#x} is missing (found {address:#x} instead): the "
                "schedule dump has another format"
            )
        if label is not None and label not in _LABELS:
            raise CompiledFormatError(f"{name}: bundle {address:#x}: unknown label {label!r}")
        bundles.append(Bundle(label, tuple(_instructions(body, name, address))))
    if not bundles:
        raise CompiledFormatError(f"{name}: no bundles in the schedule dump")
    # Whatever looks like the start of a bundle must have been read as one.
    starts = len(re.findall(r"^ *(?:0x[0-9a-f]+|0) .*?: ", text, re.M))
    if starts != len(bundles):
        raise CompiledFormatError(f"{name}: {starts} bundle lines, but {len(bundles)} were read")
    return tuple(bundles)


def _instructions(body: str, name: str, address: int) -> Iterator[Instruction]:
    for part in body.split(";;"):
        part = part.strip()
        if not part:
            continue
        match = _INSTRUCTION.fullmatch(part)
        if match is None:
            raise CompiledFormatError(
                f"{name}: bundle {address:#x}: not an instruction: {part[:60]!r}"
            )
        dest, opcode, rest = match[1], match[2], match[3]
        target = _TARGET.search(rest) if opcode.startswith("sbr") else None
        if opcode.startswith("sbr") and (opcode != "sbr.rel" or target is None):
            raise CompiledFormatError(
                f"{name}: bundle {address:#x}: branch without a fixed target: {part[:60]!r}"
            )
        guard = _PREDICATE.search(rest)
        if guard is not None:
            rest = rest[: guard.start()] + rest[guard.end() :].lstrip(" ,")
        # Stores write "address value", DMAs a thread before their first operand.
        rest = _THREAD.sub("", rest).replace("]] %", "]], %")
        yield Instruction(
            dest=None if dest is None else virtual(dest),
            opcode=opcode,
            predicate=None if guard is None else (guard[2], guard[1] != "!"),
            operands=tuple(piece.strip() for piece in _split(rest)),
            target=None if target is None else int(target[1]),
        )


def virtual(text: str) -> str:
    """``%s754_s18`` or ``s754`` as ``s754``: the compiler's register before allocation, unique."""
    match = _NAME.match(text)
    return match[1] if match else text.lstrip("%")


def _split(operands: str) -> list[str]:
    """Operands at commas outside brackets."""
    pieces, depth, start = [], 0, 0
    for position, character in enumerate(operands):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            pieces.append(operands[start:position])
            start = position + 1
    pieces.append(operands[start:])
    return [piece for piece in pieces if piece.strip()]
