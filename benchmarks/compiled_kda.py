"""The KDA ladder as the compiler schedules it for TPU v6e: noise-free figures, no TPU needed.

Every number is a lower-is-better ``track_*`` value that repeats to the last digit, so that
``asv compare`` sees a regression on any machine. Each class compiles its rungs in parallel once, in
``setup_cache``, which asv tells apart by its place in this file: hence one in every class.
"""

import functools
import hashlib

import workloads
from benchmarks._kda import interpreted_verdict, packing
from k3bench.asv_compiled import UNITS, CompiledCase, track, warm_up
from k3bench.compiled.tpu import KdaPoint
from k3bench.measure import WorkloadRef
from kda_tpu import IMPLEMENTATIONS

# The ladder and what goes on from its end.
LADDER = ("original", "mxu_port", "fused", "unified", "flat", "optimized", "dyadic")
RUNGS = [name for name in LADDER if name in IMPLEMENTATIONS]


class _Compiled:
    """The five figures of one workload's call, by rung."""

    version = "1"
    timeout = 3600
    param_names = ("implementation",)
    params = (RUNGS,)
    workload_id = ""

    def _case(self, implementation: str) -> CompiledCase:
        workload = workloads.get(self.workload_id)
        # A replay is a list of calls: the one of median length stands for it.
        by_length = sorted(range(len(workload.calls)), key=lambda n: workload.calls[n].tokens)
        number = by_length[len(by_length) // 2]
        call = workload.calls[number]
        reference = WorkloadRef(workload.id, workload.sha256)
        if workload.is_replay:
            one_call = f"{workload.sha256}/{number}"
            reference = WorkloadRef(
                f"{workload.id}/call{number}",
                hashlib.sha256(one_call.encode()).hexdigest(),
            )
        geometry = workload.geometry
        return CompiledCase(
            benchmark=f"compiled_kda.{type(self).__name__}.track_modelled_ms",
            version=self.version,
            parameters={},
            workload=reference,
            tokens=call.tokens,
            point=KdaPoint(
                implementation,
                packing(call, workload.is_replay),
                heads=geometry.heads,
                head_dim_k=geometry.key_dim,
                head_dim_v=geometry.value_dim,
                dtype=geometry.dtype,
            ),
            check=functools.partial(interpreted_verdict, implementation),
        )

    def _warm_up(self) -> None:
        warm_up([self._case(implementation) for implementation in RUNGS])

    def track_modelled_ms(self, implementation: str) -> float:
        return track(self._case(implementation), "modelled_ms")

    def track_kernel_cycles(self, implementation: str) -> float:
        return track(self._case(implementation), "kernel_cycles")

    def track_spill_stores(self, implementation: str) -> float:
        return track(self._case(implementation), "spill_stores")

    def track_hbm_bytes(self, implementation: str) -> float:
        return track(self._case(implementation), "hbm_bytes")

    def track_vmem_bytes(self, implementation: str) -> float:
        return track(self._case(implementation), "vmem_bytes")

    track_modelled_ms.unit = UNITS["modelled_ms"]
    track_kernel_cycles.unit = UNITS["kernel_cycles"]
    track_spill_stores.unit = UNITS["spill_stores"]
    track_hbm_bytes.unit = UNITS["hbm_bytes"]
    track_vmem_bytes.unit = UNITS["vmem_bytes"]


class Headline(_Compiled):
    """T = 8192 as 4 x 2048 packed, H = 16: the shape of the published ladder."""

    workload_id = "kda-headline"

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


class LargestGridPoint(_Compiled):
    """S = 1024, B = 64, H = 24: most tokens of the published grid."""

    workload_id = "kda-grid/S1024_B64"

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


class SmallestPrompt(_Compiled):
    """S = 32, B = 1, H = 24: half a chunk, where launch and small ops are all there is."""

    workload_id = "kda-grid/S32_B1"

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


class ShareGptBatch(_Compiled):
    """The median batch of 8 of the ShareGPT-derived replay, padded to its serving bucket."""

    workload_id = "sharegpt-k3/B8"

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600
