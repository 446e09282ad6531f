"""The clock: what is measured, under which protocol, on which device, and what a result is."""

from k3bench.measure.experiment import Candidate, Experiment, WorkloadRef
from k3bench.measure.interleave import interleave
from k3bench.measure.point import measure_group
from k3bench.measure.protocol import PRESETS, Protocol
from k3bench.measure.result import Correctness, Result, Summary, judge, summarise
from k3bench.measure.work import Work

__all__ = [
    "PRESETS",
    "Candidate",
    "Correctness",
    "Experiment",
    "Protocol",
    "Result",
    "Summary",
    "Work",
    "WorkloadRef",
    "interleave",
    "judge",
    "measure_group",
    "summarise",
]
