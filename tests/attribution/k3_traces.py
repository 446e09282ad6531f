"""Writes Kineto-like traces of Kimi K3 from per-kernel counts and times: eager, graph and prefill.

What is written has the shape of real files: eager kernels with grid, block and a launch inside host
ranges; replayed kernels with nothing but the correlation id of one hipGraphLaunch a step. Times are
whole nanoseconds, so that sums over a trace are exact to the digit that a table prints.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

LAYERS = 93
FULL_ATTENTION_LAYERS = frozenset({*range(3, 92, 4), 92})
RANGES = {
    "kda": "K3/kda",
    "full_attn": "K3/full_attn",
    "moe": "K3/moe",
    "dense_mlp": "K3/dense_mlp",
}
_HEAD = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "AMD Instinct MI355X"}],
    "roctracer_version": 4.1,
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
}
_HOST, _DEVICE = 4100, 0
_START_US = 4_909_733_314_358.0


@dataclass(frozen=True)
class KernelSpec:
    """One kernel name within one block: dispatches and microseconds per step.

    ``block`` None is work outside of every range. ``stray`` dispatches come once, before step 1.
    """

    name: str
    block: str | None
    per_step: int
    us_per_step: float
    stray: int = 0


@dataclass(frozen=True)
class Dispatch:
    """One kernel to be written, in order."""

    name: str
    block: str | None
    duration_ns: int


def durations_ns(total_us: float, count: int) -> list[int]:
    """``count`` nearly equal durations whose sum is ``total_us`` to the nanosecond."""
    total = round(total_us * 1000)
    return [total * (n + 1) // count - total * n // count for n in range(count)]


def step_sequence(specs: Sequence[KernelSpec]) -> list[KernelSpec]:
    """One step's dispatches in order: layer by layer, attention before MoE, the rest between."""
    order: list[KernelSpec] = []
    kda_seen = full_seen = moe_seen = 0
    for layer in range(LAYERS):
        full = layer in FULL_ATTENTION_LAYERS
        order += _part(specs, None, layer, LAYERS)
        if full:
            order += _part(specs, "full_attn", full_seen, len(FULL_ATTENTION_LAYERS))
            full_seen += 1
        else:
            order += _part(specs, "kda", kda_seen, LAYERS - len(FULL_ATTENTION_LAYERS))
            kda_seen += 1
        if layer == 0:
            order += _part(specs, "dense_mlp", 0, 1)
        else:
            order += _part(specs, "moe", moe_seen, LAYERS - 1)
            moe_seen += 1
    return order


def _part(
    specs: Sequence[KernelSpec], block: str | None, number: int, layers: int
) -> Iterator[KernelSpec]:
    """The share of one layer, of ``layers``, in every spec of the block."""
    for spec in specs:
        if spec.block == block:
            count = spec.per_step
            for _ in range(count * (number + 1) // layers - count * number // layers):
                yield spec


def dispatches(specs: Sequence[KernelSpec], steps: int) -> list[Dispatch]:
    """Every dispatch of ``steps`` steps, strays first.

    Durations are dealt out over all dispatches of a name, whatever its block: in one kernel name
    the blocks' durations then agree, which is what splitting by count needs.
    """
    totals: dict[str, list[float]] = {}
    for spec in specs:
        total = totals.setdefault(spec.name, [0.0, 0.0])
        total[0] += spec.us_per_step * steps
        total[1] += spec.per_step * steps + spec.stray
    times = {name: iter(durations_ns(us, int(n))) for name, (us, n) in totals.items()}
    order = step_sequence(specs)
    strays = [spec for spec in specs for _ in range(spec.stray)]
    return [
        Dispatch(spec.name, spec.block, next(times[spec.name]))
        for spec in [*strays, *(spec for _ in range(steps) for spec in order)]
    ]


def eager_events(work: Sequence[Dispatch]) -> Iterator[str]:
    """Launch and kernel for every dispatch, and a host range around each run of one block."""
    host_us, device_us = 0.0, 100.0
    begun = 0.0
    for number, item in enumerate(work):
        name = json.dumps(item.name)
        previous = work[number - 1].block if number else None
        if item.block != previous:
            begun = host_us
        yield (
            f'{{"ph":"X","cat":"cuda_runtime","name":"hipExtModuleLaunchKernel","pid":{_HOST},'
            f'"tid":{_HOST},"ts":{_START_US + host_us + 1:.3f},"dur":2.5,"args":{{"cid":7,'
            f'"correlation":{number + 1},"kernel":{name}}}}}'
        )
        device_us = max(device_us, host_us + 40.0)
        yield (
            f'{{"ph":"X","cat":"{_category(item.name)}","name":{name},"pid":{_DEVICE},"tid":3,'
            f'"ts":{_START_US + device_us:.3f},"dur":{item.duration_ns / 1000:.3f},"args":'
            f'{{"device":0,"stream":3,"correlation":{number + 1},"kind":"Dispatch Kernel",'
            f'"grid":[256,1,1],"block":[256,1,1]}}}}'
        )
        device_us += item.duration_ns / 1000
        host_us += 5.0
        following = work[number + 1].block if number + 1 < len(work) else None
        if item.block is not None and following != item.block:
            yield (
                f'{{"ph":"X","cat":"user_annotation","name":"{RANGES[item.block]}","pid":{_HOST},'
                f'"tid":{_HOST},"ts":{_START_US + begun:.3f},"dur":{host_us - begun - 0.5:.3f},'
                f'"args":{{"External id":{number}}}}}'
            )


def graph_events(work: Sequence[Dispatch], steps: int, gap_us: float = 1.0) -> Iterator[str]:
    """One hipGraphLaunch a step, and its kernels, which start long after it."""
    # A mutated trace may not divide: the last replay is then the short one.
    per_step = -(-len(work) // steps)
    device_us = 20_000.0
    for step in range(steps):
        correlation = 9000 + step
        yield (
            f'{{"ph":"X","cat":"cuda_runtime","name":"hipGraphLaunch","pid":{_HOST},'
            f'"tid":{_HOST},"ts":{_START_US + step * 300:.3f},"dur":210.0,"args":'
            f'{{"correlation":{correlation}}}}}'
        )
        for item in work[step * per_step : (step + 1) * per_step]:
            yield (
                f'{{"ph":"X","cat":"{_category(item.name)}","name":{json.dumps(item.name)},'
                f'"pid":{_DEVICE},"tid":3,"ts":{_START_US + device_us:.3f},'
                f'"dur":{item.duration_ns / 1000:.3f},"args":{{"device":0,"stream":3,'
                f'"correlation":{correlation},"kind":"Dispatch Task"}}}}'
            )
            device_us += item.duration_ns / 1000 + gap_us


def capture_events(work: Sequence[Dispatch]) -> Iterator[str]:
    """The capture of one step: launches with their kernels' names inside ranges, and no kernel."""
    for event in eager_events(work):
        if '"cat":"kernel"' not in event and '"cat":"gpu_memcpy"' not in event:
            yield event


@dataclass(frozen=True)
class PrefillKernel:
    """``count`` dispatches of one kernel in one pass of a chunked prefill, ``ms`` together."""

    name: str
    count: int
    ms: float
    grid: tuple[int, int, int] = (256, 1, 1)


def prefill_events(passes: Sequence[Sequence[PrefillKernel]]) -> Iterator[str]:
    """Forward passes one after another, each begun by its first kernel."""
    device_us, number = 0.0, 0
    for kernels in passes:
        for kernel in kernels:
            for duration in durations_ns(kernel.ms * 1000, kernel.count):
                number += 1
                yield (
                    f'{{"ph":"X","cat":"kernel","name":{json.dumps(kernel.name)},"pid":0,"tid":3,'
                    f'"ts":{_START_US + device_us:.3f},"dur":{duration / 1000:.3f},"args":'
                    f'{{"device":0,"stream":3,"correlation":{number},"kind":"Dispatch Kernel",'
                    f'"grid":{json.dumps(kernel.grid)},"block":[256,1,1]}}}}'
                )
                device_us += duration / 1000 + 1


def write_trace(path: Path, events: Iterable[str]) -> Path:
    """A whole trace; gzipped where the name says so."""
    head = json.dumps(_HEAD)[:-1]
    text = f'{head}, "traceEvents": [\n' + ",\n".join(events) + '\n], "traceName": "generated"}'
    data = text.encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


def _category(name: str) -> str:
    return "gpu_memcpy" if name.startswith("Memcpy") else "kernel"


def floored(work: Iterable[Dispatch]) -> list[Dispatch]:
    """Durations cut to whole microseconds, as some profilers write them."""
    return [replace(item, duration_ns=item.duration_ns // 1000 * 1000) for item in work]


def small_specs() -> list[KernelSpec]:
    """A K3-like step with made-up times: every structural count, a shared GEMM, one collective."""
    kda = [
        ("fused_recurrent_kda_packed_decode_kernel", 69, 447.3),
        ("_causal_conv1d_update_kernel", 69, 297.2),
        ("hgemm_shared_tile", 69, 470.5),
    ]
    full = [
        ("_fwd_grouped_kernel_stage1", 24, 307.6),
        ("_fwd_kernel_stage2", 24, 904.8),
        ("hgemm_shared_tile", 24, 470.5 / 69 * 24),
    ]
    moe = [("mfma_moe1_gate_up", 92, 918.3), ("mfma_moe2_down", 92, 515.5)]
    rest = [("_score_kernel", 186, 1500.4), ("_combine_kernel", 186, 787.3)]
    rest += [("_vocab_parallel_embedding_kernel", 1, 4.123), ("greedy_sample_kernel", 1, 12.9)]
    rest += [("_ZN5aiter26cross_device_reduce_1stage", 187, 1700.0)]
    return [
        *(KernelSpec(*spec[:1], "kda", *spec[1:]) for spec in kda),
        *(KernelSpec(*spec[:1], "full_attn", *spec[1:]) for spec in full),
        *(KernelSpec(*spec[:1], "moe", *spec[1:]) for spec in moe),
        KernelSpec("mlp_gate_up", "dense_mlp", 1, 23.4),
        *(KernelSpec(*spec[:1], None, *spec[1:]) for spec in rest),
    ]
