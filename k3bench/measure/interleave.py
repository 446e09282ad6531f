"""The order of calls: implementations take turns, forwards and backwards, so that drift cancels."""

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from k3bench.measure.backends.base import Backend
from k3bench.measure.experiment import Call
from k3bench.measure.protocol import Protocol

Order = Callable[[Sequence[str], int], Sequence[str]]


def round_order(names: Sequence[str], round_index: int) -> Sequence[str]:
    """The order within one round: even rounds forwards, odd rounds backwards.

    Over each pair of rounds every implementation has the same mean position, so a drift that is
    linear in time (a clock that warms up, a neighbour that arrives) adds the same to each.
    """
    return names if round_index % 2 == 0 else names[::-1]


def interleave(
    calls: Mapping[str, Call],
    protocol: Protocol,
    backend: Backend,
    *,
    order: Order = round_order,
    on_warm: Callable[[], None] = lambda: None,
    before_call: Callable[[str], None] = lambda name: None,
) -> dict[str, tuple[float, ...]]:
    """Samples in seconds per implementation, in the order taken.

    Args:
        calls: implementation name to the prepared call.
        protocol: warm-up and repeat counts.
        backend: the device's clock; it synchronises before and after each call and flushes the
            device's caches before it where the device has one that would hold the inputs.
        order: of the names within a round, by its index.
        on_warm: called between the warm-up and the first sample.
        before_call: called with the implementation's name before each call, outside the sample.
    """
    names = list(calls)
    samples: dict[str, list[float]] = {name: [] for name in names}
    # The collector would run inside a sample; cycles made by the calls wait until the end. Nor is
    # there a collection first: over jax and torch that is 0.2 s a point, in every forked process.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for index in range(protocol.warmup):
            for name in order(names, index):
                before_call(name)
                backend.wait(calls[name]())
        on_warm()
        for index in range(protocol.repeat):
            for name in order(names, index):
                before_call(name)
                samples[name].append(backend.time(calls[name]))
    finally:
        if was_enabled:
            gc.enable()
    return {name: tuple(values) for name, values in samples.items()}


def consume(backend: Backend, call: Call) -> Any:
    """One untimed call with all its outputs finished: for the correctness check."""
    outputs = call()
    backend.wait(outputs)
    return outputs
