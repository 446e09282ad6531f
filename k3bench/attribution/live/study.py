"""The four server configurations of the study, and what is measured on each.

| configuration | server | what it is for |
|---|---|---|
| eager-ranges | --disable-cuda-graph, ranges | decode traces to learn the name map from |
| eager | --disable-cuda-graph | decode traces for the composition: nothing perturbs them |
| graph-ranges | graphs, ranges | prefill traces: prefill is eager in every configuration |
| graph | graphs | the wall clock: ITL and TTFT, and decode traces of the replayed graphs |

Wall clock never comes from a server with ranges: they keep an idle GPU waiting.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from k3bench.attribution.live.server import Completion, ServerClient, ServerError
from k3bench.attribution.live.traces import TraceFile, traces_in, wait_for_traces

Measurement = Literal["decode-profile", "prefill-profile", "itl", "ttft"]

DECODE_CONTEXTS: dict[str, int] = {
    "4k": 4096,
    "32k": 32768,
    "64k": 65536,
    "512k": 524288,
    "1m": 1047552,
}
PREFILL_LENGTHS: dict[str, int] = {"1k": 1024, "4k": 4096, "8k": 8192, "32k": 32768}
RANGE_PREFIX = "K3/"
# Ordinary token ids: past the special ones at the start, inside any vocabulary of this size.
_TOKEN_IDS = range(1000, 100_000)
# Tokens after the profiled steps, so that the request still decodes when the profiler stops.
_TAIL_TOKENS = 16


class StudyError(ValueError):
    """The server is not what the configuration says, or a sample cannot be what it claims."""


@dataclass(frozen=True)
class ServerConfig:
    """How the server was started: with or without graphs, with or without ranges."""

    graphs: bool
    ranges: bool

    @property
    def name(self) -> str:
        return ("graph" if self.graphs else "eager") + ("-ranges" if self.ranges else "")

    @property
    def server_arguments(self) -> tuple[str, ...]:
        """What to add to sglang's command line."""
        return ("--disable-radix-cache", *(() if self.graphs else ("--disable-cuda-graph",)))

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """What the study takes on this configuration."""
        if self.ranges:
            return ("prefill-profile",) if self.graphs else ("decode-profile",)
        return ("itl", "ttft") if self.graphs else ("decode-profile",)


CONFIGS: dict[str, ServerConfig] = {
    config.name: config
    for config in (
        ServerConfig(graphs=False, ranges=True),
        ServerConfig(graphs=False, ranges=False),
        ServerConfig(graphs=True, ranges=True),
        ServerConfig(graphs=True, ranges=False),
    )
}


@dataclass(frozen=True)
class StudyOptions:
    """Numbers of the study. ``steps``: decode steps in a profile; ``itl_tokens``: streamed tokens
    per ITL sample set; ``repeats``: TTFT samples after one warm-up; times in seconds."""

    steps: int = 24
    itl_tokens: int = 40
    repeats: int = 3
    trace_timeout_s: float = 900.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "itl_tokens", "repeats"):
            if getattr(self, name) < (2 if name == "itl_tokens" else 1):
                raise ValueError(f"{name}: {getattr(self, name)} is too few")


@dataclass(frozen=True)
class TraceDirectory:
    """Where the server writes its traces (``remote``) and where we see them (``local``)."""

    remote: str
    local: Path


@dataclass(frozen=True)
class PointResult:
    """One measured point. ``samples_s`` and ``warmup_s`` hold every sample in the order taken."""

    measurement: Measurement
    input_tokens: int
    started_at: str
    finished_at: str
    samples_s: tuple[float, ...] = ()
    warmup_s: tuple[float, ...] = ()
    traces: tuple[TraceFile, ...] = ()
    steps: int | None = None
    dropped_samples: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON with ``best_s`` and ``median_s`` of the samples beside them."""
        ordered = sorted(self.samples_s)
        middle = len(ordered) // 2
        median = None
        if ordered:
            median = (
                ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
            )
        return {
            "measurement": self.measurement,
            "input_tokens": self.input_tokens,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "samples_s": list(self.samples_s),
            "warmup_s": list(self.warmup_s),
            "best_s": ordered[0] if ordered else None,
            "median_s": median,
            "dropped_samples": self.dropped_samples,
            "steps": self.steps,
            "traces": [trace.to_json() for trace in self.traces],
        }


def check_server(client: ServerClient, config: ServerConfig) -> dict[str, Any]:
    """What the server says of itself, as far as it bears on the study.

    Raises StudyError where it contradicts the configuration. Keys are null where it does not say.
    Whether ranges are on shows in the traces alone, and is checked there.
    """
    info = client.server_info() or {}
    disabled = info.get("disable_cuda_graph")
    if isinstance(disabled, bool) and disabled == config.graphs:
        raise StudyError(
            f"the server runs {'without' if disabled else 'with'} graphs, configuration "
            f"{config.name} means {'with' if config.graphs else 'without'}: restart it"
        )
    return {
        key: info.get(key)
        for key in ("model_path", "tp_size", "disable_cuda_graph", "attention_backend", "version")
    }


def measure_point(
    client: ServerClient,
    config: ServerConfig,
    measurement: Measurement,
    input_tokens: int,
    options: StudyOptions,
    *,
    traces: TraceDirectory | None = None,
    ranks: int = 1,
    note: Callable[[str], None] = lambda _: None,
) -> PointResult:
    """Take one point; ``note`` is told what happens. Raises ServerError, TraceError, StudyError."""
    started_at = _utc_now()
    point = f"{measurement} {input_tokens}"
    if measurement in ("itl", "ttft"):
        if config.ranges:
            raise StudyError(f"{point}: ranges perturb the wall clock: use a server without them")
        take = _itl if measurement == "itl" else _ttft
        warmup, samples, dropped = take(client, input_tokens, options, note)
        return PointResult(
            measurement=measurement,
            input_tokens=input_tokens,
            started_at=started_at,
            finished_at=_utc_now(),
            samples_s=samples,
            warmup_s=warmup,
            dropped_samples=dropped,
        )
    if traces is None:
        raise StudyError(f"{point}: say where the traces go (--trace-dir)")
    known = traces_in(traces.local)
    profile = _profile_decode if measurement == "decode-profile" else _profile_prefill
    # Ranges need the host's side; without it the buffers stay small over long profiles.
    activities = ("CPU", "GPU") if config.ranges or config.graphs else ("GPU",)
    prefix = f"{config.name}-{measurement}-{input_tokens}"
    profile(client, input_tokens, options, traces.remote, prefix, activities, note)
    note("waiting for the traces")
    found = wait_for_traces(
        traces.local,
        known,
        timeout_s=options.trace_timeout_s,
        ranks=ranks,
        range_prefix=RANGE_PREFIX if config.ranges else None,
    )
    return PointResult(
        measurement=measurement,
        input_tokens=input_tokens,
        started_at=started_at,
        finished_at=_utc_now(),
        traces=found,
        steps=options.steps if measurement == "decode-profile" else None,
    )


def _itl(
    client: ServerClient,
    input_tokens: int,
    options: StudyOptions,
    note: Callable[[str], None],
) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    note("streaming")
    completion = _generate(client, input_tokens, options.itl_tokens, options.seed)
    gaps = completion.itl_s
    possible = options.itl_tokens - 1
    if 2 * len(gaps) < possible:
        raise StudyError(
            f"itl {input_tokens}: only {len(gaps)} of {possible} tokens came alone: the server "
            "streams several at a time (--stream-interval 1?)"
        )
    return (completion.ttft_s,), gaps, possible - len(gaps)


def _ttft(
    client: ServerClient,
    input_tokens: int,
    options: StudyOptions,
    note: Callable[[str], None],
) -> tuple[tuple[float, ...], tuple[float, ...], int]:
    """One warm-up, then the samples, each on a new prompt and an empty cache."""
    every = []
    for repeat in range(options.repeats + 1):
        note("warm-up" if repeat == 0 else f"prompt {repeat} of {options.repeats}")
        client.flush_cache()
        every.append(_generate(client, input_tokens, 1, options.seed + repeat).ttft_s)
    return tuple(every[:1]), tuple(every[1:]), 0


def _profile_decode(
    client: ServerClient,
    input_tokens: int,
    options: StudyOptions,
    directory: str,
    prefix: str,
    activities: Sequence[str],
    note: Callable[[str], None],
) -> None:
    """Profile ``steps`` decode steps, from after the first token on: none of the prefill is in."""
    state = {"started_at": 0, "stopped": False}
    stops_itself = client.dialect == "sglang"

    def on_token(tokens: int) -> None:
        if not state["started_at"]:
            note("first token: profiling")
            client.start_profile(
                output_dir=directory,
                prefix=prefix,
                num_steps=options.steps if stops_itself else None,
                activities=activities,
            )
            state["started_at"] = tokens
        elif not (stops_itself or state["stopped"]) and (
            tokens >= state["started_at"] + options.steps
        ):
            state["stopped"] = True
            client.stop_profile()

    note("prefill")
    tokens = 1 + options.steps + _TAIL_TOKENS
    try:
        _generate(client, input_tokens, tokens, options.seed, on_token)
    except BaseException:
        if state["started_at"] and not (stops_itself or state["stopped"]):
            _stop_quietly(client)
        raise


def _profile_prefill(
    client: ServerClient,
    input_tokens: int,
    options: StudyOptions,
    directory: str,
    prefix: str,
    activities: Sequence[str],
    note: Callable[[str], None],
) -> None:
    """Profile one whole prefill, after a warm-up in which kernels for its shapes are chosen."""
    note("warm-up")
    client.flush_cache()
    _generate(client, input_tokens, 1, options.seed)
    client.flush_cache()
    note("profiling")
    client.start_profile(output_dir=directory, prefix=prefix, activities=activities)
    try:
        _generate(client, input_tokens, 1, options.seed + 1)
    except BaseException:
        _stop_quietly(client)
        raise
    client.stop_profile()


def _stop_quietly(client: ServerClient) -> None:
    """Leave no profiler running behind a failure; the failure is what the caller should see."""
    with contextlib.suppress(ServerError):
        client.stop_profile()


def _generate(
    client: ServerClient,
    input_tokens: int,
    max_new_tokens: int,
    seed: int,
    on_token: Callable[[int], None] | None = None,
) -> Completion:
    """A completion of a random prompt; StudyError if part of the prompt came from a cache."""
    draw = random.Random(f"{input_tokens}/{seed}")
    prompt = [draw.choice(_TOKEN_IDS) for _ in range(input_tokens)]
    completion = client.generate(prompt, max_new_tokens, on_token)
    if completion.cached_tokens:
        raise StudyError(
            f"{completion.cached_tokens} of {input_tokens} prompt tokens came from a cache: start "
            "the server with --disable-radix-cache"
        )
    return completion


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
