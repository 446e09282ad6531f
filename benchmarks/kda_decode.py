"""KDA decode: one token of each sequence, its recurrent state in and out; latency-bound first."""

import mla_rocm
import workloads
from benchmarks._mla import kda_decode_experiment
from benchmarks._points import by_preset
from k3bench.measure import Experiment
from workloads.kda_decode import BATCH_SIZES


class Decode:
    """B sequences, 12 heads, a float32 state of 128 x 128 a head in a pool with random slots."""

    version = "1"
    timeout = 1800
    param_names = ("B", "implementation")
    params = (
        by_preset(smoke=(1, 8), full=BATCH_SIZES),
        list(mla_rocm.KDA_DECODE_IMPLEMENTATIONS),
    )

    def device_decode(self, B: int, implementation: str) -> Experiment:
        return kda_decode_experiment(workloads.get(f"kda-decode/B{B}"))
