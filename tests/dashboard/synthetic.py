"""A made-up history: the whole grid on a made-up v6e over commits, with names that mean harm."""

import math
import random
import subprocess
import uuid
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ledger.records import figures, measured, unmeasured, wrong

import manifests
import workloads
from k3bench.ledger import Ledger, ingest
from k3bench.ledger.published import seed
from k3bench.paths import project_root

RUNGS = ("original", "mxu_port", "fused", "unified", "flat", "optimized")
LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)
BATCHES = (1, 2, 4, 8, 16, 32, 64)

# Each would show in a browser that takes it for markup, a template, a direction or a formula.
SCRIPT = "<script>window.hacked = 1</script>"
IMAGE = '"><img src=x onerror="window.hacked = 2">'
RIGHT_TO_LEFT = "abc\u202edlrow\u202c \u05d0\u05d1"
FORMULA = "=HYPERLINK(\"http://localhost:9/\", 'x')"
LONG = "long_" * 400
TEMPLATE = "%{x} ${y} $\\alpha$ <b>bold</b> <a href='javascript:window.hacked=3'>link</a> &lt;i&gt;"
PROTOTYPE = "__proto__"
HOSTILE = (SCRIPT, IMAGE, RIGHT_TO_LEFT, FORMULA, LONG, TEMPLATE, PROTOTYPE)
START = datetime(2026, 8, 1, 12, tzinfo=UTC)


def clone(root: Path, subjects: list[str]) -> list[str]:
    """A git repository with a commit a subject; their hashes, oldest first."""
    root.mkdir(parents=True)
    hashes = []

    def git(*arguments: str, **variables: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(root), **variables}
        return subprocess.run(
            command, cwd=root, check=True, capture_output=True, text=True, env=environment
        ).stdout.strip()

    git("init", "-q", "-b", "main")
    for number, subject in enumerate(subjects):
        date = (START + timedelta(days=number)).isoformat()
        git(
            "commit", "-q", "--allow-empty", "-m", subject,
            GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date,
        )  # fmt: skip
        hashes.append(git("rev-parse", "HEAD"))
    return hashes


def grid_seconds(S: int, B: int, rung: int) -> float:
    """A made-up time: overhead, and work that each rung does less of."""
    return (40e-6 + S * B * 60e-9) * (1 + 11 / (1 + rung) ** 1.6)


def fill(ledger: Ledger, commits: list[str], *, samples: int = 30, hostile: bool = False) -> None:
    """The whole grid and both replays at every commit, two manifests, the published figures.

    ``flat`` gets 25% slower from the middle commit on; ``fused`` is wrong at S=1024, B=64.
    """
    seed(ledger)
    first = dict(manifests.capture(project_root()))
    second = deepcopy(first)
    second["environment"]["cpu"]["model"] = IMAGE if hostile else "another processor"
    second["state"]["captured_at"] = "2026-08-02T00:00:00.000Z"
    pair = [first, second]
    draw = random.Random(7)
    for number, commit in enumerate(commits):
        manifest_id = manifests.manifest_id(pair[number % 2])
        records = list(_grid(draw, manifest_id, commit, number, len(commits), samples))
        records += _replays(draw, manifest_id, commit, number)
        records += _mla(draw, manifest_id, commit, number)
        if hostile:
            records += _hostile(draw, manifest_id, commit, number)
        ingest(ledger, records, pair)


def _record(
    draw: random.Random, manifest_id: str, commit: str, number: int, *, workload: str,
    benchmark: str, parameters: dict[str, Any], implementation: str, seconds: float,
    samples: int, tokens: int, **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    taken = tuple(seconds * math.exp(draw.gauss(0, 0.03)) for _ in range(samples))
    record = measured(
        manifest_id,
        samples_s=taken,
        tokens=tokens,
        id=uuid.UUID(int=draw.getrandbits(128)).hex,
        benchmark=benchmark,
        parameters=parameters,
        implementation=implementation,
        device="tpu-v6e",
        clock="device",
        preset="device",
        commit=commit,
        started_at=(START + timedelta(days=number)).isoformat(),
        run_id=f"run-{number}",
        workload={"id": workload, "sha256": _sha256(workload)},
    )
    return {**record, **changes}


def _sha256(workload: str) -> str:
    """The pinned workload's; any for a name that is nobody's."""
    try:
        return workloads.get(workload).sha256
    except workloads.WorkloadError:
        return "a" * 64


def _grid(
    draw: random.Random, manifest_id: str, commit: str, number: int, commits: int, samples: int
) -> Iterator[dict[str, Any]]:
    for S in LENGTHS:
        for B in BATCHES:
            for rung, implementation in enumerate(RUNGS):
                slower = implementation == "flat" and number >= commits // 2
                record = _record(
                    draw, manifest_id, commit, number, workload=f"kda-grid/S{S}_B{B}",
                    benchmark="kda_prefill.FixedGrid.device_prefill",
                    parameters={"S": S, "B": B}, implementation=implementation,
                    seconds=grid_seconds(S, B, rung) * (1.25 if slower else 1.0),
                    samples=samples, tokens=S * B,
                )  # fmt: skip
                if implementation == "fused" and (S, B) == (1024, 64):
                    record |= wrong()
                yield record


def _replays(
    draw: random.Random, manifest_id: str, commit: str, number: int
) -> Iterator[dict[str, Any]]:
    for lengths in ("sharegpt-k3", "sharegpt-k3-surrogate"):
        for B in BATCHES:
            workload = workloads.get(f"{lengths}/B{B}")
            for rung, implementation in enumerate(RUNGS):
                yield _record(
                    draw, manifest_id, commit, number, workload=workload.id,
                    benchmark="kda_prefill.ShareGptReplay.device_prefill",
                    parameters={"lengths": lengths, "B": B}, implementation=implementation,
                    seconds=100 * grid_seconds(300, B, rung), samples=15, tokens=workload.tokens,
                )  # fmt: skip


def _mla(
    draw: random.Random, manifest_id: str, commit: str, number: int
) -> Iterator[dict[str, Any]]:
    for context in ("4K", "32K", "64K", "512K", "1M"):
        for B in (1, 16):
            workload = workloads.get(f"mla-decode/ctx{context}_B{B}")
            seconds = 12e-6 + sum(workload.call.kv_lengths) * 1152 / 6.1e12
            yield _record(
                draw, manifest_id, commit, number, workload=workload.id,
                benchmark="mla_decode.Decode.device_decode",
                parameters={"context": context, "B": B}, implementation="triton",
                seconds=seconds, samples=30, tokens=B, device="mi355x",
            )  # fmt: skip


def _hostile(
    draw: random.Random, manifest_id: str, commit: str, number: int
) -> Iterator[dict[str, Any]]:
    """Points of the figures' own families whose names mean harm, and figures that do."""
    for name in HOSTILE:
        yield _record(
            draw, manifest_id, commit, number, workload="kda-grid/S64_B4",
            benchmark="kda_prefill.FixedGrid.device_prefill", parameters={"S": 64, "B": 4},
            implementation=name, seconds=1e-3, samples=5, tokens=256,
        )  # fmt: skip
        yield _record(
            draw, manifest_id, commit, number, workload=f"{name}/B4", benchmark=name,
            parameters={name: name, "B": 4}, implementation=name, seconds=1e-3, samples=5,
            tokens=256, device=name, run_id=name,
        )  # fmt: skip
        record = _record(
            draw, manifest_id, commit, number, workload="kda-headline",
            benchmark=f"compiled_kda.{name}", parameters={}, implementation=name, seconds=1e-3,
            samples=5, tokens=256,
        )  # fmt: skip
        yield {
            **record, **figures((), 256), **unmeasured("compiled"), "preset": None,
            "device": "tpu-v6e",
            "figures": {"share.mxu": 0.5, "share.stall": 0.5, "slot.MXU": 0.2, name: name},
        }  # fmt: skip
        yield {
            **record, **figures((), 256), **unmeasured("published"), "preset": None,
            "id": uuid.UUID(int=draw.getrandbits(128)).hex, "source": name, "median_s": 0.002,
            "benchmark": name, "parameters": {"block": name, "context": 64}, "tokens": None,
            "warmup": None, "compile_s": None,
        }  # fmt: skip
