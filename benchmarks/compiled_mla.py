"""MLA and KDA decode as Triton compiles them for gfx950: noise-free figures, no MI355X needed.

The exact metrics (rounds, round trips, scratch, LDS, bytes) are what a gate may rest on; the
modelled time is tracked beside them and informs. Each class compiles its points in parallel once,
in ``setup_cache``, which asv tells apart by its place in this file: hence one in every class.
"""

import functools
import hashlib
import importlib.util

import mla_rocm
import workloads
from benchmarks._mla_interpreted import interpreted_verdict
from benchmarks._points import by_preset
from k3bench.asv_compiled import GPU_UNITS, CompiledCase, track, warm_up
from k3bench.compiled.amdgpu import GpuPoint
from k3bench.measure import WorkloadRef
from workloads.kda_decode import BATCH_SIZES as KDA_BATCH_SIZES
from workloads.mla import (
    CHUNKED_CONTEXTS,
    DECODE_BATCH_SIZES,
    DECODE_CONTEXTS,
    PREFILL_BATCH_SIZES,
    WHOLE_PREFILLS,
)

TARGET = "gfx950"
OURS_DECODE = [name for name in mla_rocm.DECODE_IMPLEMENTATIONS if name.startswith("triton")]
OURS_PREFILL = [name for name in mla_rocm.PREFILL_IMPLEMENTATIONS if name.startswith("triton")]
# One XCD of an MI355X in CPX mode.
PARTITION_COMPUTE_UNITS = 32
# At 68K, where the number of splits was measured on MI355X: more of them fill the device better,
# until one workgroup too many costs a whole round.
CLIFF_CONTEXT = 69_632
CLIFF_BATCH_SIZES = (24, 136)


class _Compiled:
    """The figures of one operation's launches, by shape and implementation."""

    version = "1"
    timeout = 3600
    operation = "mla-decode"

    def setup(self, *parameters: object) -> None:
        if importlib.util.find_spec("triton") is None:
            raise NotImplementedError("triton is not installed: pip install 'k3bench[rocm]'")

    def _case(self, *parameters: int | str) -> CompiledCase:
        *shape, implementation = parameters
        return CompiledCase(
            benchmark=f"compiled_mla.{type(self).__name__}.track_modelled_us",
            version=self.version,
            parameters=dict(zip(self.param_names, shape, strict=False)),
            workload=self._workload(*shape),
            tokens=self._point(*parameters).tokens,
            point=self._point(*parameters),
            check=functools.partial(interpreted_verdict, self.operation, str(implementation)),
            target=TARGET,
        )

    def _warm_up(self) -> None:
        shapes = [[]]
        for choices in self.params:
            shapes = [[*shape, choice] for shape in shapes for choice in choices]
        warm_up([self._case(*parameters) for parameters in shapes])

    def track_modelled_us(self, *parameters: int | str) -> float:
        return track(self._case(*parameters), "modelled_us")

    def track_rounds(self, *parameters: int | str) -> float:
        return track(self._case(*parameters), "rounds")

    def track_round_trips(self, *parameters: int | str) -> float:
        return track(self._case(*parameters), "round_trips")

    def track_scratch_operations_in_loops(self, *parameters: int | str) -> float:
        return track(self._case(*parameters), "scratch_operations_in_loops")

    def track_lds_bytes(self, *parameters: int | str) -> float:
        return track(self._case(*parameters), "lds_bytes")

    def track_hbm_bytes(self, *parameters: int | str) -> float:
        return track(self._case(*parameters), "hbm_bytes")

    track_modelled_us.unit = GPU_UNITS["modelled_us"]
    track_rounds.unit = GPU_UNITS["rounds"]
    track_round_trips.unit = GPU_UNITS["round_trips"]
    track_scratch_operations_in_loops.unit = GPU_UNITS["scratch_operations_in_loops"]
    track_lds_bytes.unit = GPU_UNITS["lds_bytes"]
    track_hbm_bytes.unit = GPU_UNITS["hbm_bytes"]


class Decode(_Compiled):
    """B sequences at one of the published contexts, 12 heads, pages of 64 tokens."""

    param_names = ("context", "B", "implementation")
    params = (
        by_preset(smoke=("4K", "64K", "1M"), full=tuple(DECODE_CONTEXTS)),
        by_preset(smoke=(1,), full=DECODE_BATCH_SIZES),
        by_preset(smoke=("triton", "sglang"), full=(*OURS_DECODE, "sglang")),
    )

    def _workload(self, context: str, B: int) -> WorkloadRef:
        return _reference(f"mla-decode/ctx{context}_B{B}")

    def _point(self, context: str, B: int, implementation: str) -> GpuPoint:
        workload = workloads.get(f"mla-decode/ctx{context}_B{B}")
        return GpuPoint(
            self.operation,
            implementation,
            workload.call.kv_lengths,
            heads=workload.geometry.heads,
            dtype=workload.geometry.dtype,
        )

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


class DecodeAt68K(_Compiled):
    """The two batches whose split counts were measured on MI355X, on both sides of the cliff."""

    param_names = ("B", "splits", "implementation")
    params = (
        by_preset(smoke=(24,), full=CLIFF_BATCH_SIZES),
        by_preset(smoke=(21, 22), full=(4, 7, 21, 22)),
        ["triton", "sglang"],
    )

    def _workload(self, B: int, splits: int) -> WorkloadRef:
        return _unpinned(f"compiled-mla/ctx{CLIFF_CONTEXT}_B{B}", (CLIFF_CONTEXT,) * B)

    def _point(self, B: int, splits: int, implementation: str) -> GpuPoint:
        lengths = (CLIFF_CONTEXT,) * B
        return GpuPoint(self.operation, implementation, lengths, num_kv_splits=splits)

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


class DecodeOnPartition(_Compiled):
    """A CPX partition: the same step on 32 compute units, with an eighth of the bandwidth."""

    param_names = ("context", "B", "implementation")
    params = (
        by_preset(smoke=("64K",), full=tuple(DECODE_CONTEXTS)),
        by_preset(smoke=(1,), full=DECODE_BATCH_SIZES),
        ["triton"],
    )

    def _workload(self, context: str, B: int) -> WorkloadRef:
        return _reference(f"mla-decode/ctx{context}_B{B}")

    def _point(self, context: str, B: int, implementation: str) -> GpuPoint:
        workload = workloads.get(f"mla-decode/ctx{context}_B{B}")
        return GpuPoint(
            self.operation,
            implementation,
            workload.call.kv_lengths,
            heads=workload.geometry.heads,
            dtype=workload.geometry.dtype,
            compute_units=PARTITION_COMPUTE_UNITS,
        )

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


class _CompiledPrefill(_Compiled):
    """Attention launches of a prefill; its up-projections are the vendor library's and not here."""

    operation = "mla-prefill"

    def _of(self, workload_id: str, implementation: str) -> GpuPoint:
        workload = workloads.get(workload_id)
        prefixes = workload.call.cached_tokens
        return GpuPoint(
            self.operation,
            implementation,
            workload.call.new_tokens,
            prefix_lengths=prefixes if any(prefixes) else (),
            heads=workload.geometry.heads,
            dtype=workload.geometry.dtype,
        )

    def track_mfma(self, *parameters: int | str) -> float:
        return track(self._case(*parameters), "mfma")

    def track_flops(self, *parameters: int | str) -> float:
        return track(self._case(*parameters), "flops")

    track_mfma.unit = GPU_UNITS["mfma"]
    track_flops.unit = GPU_UNITS["flops"]


class Prefill(_CompiledPrefill):
    """B prompts of T tokens, no prefix; without one the chunked forms are the decompressed one."""

    param_names = ("T", "B", "implementation")
    params = (
        by_preset(smoke=("16K",), full=tuple(WHOLE_PREFILLS)),
        by_preset(smoke=(1,), full=PREFILL_BATCH_SIZES),
        ["triton_decompressed", "triton_absorbed"],
    )

    def _workload(self, T: str, B: int) -> WorkloadRef:
        return _reference(f"mla-prefill/T{T}_B{B}")

    def _point(self, T: str, B: int, implementation: str) -> GpuPoint:
        return self._of(f"mla-prefill/T{T}_B{B}", implementation)

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


class LastChunk(_CompiledPrefill):
    """The last chunk of a prompt over its cached prefix, in every form; 32K is 16K + 16K."""

    param_names = ("context", "implementation")
    params = (
        by_preset(smoke=("32K",), full=tuple(CHUNKED_CONTEXTS)),
        by_preset(
            smoke=("triton_chunked_decompressed", "triton_chunked_absorbed", "sglang_extend"),
            full=(*OURS_PREFILL, "sglang_extend"),
        ),
    )

    def _workload(self, context: str) -> WorkloadRef:
        return _reference(f"mla-chunk/ctx{context}_last")

    def _point(self, context: str, implementation: str) -> GpuPoint:
        return self._of(f"mla-chunk/ctx{context}_last", implementation)

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


class KdaDecode(_Compiled):
    """One token of each of B sequences, 12 heads, one state of 128 x 128 a head."""

    version = "2"
    operation = "kda-decode"
    param_names = ("B", "implementation")
    params = (
        by_preset(smoke=(1,), full=KDA_BATCH_SIZES),
        # sglang's calls a device library that the interpreter lacks, so it cannot be judged here:
        # `k3bench compile kda-decode --implementation sglang` shows its code.
        ["triton"],
    )

    def _workload(self, B: int) -> WorkloadRef:
        return _reference(f"kda-decode/B{B}")

    def _point(self, B: int, implementation: str) -> GpuPoint:
        workload = workloads.get(f"kda-decode/B{B}")
        return GpuPoint(
            self.operation,
            implementation,
            workload.call.new_tokens,
            heads=workload.geometry.heads,
            dtype=workload.geometry.dtype,
        )

    def setup_cache(self) -> None:
        self._warm_up()

    setup_cache.timeout = 3600


def _reference(workload_id: str) -> WorkloadRef:
    """A pinned workload's name and hash: what the measured benchmark of it carries too."""
    workload = workloads.get(workload_id)
    return WorkloadRef(workload.id, workload.sha256)


def _unpinned(name: str, lengths: tuple[int, ...]) -> WorkloadRef:
    """A shape that no workload family pins: its lengths are its identity."""
    return WorkloadRef(name, hashlib.sha256(f"{name} {lengths}".encode()).hexdigest())
