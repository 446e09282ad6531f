"""What is known of one point after compiling it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from k3bench.compiled.document import ResultDocument
from k3bench.compiled.tpu.point import KdaPoint

# Raised whenever the same dumps would give other figures; part of the cache's key.
PARSER_VERSION = 1


@dataclass(frozen=True)
class CompiledResult(ResultDocument):
    """One point on one target. Everything but ``compile_s`` is deterministic.

    Attributes:
        status: ``ok``, ``oom``, ``unsupported`` or ``error``; where it is not ok there are no
            figures and ``detail`` says why.
        detail: one line, None where ok.
        wanted_vmem_bytes, limit_vmem_bytes: the compiler's figures of an overflow.
        point, target, device: what was compiled, for what; the ledger's name of the device.
        modelled_ms: one call by the cost model, launch included.
        modelled_error: {"mean", "worst"}, relative, of the model on published points; null on a
            target that it was not judged on.
        kernel_cycles, stall_cycles: bundles issued in Pallas kernels, and the empty ones among
            them.
        slots: share of each VLIW slot's capacity used over the kernels' cycles (XLA's ops where
            there is no kernel).
        spill_stores, spill_fills: vector spills executed in the kernels.
        vmem_bytes: largest scoped VMEM of one kernel (one XLA op where there is no kernel).
        hbm_bytes: traffic of the call: the DMAs that kernels issue, operands and results of ops.
        lower_bounds_ms: ``hbm`` (inputs and outputs once at peak bandwidth), ``mxu`` and
            ``busiest_slot`` (their uses at one per slot and cycle), ``busiest_slot_name`` apart.
        busiest_slot: its name.
        breakdown: shares of the kernels' cycles (XLA's ops where there is no kernel) by
            category; they sum to one.
        kernels: one object a Pallas kernel: name, runs, cycles, stall_cycles, trips, slots,
            spill_stores, spill_fills, vmem_bytes, hbm_bytes, breakdown.
        xla_ops: the ops around the kernels: count, cycles, hbm_bytes, estimated (how many had no
            readable schedule of their own and count with the compiler's estimate), assumed (how
            many have regions that were counted as always taken).
        assumed: {"regions", "dmas"}: guards that nothing determined; counted as always taken, so
            cycles and bytes are upper bounds where this is not zero.
        padded_tokens: tokens executed.
        compile_s: tracing, lowering and compiling in the run that filled the cache.
        jax, libtpu, parser: versions.
        pinned: whether jax and libtpu are the versions that the parsers were written for.
    """

    jax: str
    libtpu: str
    pinned: bool
    detail: str | None = None
    wanted_vmem_bytes: int | None = None
    limit_vmem_bytes: int | None = None
    modelled_ms: float | None = None
    modelled_error: Mapping[str, float] | None = None
    kernel_cycles: int | None = None
    stall_cycles: int | None = None
    slots: Mapping[str, float] = field(default_factory=dict)
    spill_stores: int | None = None
    spill_fills: int | None = None
    vmem_bytes: int | None = None
    hbm_bytes: int | None = None
    lower_bounds_ms: Mapping[str, float] = field(default_factory=dict)
    busiest_slot: str | None = None
    breakdown: Mapping[str, float] = field(default_factory=dict)
    kernels: tuple[Mapping[str, Any], ...] = ()
    xla_ops: Mapping[str, int] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)
    padded_tokens: int | None = None
    compile_s: float | None = None
    parser: int = PARSER_VERSION

    def kda_point(self) -> KdaPoint:
        """The point that was compiled."""
        return KdaPoint.from_json(self.point)
