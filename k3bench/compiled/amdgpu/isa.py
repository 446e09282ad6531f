"""Reads AMD GPU assembly as Triton emits it: registers, metadata, instructions, basic blocks.

Nothing is guessed: text without the expected fields, with an instruction form that the analysis
does not know how to follow (indirect jumps, another generation's wait counters), or with more than
one kernel is refused with CompiledFormatError.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from k3bench.compiled.errors import CompiledFormatError

_LABEL = re.compile(r"^([.\w$]+):")
_BLOCK_LABEL = re.compile(r"^\.LBB\d+_\d+$")
_INSTRUCTION = re.compile(r"^\s+([a-z]\w*)\s*(.*?)\s*$")
_REGISTER = re.compile(r"(?<![\w.])([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])")
_NAMED = re.compile(r"\b(vcc|exec|scc|m0)(?:_lo|_hi)?\b")
_PATHS = re.compile(r"^\s*\.(?:loc|file)\b")
_ENDS = ("s_endpgm", "s_trap")
_REFUSED = ("s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_wait_loadcnt", "s_wait_dscnt")


@dataclass(frozen=True)
class Instruction:
    """One instruction: mnemonic without its encoding suffix, operands as text."""

    mnemonic: str
    operands: tuple[str, ...]
    modifiers: str

    @property
    def text(self) -> str:
        """Operands and modifiers as they were written."""
        return f"{', '.join(self.operands)} {self.modifiers}".strip()


@dataclass(frozen=True)
class Block:
    """A basic block: instructions without labels, and the blocks that may follow it."""

    name: str
    instructions: tuple[Instruction, ...]
    successors: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """One kernel's code object as text.

    Attributes:
        name: of the kernel.
        arch: as in the metadata, e.g. ``gfx950``.
        vgpr, agpr, sgpr: registers of a wave; vgpr holds no AGPRs.
        vgpr_spills, sgpr_spills: registers spilled, as the compiler counts them; may be nonzero
            without scratch.
        scratch_bytes: private segment of a lane.
        occupancy: waves per SIMD as the compiler states them, LDS left out.
        threads: of a workgroup, at most.
        blocks: by name, in the order of the text; the first one is the entry.
        sha256: of the text without debug lines and paths.
    """

    name: str
    arch: str
    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    occupancy: int
    threads: int
    blocks: dict[str, Block]
    sha256: str

    @property
    def entry(self) -> str:
        """Name of the first block."""
        return next(iter(self.blocks))


def parse(text: str) -> Program:
    """The program of an ``amdgcn`` text.

    Raises CompiledFormatError naming what is missing or not understood.
    """
    names = re.findall(r"^\s*\.symbol:\s*(\S+)\.kd\s*$", text, re.MULTILINE)
    if len(names) != 1:
        raise CompiledFormatError(f"{len(names)} kernels in one amdgcn text: expected exactly one")
    [name] = names
    total = _metadata(text, name, "vgpr_count")
    agpr = _metadata(text, name, "agpr_count")
    # .vgpr_count counts the unified file: VGPRs rounded up to four, then AGPRs.
    vgpr = _comment(text, name, "NumVgprs")
    if not vgpr <= total <= -(-vgpr // 4) * 4 + agpr:
        raise CompiledFormatError(
            f"{name}: .vgpr_count {total} does not follow from {vgpr} VGPRs and {agpr} AGPRs"
        )
    arch = re.search(r'\.amdgcn_target\s+"amdgcn-amd-amdhsa--(\w+)', text)
    if arch is None:
        raise CompiledFormatError(f"{name}: no .amdgcn_target in the amdgcn text")
    return Program(
        name=name,
        arch=arch.group(1),
        vgpr=vgpr,
        agpr=agpr,
        sgpr=_metadata(text, name, "sgpr_count"),
        vgpr_spills=_metadata(text, name, "vgpr_spill_count"),
        sgpr_spills=_metadata(text, name, "sgpr_spill_count"),
        scratch_bytes=_metadata(text, name, "private_segment_fixed_size"),
        occupancy=_comment(text, name, "Occupancy"),
        threads=_metadata(text, name, "max_flat_workgroup_size"),
        blocks=_blocks(name, _body(name, text)),
        sha256=code_sha256(text),
    )


def code_sha256(text: str) -> str:
    """SHA-256 of assembly without what names source files and lines, or refers to them.

    Debug sections follow the code and hold paths; .loc, .file and the temporary labels that they
    need move with the source's line numbers.
    """
    kept = []
    for line in text.splitlines():
        if re.match(r'^\s*\.section\s+"?\.debug', line):
            break
        code = line.split(";", 1)[0].rstrip()
        if code and not _PATHS.match(line) and not re.match(r"^\.Ltmp\d+:", line):
            kept.append(code)
    metadata = re.search(
        r"^\s*\.amdgpu_metadata$(.*?)^\s*\.end_amdgpu_metadata$", text, re.M | re.S
    )
    kept.append(metadata.group(1) if metadata else "")
    return sha256("\n".join(kept).encode()).hexdigest()


def registers(operand: str) -> tuple[str, ...]:
    """The 32-bit registers that an operand names, in order; special ones by their names."""
    found: list[str] = []
    for match in _REGISTER.finditer(operand):
        kind, single, first, last = match.groups()
        numbers = (single,) if single else range(int(first), int(last) + 1)
        found.extend(f"{kind}{number}" for number in numbers)
    found.extend(match.group(1) for match in _NAMED.finditer(operand))
    return tuple(found)


def _metadata(text: str, name: str, key: str) -> int:
    found = re.findall(rf"^[\s-]*\.{key}:\s*(\d+)\s*$", text, re.MULTILINE)
    if len(found) != 1:
        raise CompiledFormatError(f"{name}: {len(found)} values of .{key} in the metadata, not 1")
    return int(found[0])


def _comment(text: str, name: str, key: str) -> int:
    found = re.findall(rf"^; {key}: (\d+)", text, re.MULTILINE)
    if len(found) != 1:
        raise CompiledFormatError(f"{name}: {len(found)} values of '; {key}:', not 1")
    return int(found[0])


def _body(name: str, text: str) -> list[str]:
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(f"{name}:")]
    ends = [number for number, line in enumerate(lines) if line.startswith(".Lfunc_end")]
    if len(starts) != 1 or len(ends) != 1 or ends[0] < starts[0]:
        raise CompiledFormatError(f"{name}: its code does not lie between its label and .Lfunc_end")
    return lines[starts[0] + 1 : ends[0]]


def _instructions(name: str, lines: list[str]) -> Iterator[str | Instruction]:
    """Block labels as text and instructions, in order; directives and debug labels left out."""
    for line in lines:
        code = line.split(";", 1)[0].split("//", 1)[0].rstrip()
        if not code.strip() or code.lstrip().startswith("."):
            label = _LABEL.match(code)
            if label and _BLOCK_LABEL.match(label.group(1)):
                yield label.group(1)
            elif label is None and not code[:1].isspace() and code.strip():
                raise CompiledFormatError(f"{name}: not understood: {code.strip()[:80]}")
            continue
        match = _INSTRUCTION.match(code)
        if match is None:
            raise CompiledFormatError(f"{name}: not an instruction: {code.strip()[:80]}")
        mnemonic, rest = match.groups()
        if mnemonic in _REFUSED:
            raise CompiledFormatError(f"{name}: {mnemonic} is not understood by this analysis")
        yield _instruction(mnemonic, rest)


def _instruction(mnemonic: str, rest: str) -> Instruction:
    base = re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", mnemonic)
    pieces = [piece.strip() for piece in re.split(r",(?![^\[]*\])", rest)] if rest else []
    modifiers = ""
    if pieces:
        # The last operand ends at the first blank; what follows are modifiers.
        last, _, modifiers = pieces[-1].partition(" ")
        pieces[-1] = last
    return Instruction(base, tuple(pieces), modifiers.strip())


def _blocks(name: str, lines: list[str]) -> dict[str, Block]:
    """Splits at labels and after branches, then links what follows what."""
    order: list[str] = ["entry"]
    bodies: dict[str, list[Instruction]] = {"entry": []}
    for item in _instructions(name, lines):
        if isinstance(item, str):
            order.append(item)
            bodies[item] = []
            continue
        bodies[order[-1]].append(item)
        if item.mnemonic.startswith(("s_branch", "s_cbranch", *_ENDS)):
            order.append(f"after {len(order)}")
            bodies[order[-1]] = []
    blocks = {}
    for number, label in enumerate(order):
        following = order[number + 1 : number + 2]
        blocks[label] = Block(
            label, tuple(bodies[label]), _successors(name, bodies, bodies[label], following)
        )
    reachable = _reachable(blocks, order[0])
    return {label: blocks[label] for label in order if label in reachable}


def _successors(
    name: str,
    bodies: dict[str, list[Instruction]],
    instructions: list[Instruction],
    following: list[str],
) -> tuple[str, ...]:
    last = instructions[-1] if instructions else None
    if last is None or not last.mnemonic.startswith(("s_branch", "s_cbranch", *_ENDS)):
        return tuple(following)
    if last.mnemonic.startswith(_ENDS):
        return ()
    if len(last.operands) != 1 or last.operands[0] not in bodies:
        raise CompiledFormatError(f"{name}: a branch to {last.text}, which is no block")
    target = last.operands[0]
    return (target,) if last.mnemonic == "s_branch" else tuple(dict.fromkeys([*following, target]))


def _reachable(blocks: dict[str, Block], start: str) -> set[str]:
    seen, waiting = set(), [start]
    while waiting:
        label = waiting.pop()
        if label not in seen:
            seen.add(label)
            waiting.extend(blocks[label].successors)
    return seen
