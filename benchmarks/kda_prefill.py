"""KDA prefill: the fixed grid, the headline, one growing sequence, and the ShareGPT-derived replay.

Fixed-length and ShareGPT-derived points are benchmarks of their own: never one mean over both.
"""

import workloads
from benchmarks._kda import prefill_experiment
from benchmarks._points import by_preset
from k3bench.measure import Experiment
from kda_tpu import IMPLEMENTATIONS
from workloads.grid import GRID_BATCH_SIZES, GRID_SEQUENCE_LENGTHS, SERIES_LENGTHS
from workloads.pins import DRAW_BATCH_SIZES


class Headline:
    """T = 8192 as 4 x 2048 packed, H = 16, bf16: the shape of the published ladder."""

    version = "1"
    timeout = 3600
    param_names = ("implementation",)
    params = (list(IMPLEMENTATIONS),)

    def device_prefill(self, implementation: str) -> Experiment:
        return prefill_experiment(workloads.get("kda-headline"))


class FixedGrid:
    """B sequences of S tokens packed in one call, H = 24: the published 56 points."""

    version = "1"
    timeout = 3600
    param_names = ("S", "B", "implementation")
    params = (
        by_preset(smoke=(64, 512), full=GRID_SEQUENCE_LENGTHS),
        by_preset(smoke=(1, 4), full=GRID_BATCH_SIZES),
        list(IMPLEMENTATIONS),
    )

    def device_prefill(self, S: int, B: int, implementation: str) -> Experiment:
        return prefill_experiment(workloads.get(f"kda-grid/S{S}_B{B}"))


class Series:
    """One sequence of T tokens, H = 24."""

    version = "1"
    timeout = 3600
    param_names = ("T", "implementation")
    params = (by_preset(smoke=(1024,), full=SERIES_LENGTHS), list(IMPLEMENTATIONS))

    def device_prefill(self, T: int, implementation: str) -> Experiment:
        return prefill_experiment(workloads.get(f"kda-series/T{T}"))


class InitialState:
    """The same call from a zero and from a random state: a kernel must not care, nor its clock."""

    version = "1"
    timeout = 3600
    param_names = ("shape", "state", "implementation")
    params = (
        by_preset(smoke=("S64_B4",), full=("S64_B4", "S512_B8")),
        ["zero", "random"],
        list(IMPLEMENTATIONS),
    )

    def device_prefill(self, shape: str, state: str, implementation: str) -> Experiment:
        return prefill_experiment(workloads.get(f"kda-grid/{shape}"), initial_state=state)


class ShareGptReplay:
    """100 drawn lengths, one length a batch of B: a sample is one replay of the whole list."""

    version = "1"
    timeout = 7200
    # The published replay took 3 warm-ups and 15 samples; a sample is a hundred calls.
    warmup = by_preset(smoke=(1,), full=(1, 3))[-1]
    repeat = by_preset(smoke=(3,), full=(3, 15))[-1]
    param_names = ("lengths", "B", "implementation")
    params = (
        by_preset(smoke=("sharegpt-k3",), full=("sharegpt-k3", "sharegpt-k3-surrogate")),
        by_preset(smoke=(1,), full=DRAW_BATCH_SIZES),
        list(IMPLEMENTATIONS),
    )

    def device_prefill(self, lengths: str, B: int, implementation: str) -> Experiment:
        return prefill_experiment(workloads.get(f"{lengths}/B{B}"))
