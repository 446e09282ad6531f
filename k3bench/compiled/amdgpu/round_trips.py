"""Executes an iteration in order on one wave, with the wait counters that the hardware keeps.

A load is issued, its counter rises, and ``s_waitcnt`` holds the wave until enough of the oldest
have returned. With every memory access taking one unit and everything else taking none, the time of
an iteration in the steady state *is* its number of serialised memory round trips: loads that depend
on one another and waits for everything add up, loads that travel together count once, and a load
that is waited for an iteration later overlaps with the next.

The same walk with real latencies and issue cycles gives the time that the model works with.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from k3bench.compiled.amdgpu.isa import Instruction
from k3bench.compiled.amdgpu.memory_ops import MemoryOperation, memory_operation
from k3bench.compiled.errors import CompiledFormatError

# Iterations until pipelined loads are in the steady state, and those that are averaged: a multiple
# of every period that up to four stages can have.
_WARM = 8
_COUNTED = 12

_WAIT = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")
_COUNTERS = ("vmcnt", "lgkmcnt")

Time = TypeVar("Time", Fraction, float)


# The memory operation of an instruction, and the counters that it waits for.
Step = tuple[MemoryOperation | None, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class Execution:
    """One wave's walk through iterations.

    Attributes:
        per_iteration: time of one iteration in the steady state, in the latencies' unit.
        peak_bytes: most bytes of first-touch data, outstanding at one moment in one wave.
    """

    per_iteration: Fraction | float
    peak_bytes: int


def execute(
    steps: Sequence[Step],
    latency: Callable[[int, MemoryOperation], Time],
    issue: Callable[[int], Time],
    zero: Time,
    *,
    data: Mapping[int, int],
    once: bool = False,
    transfer: Callable[[MemoryOperation], Time] | None = None,
) -> Execution:
    """Walks an iteration again and again; with ``once`` a single pass that ends with its waits.

    Args:
        steps: the instructions of one iteration, prepared.
        latency: of the memory operation at a position, LDS included.
        issue: time that the instruction at a position occupies the wave.
        zero: of the time type.
        data: bytes of one wave by position, for those loads that count as bytes in flight.
        once: a single pass.
        transfer: time for which a load's data keeps the next one's from coming in.
    """
    now: Time = zero
    counted_from: Time = zero
    pending: dict[str, list[tuple[Time, int]]] = {counter: [] for counter in _COUNTERS}
    peak = 0
    rounds = 1 if once else _WARM + _COUNTED
    for number in range(rounds):
        if number == _WARM:
            counted_from = now
        for position, (operation, waits) in enumerate(steps):
            for counter, allowed in waits:
                queue = pending[counter]
                while len(queue) > allowed:
                    now = max(now, queue.pop(0)[0])
            now = now + issue(position)
            if operation is None:
                continue
            queue = pending[operation.counter]
            returned = now + latency(position, operation)
            if queue:
                # Each counter's operations return in the order in which they were issued.
                returned = max(returned, queue[-1][0])
                if transfer is not None:
                    returned = max(returned, queue[-1][0] + transfer(operation))
            queue.append((returned, data.get(position, 0)))
            if data.get(position):
                peak = max(peak, sum(size for done, size in pending["vmcnt"] if done > now))
    if once:
        for queue in pending.values():
            for done, _ in queue:
                now = max(now, done)
        return Execution(now, peak)
    return Execution((now - counted_from) / _COUNTED, peak)


def serial_round_trips(instructions: Sequence[Instruction], *, once: bool = False) -> Fraction:
    """Serialised memory round trips of one iteration (of the whole pass with ``once``)."""
    result = execute(
        prepare(instructions),
        _unit_latency,
        lambda _: Fraction(0),
        Fraction(0),
        data={},
        once=once,
    )
    return Fraction(result.per_iteration)


def bytes_in_flight(
    instructions: Sequence[Instruction], data: Mapping[int, int], *, once: bool = False
) -> int:
    """Most bytes of one wave that are on their way at one moment, among the given loads."""
    return execute(
        prepare(instructions),
        _unit_latency,
        lambda _: Fraction(0),
        Fraction(0),
        data=data,
        once=once,
    ).peak_bytes


def _unit_latency(position: int, operation: MemoryOperation) -> Fraction:
    """A trip to memory is one; LDS is no trip."""
    del position
    return Fraction(operation.space != "lds")


def prepare(instructions: Sequence[Instruction]) -> list[Step]:
    """What of each instruction the walk must know.

    Raises CompiledFormatError for a wait that is not understood.
    """
    steps: list[Step] = []
    for instruction in instructions:
        waits: tuple[tuple[str, int], ...] = ()
        if instruction.mnemonic.startswith("s_waitcnt"):
            found = _WAIT.findall(instruction.text)
            if not found:
                raise CompiledFormatError(
                    f"wait {instruction.mnemonic} {instruction.text}: not understood"
                )
            waits = tuple((name, int(count)) for name, count in found if name in _COUNTERS)
        steps.append((memory_operation(instruction), waits))
    return steps
