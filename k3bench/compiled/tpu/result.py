"""What is known of one point after compiling it: plain figures, JSON in and out, a fingerprint."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import Any

from k3bench.compiled.errors import CompiledFormatError
from k3bench.compiled.tpu.point import KdaPoint
from k3bench.measure.result import canonical_json

# Raised whenever the same dumps would give other figures; part of the cache's key.
PARSER_VERSION = 1


@dataclass(frozen=True)
class CompiledResult:
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

    status: str
    point: Mapping[str, Any]
    target: str
    device: str
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

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that is deterministic: equal in two fresh processes."""
        deterministic = {key: value for key, value in self._plain().items() if key != "compile_s"}
        return sha256(canonical_json(deterministic).encode()).hexdigest()

    @property
    def implementation(self) -> str:
        """The point's implementation."""
        return str(self.point["implementation"])

    def kda_point(self) -> KdaPoint:
        """The point that was compiled."""
        return KdaPoint.from_json(self.point)

    def _plain(self) -> dict[str, Any]:
        return {**asdict(self), "kernels": [dict(kernel) for kernel in self.kernels]}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, the fingerprint included; ``from_json`` is the inverse."""
        return {**self._plain(), "fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "CompiledResult":
        """The result that ``to_json`` wrote.

        Raises CompiledFormatError where keys differ or the fingerprint does not belong to it.
        """
        known = {entry.name for entry in fields(cls)}
        if document.keys() != known | {"fingerprint"}:
            odd = sorted(document.keys() ^ (known | {"fingerprint"}))
            raise CompiledFormatError(f"a compiled result with other keys: {', '.join(odd)}")
        values = {key: document[key] for key in known}
        result = cls(**{**values, "kernels": tuple(values["kernels"])})
        if result.fingerprint != document["fingerprint"]:
            raise CompiledFormatError("a compiled result whose fingerprint is not its own")
        return result
