"""Times reading and attributing a trace beside HolisticTraceAnalysis: python -m ...speed.

Both read the same file, each in a fresh process, in turns. HolisticTraceAnalysis lives in an
environment of its own, whose Python is given by --hta-python:

    python -m venv /some/where/hta && /some/where/hta/bin/pip install HolisticTraceAnalysis

Its time is that of ``TraceAnalysis(...)``, which parses and aligns; ours is that of reading and
attributing to blocks. Imports count for neither, but both peaks of memory are of whole processes.
On a machine with other work the CPU time (all threads) is the steadier clock: both are given.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

# What a real capture with stacks holds for each kernel launched: 100 Python frames, 7 operators.
_FRAMES, _OPERATORS = 100, 7
_KERNELS_PER_LAYER = {"Attention": 9, "MLP": 3, "": 2}
_LAYERS = 36

_PEAK = """
def peak_bytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
"""
_OURS = (
    _PEAK
    + """
import json, sys, time
from k3bench.attribution.blocks import load_blocks
from k3bench.attribution.apply import by_ranges
from k3bench.attribution.compose import compose
from k3bench.attribution.graphs import captures, is_capture
from k3bench.attribution.reader import read_trace
definition = load_blocks(sys.argv[2])
began, cpu_began = time.perf_counter(), time.process_time()
trace = read_trace(sys.argv[1], require_device_work=False)
if not is_capture(trace):
    found = compose(by_ranges(trace, definition, "decode", steps=1), definition, "decode")
    blocks = {b.name: b.dispatches for b in found.blocks}
else:
    (captured,) = captures(trace, definition)
    blocks = {b: captured.blocks.count(b) for b in set(captured.blocks)}
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak_bytes(),
                  "events": sum(trace.categories.values()), "blocks": blocks}))
"""
)
_HTA = (
    _PEAK
    + """
import contextlib, io, json, sys, time
from hta.trace_analysis import TraceAnalysis
from importlib.metadata import version
began, cpu_began = time.perf_counter(), time.process_time()
with contextlib.redirect_stdout(io.StringIO()):
    found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak_bytes(),
                  "events": len(found.t.get_trace(0)),
                  "version": version("HolisticTraceAnalysis")}))
"""
)


def generated_events() -> Iterator[str]:
    """Events without end: an eager decoder with Python stacks, step after step."""
    now, number = 0.0, 0
    while True:
        for layer in range(_LAYERS):
            layer_events: list[str] = []
            layer_began = now
            for part, kernels in _KERNELS_PER_LAYER.items():
                part_began = now
                for kernel in range(kernels):
                    number += 1
                    layer_events += _one_launch(now, number, f"{part or 'norm'}_{kernel}")
                    now += 300.0
                if part:
                    layer_events.append(
                        _module(f"Qwen3{part}_{layer}", part_began, now - part_began)
                    )
            yield _module(f"Qwen3DecoderLayer_{layer}", layer_began, now - layer_began)
            yield from layer_events


def _module(name: str, start: float, duration: float) -> str:
    return (
        f'{{"ph": "X", "cat": "python_function", "name": "nn.Module: {name}", "pid": 251, '
        f'"tid": 251, "ts": {start:.3f}, "dur": {duration - 0.5:.3f}, "args": '
        '{"Python module id": 3, "Python parent id": 12, "Python id": 13, "Ev Idx": 4572}}'
    )


def _one_launch(now: float, number: int, kernel: str) -> list[str]:
    host = '"pid": 251, "tid": 251'
    events = [
        f'{{"ph": "X", "cat": "python_function", "name": "/sgl-workspace/sglang/python/sglang/srt/'
        f'layers/linear.py({frame}): forward_{frame % 17}", {host}, "ts": {now + frame:.3f}, '
        f'"dur": {200.0 - frame:.3f}, "args": {{"Python parent id": {frame}, "Python id": '
        f'{number * _FRAMES + frame}, "Ev Idx": {number * _FRAMES + frame}}}}}'
        for frame in range(_FRAMES)
    ]
    events += [
        f'{{"ph": "X", "cat": "cpu_op", "name": "aten::op_{op}", {host}, "ts": '
        f'{now + 100 + op:.3f}, "dur": {60.0 - op:.3f}, "args": {{"External id": {number}, '
        '"Record function id": 0, "Concrete Inputs": ["", "2048"], "Input type": ["c10::BFloat16", '
        f'"Scalar"], "Input Strides": [[4096, 1], []], "Input Dims": [[32, 4096], []], "Ev Idx": '
        f"{number}}}}}"
        for op in range(_OPERATORS)
    ]
    name = f"void at::native::kernel_{kernel}<4, at::native::Functor, std::array<char*, 2ul> >"
    events += [
        f'{{"ph": "X", "cat": "cuda_runtime", "name": "hipGetDevicePropertiesR0600", {host}, '
        f'"ts": {now + 109:.3f}, "dur": 0.4, "args": {{"External id": {number}, "cid": 29, '
        f'"correlation": {2 * number}}}}}',
        f'{{"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", {host}, "ts": '
        f'{now + 110:.3f}, "dur": 4.657, "args": {{"External id": {number}, "kernel": "{name}", '
        f'"stream": 3, "cid": 211, "correlation": {2 * number + 1}, "grid": [256, 1, 1], "block": '
        "[256, 1, 1]}}",
        f'{{"ph": "s", "id": {2 * number + 1}, {host}, "ts": {now + 110:.3f}, "cat": "ac2g", '
        '"name": "ac2g"}',
        f'{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 9, "tid": 3, "ts": '
        f'{now + 150:.3f}, "dur": {4.5 + number % 7 / 8:.3f}, "args": {{"External id": {number}, '
        f'"device": 9, "stream": 3, "correlation": {2 * number + 1}, "kind": "Dispatch Kernel", '
        '"grid": [256, 1, 1], "block": [256, 1, 1]}}',
        f'{{"ph": "f", "id": {2 * number + 1}, "pid": 9, "tid": 3, "ts": {now + 150:.3f}, "cat": '
        '"ac2g", "name": "ac2g", "bp": "e"}',
    ]
    return events


def write_generated(path: Path, size_bytes: int) -> None:
    """A plain JSON trace of about ``size_bytes``."""
    written = 0
    with path.open("w", encoding="ascii") as out:
        out.write('{"schemaVersion": 1, "roctracer_version": 4.1, "traceEvents": [')
        for event in generated_events():
            out.write(", " if written else "")
            out.write(event)
            written += len(event) + 2
            if written >= size_bytes:
                break
        out.write('], "traceName": "generated"}')


def run_fresh(python: str, program: str, *arguments: str) -> dict[str, Any]:
    """One run in a new process; adds the wall time of the whole process."""
    began = time.perf_counter()
    done = subprocess.run(
        [python, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - began
    if done.returncode:
        raise click.ClickException(f"{python} failed: {done.stderr.strip().splitlines()[-1:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), "process_seconds": wall}


@contextmanager
def trace_to_read(trace: Path | None, megabytes: int) -> Iterator[Path]:
    if trace is not None:
        yield trace.resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generated.json"
        write_generated(path, megabytes * 1_000_000)
        yield path


@click.command()
@click.option("--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--megabytes", type=click.IntRange(1), default=500, show_default=True)
@click.option("--blocks", default="generic-decoder", show_default=True)
@click.option(
    "--hta-python", metavar="PYTHON", help="Python of HolisticTraceAnalysis' environment."
)
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
def main(
    trace: Path | None, megabytes: int, blocks: str, hta_python: str | None, rounds: int
) -> None:
    """Read one trace by ours and by HolisticTraceAnalysis, in turns; print the ratios as JSON."""
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    with trace_to_read(trace, megabytes) as path:
        size = path.stat().st_size
        for _ in range(rounds):
            ours.append(run_fresh(sys.executable, _OURS, str(path), blocks))
            if hta_python:
                theirs.append(run_fresh(hta_python, _HTA, str(path)))
    found: dict[str, Any] = {
        "trace": path.name,
        "bytes": size,
        "events": ours[0]["events"],
        "blocks": ours[0]["blocks"],
        "ours": _summary(ours),
    }
    if theirs:
        found["hta"] = {**_summary(theirs), "version": theirs[0]["version"]}
        for clock in ("seconds", "cpu_seconds"):
            found[f"times_faster_{clock}"] = found["hta"][clock] / found["ours"][clock]
        found["share_of_memory"] = found["ours"]["peak_bytes"] / found["hta"]["peak_bytes"]
    click.echo(json.dumps(found, indent=1))


def _summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    return {
        key: statistics.median(run[key] for run in runs)
        for key in ("seconds", "cpu_seconds", "process_seconds", "peak_bytes")
    }


if __name__ == "__main__":
    main()
