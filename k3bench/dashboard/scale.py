"""How long the pages take to build as the ledger grows, on made-up results.

python -m k3bench.dashboard.scale 100x100 300x300 1000x1000
"""

import hashlib
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

import manifests
from k3bench.dashboard.build import build
from k3bench.ledger import Ledger, ingest, open_ledger
from k3bench.ledger.statistics import summarise
from k3bench.paths import project_root

_START = datetime(2026, 1, 1, tzinfo=UTC)
_SAMPLES = 5
_RECORDS_A_BATCH = 20_000
_IMPLEMENTATIONS = 4


@click.command()
@click.argument("sizes", nargs=-1, required=True, metavar="COMMITSxSERIES...")
def main(sizes: tuple[str, ...]) -> None:
    """Fill a ledger of each size in a temporary directory, build the pages, and say how long."""
    click.echo("commits x series, results, seconds to build, seconds of CPU, MB of pages, peak MB")
    for size in sizes:
        commits, series = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            with open_ledger(str(root / "ledger.sqlite")) as ledger:
                _fill(ledger, commits, series)
                started, cpu = time.perf_counter(), _cpu_seconds()
                built = build(ledger, root / "pages", repository=root)
                took, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
            pages = sum(path.stat().st_size for path in (root / "pages").rglob("*.*"))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        click.echo(
            f"{size}, {built.results:,}, {took:.1f}, {cpu:.1f}, {pages / 1e6:.0f}, {peak:.0f}"
        )


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _fill(ledger: Ledger, commits: int, series: int) -> None:
    manifest = dict(manifests.capture(project_root()))
    batch: list[dict[str, Any]] = []
    for record in _records(commits, series, manifests.manifest_id(manifest)):
        batch.append(record)
        if len(batch) == _RECORDS_A_BATCH:
            ingest(ledger, batch, [manifest])
            batch = []
    ingest(ledger, batch, [manifest])


def _records(commits: int, series: int, manifest_id: str) -> Iterator[dict[str, Any]]:
    """Times with 2% noise; a third of the series change their level once."""
    draw = random.Random(1)
    levels = [10 ** draw.uniform(-5, -2) for _ in range(series)]
    steps = [draw.randrange(commits) if number % 3 == 0 else commits for number in range(series)]
    for place in range(commits):
        commit = hashlib.sha1(str(place).encode()).hexdigest()
        for number in range(series):
            level = levels[number] * (1.2 if place >= steps[number] else 1.0)
            samples = [level * (1 + abs(draw.gauss(0, 0.02))) for _ in range(_SAMPLES)]
            yield _record(draw, commit, place, number, samples, manifest_id)


def _record(
    draw: random.Random,
    commit: str,
    place: int,
    number: int,
    samples: list[float],
    manifest_id: str,
) -> dict[str, Any]:
    summary = summarise(tuple(samples))
    point, implementation = divmod(number, _IMPLEMENTATIONS)
    return {
        "id": f"{draw.getrandbits(128):032x}",
        "benchmark": f"suite{point % 10}.Bench.device_prefill",
        "parameters": {"point": point},
        "implementation": f"implementation{implementation}",
        "kind": "measured",
        "device": "cpu",
        "clock": "wall",
        "preset": "quick",
        "warmup": 1,
        "samples_s": samples,
        "median_s": summary.median,
        "p10_s": summary.p10,
        "p90_s": summary.p90,
        "n": len(samples),
        "compile_s": None,
        "tokens": 64,
        "padded_tokens": 64,
        "tokens_per_s": 64 / summary.median,
        "correctness": {"status": "ok", "max_abs_error": 1e-4, "tolerance": 5e-4,
                        "reference": "made up", "detail": None},
        "workload": {"id": f"made-up/{point}", "sha256": hashlib.sha256(b"").hexdigest()},
        "manifest_id": manifest_id,
        "commit": commit,
        "started_at": (_START + timedelta(hours=place)).isoformat(),
        "run_id": f"run-{place}",
        "source": None,
        "figures": None,
    }  # fmt: skip


if __name__ == "__main__":
    main()
