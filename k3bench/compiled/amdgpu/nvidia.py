"""Reads what NVIDIA's tools say of a compiled kernel: registers, stack and spills."""

import re
from dataclasses import dataclass
from hashlib import sha256

from k3bench.compiled.errors import CompiledFormatError

_USAGE = re.compile(r"Function \S+:\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


@dataclass(frozen=True)
class Usage:
    """Resources of one kernel: registers of a thread, bytes of its stack (spills included)."""

    registers: int
    stack_bytes: int


def parse_usage(text: str) -> Usage:
    """The one kernel of ``cuobjdump --dump-resource-usage``; CompiledFormatError otherwise."""
    found = _USAGE.findall(text)
    if len(found) != 1:
        raise CompiledFormatError(f"{len(found)} kernels in cuobjdump's resource usage, not 1")
    registers, stack, _, local = (int(figure) for figure in found[0])
    return Usage(registers, max(stack, local))


def ptx_sha256(text: str) -> str:
    """SHA-256 of PTX without debug sections and what names source files and lines."""
    kept = []
    for line in text.splitlines():
        if re.match(r"^\s*\.section\s+\.debug", line):
            break
        code = line.split("//", 1)[0].rstrip()
        if code and not re.match(r"^\s*\.(?:loc|file)\b|^\$L__tmp\d+:", code):
            kept.append(code)
    return sha256("\n".join(kept).encode()).hexdigest()
