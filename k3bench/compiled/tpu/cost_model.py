"""From compiled figures to milliseconds: two fitted constants, both of them the runtime's.

    time = launch + sum over Pallas kernels of max(cycles / clock, HBM bytes / bandwidth)
                  + sum over XLA ops of cycles / clock + HBM bytes / bandwidth + op

A Pallas kernel's pipeline overlaps its transfers with its computing, and its cycles are the
schedule's own, so nothing in it is fitted. XLA's small ops begin with their transfer and end with
it: the two add up, at peak rates. Fitted are only ``launch``, the time from dispatch to the first
bundle that every wall-clock median holds, and ``op``, what starting one XLA op costs beyond its
schedule (synchronisation, DMA latency). Clock and bandwidth are the target's.

Alternatives, fitted on one half of the published points and judged on the other, both ways (as
above: mean error 4.0%, worst 11.3%):
XLA cycles x 1.4 instead of their transfers 4.6%, 17.8%; XLA's own estimates x 0.8 5.1%, 16.0%;
transfers overlapped with cycles 5.5%, 15.0%; no cost for an op 5.1%, 18.7%; a third constant on
the transfers 3.8%, 12.3%.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from k3bench.compiled.errors import CompiledError
from k3bench.compiled.tpu.targets import Target

CONSTANTS_FILE = "cost_model.json"


@dataclass(frozen=True)
class Work:
    """What one operation asks for in one run: bundles and HBM bytes."""

    cycles: int
    hbm_bytes: int
    runs: int = 1


@dataclass(frozen=True)
class CostModel:
    """The fitted constants and what they are worth.

    Attributes:
        launch_s: dispatch of the whole call, seconds.
        op_s: start of one XLA op, seconds.
        mean_error, worst_error: relative, over the published points, each judged with constants
            from the half that it is not in.
        fitted_on, judged_on: how many points.
    """

    launch_s: float
    op_s: float
    mean_error: float
    worst_error: float
    fitted_on: int
    judged_on: int

    def seconds(self, kernels: Iterable[Work], xla_ops: Iterable[Work], target: Target) -> float:
        """Modelled wall-clock time of one call."""
        clock, bandwidth = target.clock_hz, target.hbm_bytes_per_s
        total = self.launch_s
        for work in kernels:
            total += work.runs * max(work.cycles / clock, work.hbm_bytes / bandwidth)
        for work in xla_ops:
            total += work.runs * (work.cycles / clock + work.hbm_bytes / bandwidth + self.op_s)
        return total


@functools.cache
def fitted_model() -> CostModel:
    """The constants of cost_model.json, which ``python -m k3bench.compiled.tpu.fit`` writes."""
    try:
        return CostModel(**_document()["model"])
    except (KeyError, TypeError) as error:
        raise _unreadable(error) from error


@functools.cache
def judged_errors() -> Mapping[str, float]:
    """modelled / published - 1 at every published point, with constants not fitted on it."""
    try:
        errors = {str(name): float(error) for name, error in _document()["errors"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(error) from error
    return MappingProxyType(errors)


@functools.cache
def _document() -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(
            files("k3bench.compiled.tpu").joinpath(CONSTANTS_FILE).read_text()
        )
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error
    return document


def _unreadable(error: Exception) -> CompiledError:
    return CompiledError(
        f"{CONSTANTS_FILE}: {error!r}: write it with python -m k3bench.compiled.tpu.fit"
    )
