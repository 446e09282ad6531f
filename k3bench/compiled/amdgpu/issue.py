"""What instructions cost a CU while they issue, from the public ISA documents; nothing fitted."""

import re
from dataclasses import dataclass

from k3bench.compiled.amdgpu.isa import Instruction
from k3bench.compiled.amdgpu.targets import GpuTarget
from k3bench.compiled.errors import CompiledFormatError

_MFMA = re.compile(
    r"^v_s?mfma(?:c)?(?:_scale)?_[fi]\d+_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?([a-z]+\d+(?:_[a-z]+\d+)?)"
    r"(?:_1k)?$"
)
# Rate of a matrix instruction relative to bf16, by operand type.
_MFMA_RATES = {"bf16": 1.0, "f16": 1.0, "f8f6f4": 2.0, "fp8_fp8": 2.0, "bf8_bf8": 2.0,
               "fp8_bf8": 2.0, "bf8_fp8": 2.0, "i8": 2.0, "f32": 1 / 16, "xf32": 1 / 2,
               "f64": 1 / 32}  # fmt: skip
_VECTOR_CYCLES = 4  # 64 lanes over a SIMD's 16
_QUARTER_RATE = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_", "v_mul_lo_",
                 "v_mul_hi_")  # fmt: skip
_LDS_BYTES_PER_CYCLE = 128
_LDS_WIDTHS = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "b32": 4, "b64": 8, "b96": 12,
               "b128": 16}  # fmt: skip


@dataclass(frozen=True)
class Mfma:
    """One matrix instruction: its shape (as in the mnemonic), operand type and FLOPs."""

    shape: str
    operands: str
    flops: int


def mfma(instruction: Instruction) -> Mfma | None:
    """The matrix operation; None for any other instruction, an error for an unknown form."""
    if "mfma" not in instruction.mnemonic:
        return None
    match = _MFMA.match(instruction.mnemonic)
    if match is None or match.group(5) not in _MFMA_RATES:
        raise CompiledFormatError(f"matrix instruction {instruction.mnemonic} is not known")
    m, n, k, blocks, operands = match.groups()
    flops = 2 * int(m) * int(n) * int(k) * int(blocks or 1)
    return Mfma(f"{m}x{n}x{k}", operands, flops)


def simd_cycles(instruction: Instruction, target: GpuTarget) -> float:
    """Cycles for which the instruction keeps one SIMD from issuing another of its kind."""
    name = instruction.mnemonic
    matrix = mfma(instruction)
    if matrix is not None:
        peak = target.flops_per_s / (target.compute_units * target.simds * target.clock_hz)
        return matrix.flops / (peak * _MFMA_RATES[matrix.operands])
    if name == "s_nop":
        return _VECTOR_CYCLES * (1 + int(instruction.operands[0], 0))
    if name.startswith(_QUARTER_RATE):
        return 4 * _VECTOR_CYCLES
    return _VECTOR_CYCLES


def lds_cycles(instruction: Instruction, target: GpuTarget) -> float:
    """Cycles of the CU's LDS that one wave's access takes, bank conflicts left out."""
    name = instruction.mnemonic
    if not name.startswith("ds_"):
        return 0.0
    widths = [_LDS_WIDTHS[piece] for piece in name.split("_") if piece in _LDS_WIDTHS]
    count = 2 if re.search(r"(read|write)2", name) else 1
    return count * (widths[0] if widths else 4) * target.wave_threads / _LDS_BYTES_PER_CYCLE
