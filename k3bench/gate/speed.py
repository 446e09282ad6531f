"""How long the gate takes: `python -m k3bench.gate.speed [POINTS ...]`.

Fills a temporary ledger with two commits of so many points (30 samples a side, two implementations
taking turns), then times reading and judging it, the best of three; prints a Markdown table. CPU
seconds are of this process alone: what the wall clock shows on a machine with nothing else to do.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from k3bench.gate.compare import Rules, compare, environments_of
from k3bench.gate.select import of_commit, repeated_medians, select_side
from k3bench.ledger import Ledger, ingest, load_manifest, open_ledger
from k3bench.ledger.statistics import summarise
from k3bench.paths import project_root
from manifests import capture, manifest_id

SAMPLES = 30
COMMITS = ("a" * 40, "b" * 40)
_NOISE = 0.03


def records(points: int, manifest: str, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Measured records of two commits: ``points`` a commit, lognormal noise of 3%."""
    random = np.random.default_rng(seed)
    for side, commit in enumerate(COMMITS):
        for index in range(points):
            level = 1e-3 * (1 + index % 17)
            samples = (level * np.exp(_NOISE * random.standard_normal(SAMPLES))).tolist()
            summary = summarise(samples)
            yield {
                "id": f"{side:08x}{index:024x}",
                "benchmark": "speed.Grid.device_time",
                "parameters": {"B": index // 2 % 100, "S": index // 200},
                "implementation": ("first", "second")[index % 2],
                "kind": "measured",
                "device": "cpu",
                "clock": "wall",
                "preset": "ladder",
                "warmup": 5,
                "samples_s": samples,
                "median_s": summary.median,
                "p10_s": summary.p10,
                "p90_s": summary.p90,
                "n": SAMPLES,
                "compile_s": 0.1,
                "tokens": 512,
                "padded_tokens": 512,
                "tokens_per_s": 512 / summary.median,
                "correctness": {
                    "status": "ok",
                    "max_abs_error": 1e-4,
                    "tolerance": 5e-4,
                    "reference": None,
                    "detail": None,
                },
                "workload": {"id": f"speed/{index // 2}", "sha256": "0" * 64},
                "manifest_id": manifest,
                "commit": commit,
                "started_at": f"2026-01-0{side + 1}T00:00:00+00:00",
                "run_id": f"run-{side}",
                "source": None,
                "figures": None,
            }


def time_gate(ledger: Ledger) -> tuple[float, float, float]:
    """Seconds to read both commits of the ledger, to judge them, and CPU seconds of both."""
    started, cpu = time.perf_counter(), time.process_time()
    with ledger.session() as session:
        base, head = (select_side(session, commit, of_commit(commit)) for commit in COMMITS)
        repeats = repeated_medians(session, environments_of(base, head))
        read = time.perf_counter()
        report = compare(
            COMMITS, base, head, repeats, lambda one: load_manifest(session, one), Rules()
        )
    if report.compared != len(base):
        raise AssertionError(f"{report.compared} of {len(base)} points were compared")
    return read - started, time.perf_counter() - read, time.process_time() - cpu


def measure(points: int, directory: Path) -> tuple[float, float, float]:
    """The fastest of three goes at a ledger of so many points."""
    manifest = dict(capture(project_root()))
    with open_ledger(str(directory / f"{points}.sqlite")) as ledger:
        ingest(ledger, records(points, manifest_id(manifest)), [manifest])
        return min((time_gate(ledger) for _ in range(3)), key=lambda go: go[0] + go[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m k3bench.gate.speed", description=__doc__)
    parser.add_argument("points", nargs="*", type=int, default=[1000, 3000, 10_000, 30_000])
    print("| points | read s | judge s | together s | CPU s |\n|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as directory:
        for points in parser.parse_args(arguments).points:
            read, judged, cpu = measure(points, Path(directory))
            both = read + judged
            print(f"| {points:,} | {read:.2f} | {judged:.2f} | {both:.2f} | {cpu:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
