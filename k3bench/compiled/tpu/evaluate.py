"""From the compiler's text to figures: kernels executed, ops counted, bounds, modelled time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3bench.compiled.errors import CompiledFormatError
from k3bench.compiled.tpu.aot import PINNED, Outcome, compile_for
from k3bench.compiled.tpu.breakdown import CATEGORIES
from k3bench.compiled.tpu.cost_model import Work, fitted_model
from k3bench.compiled.tpu.hlo import Module, Operation, scoped_vmem_bytes
from k3bench.compiled.tpu.kernel import KernelFigures, analyse
from k3bench.compiled.tpu.point import KdaPoint
from k3bench.compiled.tpu.result import CompiledResult
from k3bench.compiled.tpu.targets import Target

KDA_FACTORY = "k3bench.compiled.tpu.kda:build"


def compile_point(
    point: KdaPoint, target: Target, *, allow_other_versions: bool = False
) -> CompiledResult:
    """Compiles and evaluates one KDA point, without the cache.

    Raises CompilerUnavailableError, CompiledError or CompiledFormatError as compile_for does.
    """
    outcome = compile_for(
        KDA_FACTORY, point.to_json(), target, allow_other_versions=allow_other_versions
    )
    return evaluate(outcome, point.to_json(), point.required_hbm_bytes, target)


def evaluate(
    outcome: Outcome, point: Mapping[str, Any], required_hbm_bytes: int, target: Target
) -> CompiledResult:
    """The figures of an outcome.

    Args:
        outcome: what the compiler said.
        point: the point as JSON, kept in the result.
        required_hbm_bytes: inputs and outputs, each once.
        target: what was compiled for.
    """
    common: dict[str, Any] = {
        "status": outcome.status,
        "detail": outcome.detail,
        "point": dict(point),
        "target": target.name,
        "device": target.device,
        "jax": outcome.versions["jax"],
        "libtpu": outcome.versions["libtpu"],
        "pinned": all(outcome.versions[name] == PINNED[name] for name in PINNED),
    }
    if outcome.status != "ok":
        return CompiledResult(
            **common,
            wanted_vmem_bytes=outcome.wanted_bytes,
            limit_vmem_bytes=outcome.limit_bytes,
        )
    costs = _costs(outcome, target)
    kernels = [cost for cost in costs if cost.operation.is_mosaic]
    ops = [cost for cost in costs if not cost.operation.is_mosaic]
    described = kernels or ops
    model = fitted_model()
    uses = _slot_uses(described, target)
    cycles = sum(cost.cycles for cost in described if cost.figures is not None)
    every_use = _slot_uses(costs, target)
    busiest = max(target.slots, key=lambda slot: every_use[slot] / target.slots[slot])
    scoped = scoped_vmem_bytes(outcome.vmem_report)
    return CompiledResult(
        **common,
        modelled_ms=1e3 * model.seconds([c.work for c in kernels], [c.work for c in ops], target),
        modelled_error={"mean": model.mean_error, "worst": model.worst_error}
        if target.fitted
        else None,
        kernel_cycles=sum(cost.cycles for cost in kernels),
        stall_cycles=sum(cost.total("stall_cycles") for cost in kernels),
        slots={slot: uses[slot] / (target.slots[slot] * cycles or 1) for slot in target.slots},
        spill_stores=sum(cost.total("spill_stores") for cost in kernels),
        spill_fills=sum(cost.total("spill_fills") for cost in kernels),
        vmem_bytes=max((scoped.get(c.operation.name, 0) for c in described), default=0),
        hbm_bytes=sum(cost.work.hbm_bytes * cost.work.runs for cost in costs),
        lower_bounds_ms={
            "hbm": 1e3 * required_hbm_bytes / target.hbm_bytes_per_s,
            "mxu": 1e3 * every_use["MXU"] / (target.slots["MXU"] * target.clock_hz),
            "busiest_slot": 1e3 * every_use[busiest] / (target.slots[busiest] * target.clock_hz),
        },
        busiest_slot=busiest,
        breakdown=_breakdown(described),
        kernels=tuple(
            _kernel_json(cost, scoped.get(cost.operation.name, 0), target) for cost in kernels
        ),
        xla_ops={
            "count": sum(cost.operation.runs for cost in ops),
            "cycles": sum(cost.cycles for cost in ops),
            "hbm_bytes": sum(cost.work.hbm_bytes * cost.work.runs for cost in ops),
            "estimated": sum(cost.operation.runs for cost in ops if cost.estimated),
            "assumed": sum(
                cost.operation.runs for cost in ops if cost.figures and cost.figures.assumed_regions
            ),
        },
        assumed={
            "regions": sum(c.figures.assumed_regions for c in kernels if c.figures),
            "dmas": sum(c.figures.assumed_dmas for c in kernels if c.figures),
        },
        padded_tokens=outcome.padded_tokens,
        compile_s=outcome.compile_s,
    )


@dataclass(frozen=True)
class _Cost:
    """One operation with its executed schedule; no figures where it has no schedule of its own."""

    operation: Operation
    figures: KernelFigures | None
    work: Work
    estimated: bool = False

    @property
    def cycles(self) -> int:
        return self.work.cycles * self.work.runs

    def total(self, figure: str) -> int:
        """A figure of one run, over all runs."""
        if self.figures is None:
            return 0
        return int(getattr(self.figures, figure)) * self.operation.runs


def _costs(outcome: Outcome, target: Target) -> list[_Cost]:
    costs = []
    for operation in Module(outcome.hlo).operations():
        schedule = outcome.schedules.get(operation.name)
        if schedule is None:
            if operation.is_mosaic:
                raise CompiledFormatError(f"{operation.name}: the kernel's schedule was not dumped")
            costs.append(_without_schedule(operation))
            continue
        operands = {
            index: outcome.tables[number]
            for index, number in operation.parameters.items()
            if number in outcome.tables
        }
        utilization = outcome.utilizations.get(operation.name, "")
        try:
            figures = analyse(operation.name, schedule, utilization, target.slots, operands)
        except CompiledFormatError:
            # An XLA op whose loops depend on data: the compiler's own estimate stands in.
            if operation.is_mosaic or operation.estimated_cycles is None:
                raise
            costs.append(_without_schedule(operation))
            continue
        costs.append(_Cost(operation, figures, _work(operation, figures)))
    return costs


def _work(operation: Operation, figures: KernelFigures) -> Work:
    moved = figures.read_bytes + figures.written_bytes
    if not operation.is_mosaic and (figures.assumed_dmas or figures.untyped_dmas):
        # Not every transfer of the op is known: its operands and results, each once.
        moved = operation.hbm_bytes
    return Work(figures.cycles, moved, operation.runs)


def _without_schedule(operation: Operation) -> _Cost:
    """An op that is part of the top-level program: a start of a copy, a few scalars."""
    cycles = operation.estimated_cycles or 0
    work = Work(cycles, operation.hbm_bytes, operation.runs)
    return _Cost(operation, None, work, estimated=operation.estimated_cycles is not None)


def _slot_uses(costs: Iterable[_Cost], target: Target) -> dict[str, int]:
    uses = dict.fromkeys(target.slots, 0)
    for cost in costs:
        if cost.figures is not None:
            for slot in uses:
                uses[slot] += cost.figures.slot_uses[slot] * cost.operation.runs
    return uses


def _breakdown(costs: Sequence[_Cost]) -> dict[str, float]:
    cycles = dict.fromkeys(CATEGORIES, 0.0)
    for cost in costs:
        if cost.figures is not None:
            for name in cycles:
                cycles[name] += cost.figures.category_cycles[name] * cost.operation.runs
    total = sum(cycles.values())
    return {name: value / total for name, value in cycles.items()} if total else {}


def _kernel_json(cost: _Cost, vmem_bytes: int, target: Target) -> dict[str, Any]:
    figures = cost.figures
    assert figures is not None  # a kernel without a schedule was refused
    return {
        "name": figures.name,
        "runs": cost.operation.runs,
        "cycles": figures.cycles,
        "stall_cycles": figures.stall_cycles,
        "trips": figures.trips,
        "slots": figures.slot_shares(target.slots),
        "spill_stores": figures.spill_stores,
        "spill_fills": figures.spill_fills,
        "vmem_bytes": vmem_bytes,
        "hbm_bytes": cost.work.hbm_bytes,
        "breakdown": {
            name: value / figures.cycles for name, value in figures.category_cycles.items()
        },
        "schedule_sha256": figures.schedule_sha256,
    }
