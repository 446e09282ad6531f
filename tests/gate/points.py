"""Points and rows made to order for the gate's tests."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from k3bench.gate import Measured, Point, Row

MOMENT = datetime(2026, 8, 1, tzinfo=UTC)


def point(
    parameters: Any = 0,
    implementation: str = "first",
    benchmark: str = "kda.Grid.time",
    **changes: Any,
) -> Point:
    named = parameters if isinstance(parameters, dict) else {"S": parameters}
    fields = {
        "kind": "measured",
        "device": "cpu",
        "preset": "ladder",
        "benchmark": benchmark,
        "parameters": json.dumps(named, sort_keys=True, separators=(",", ":")),
        "implementation": implementation,
    }
    return Point(**{**fields, **changes})


def row(samples_s: Sequence[float] = (), **changes: Any) -> Row:
    median = float(np.median(samples_s)) if len(samples_s) else None
    fields = {
        "id": "0" * 32,
        "run_id": "run-1",
        "commit": "a" * 40,
        "started_at": MOMENT,
        "clock": "wall" if len(samples_s) else None,
        "median_s": median,
        "tokens_per_s": None if median is None else 100 / median,
        "padded_tokens": 128,
        "status": "ok",
        "detail": None,
        "max_abs_error": 1e-4,
        "workload": ("w", "0" * 64),
        "manifest_id": "1" * 64,
        "fingerprint": "2" * 64,
        "figures": None,
        "samples_s": np.asarray(samples_s, dtype=np.float64),
    }
    return Row(**{**fields, **changes})


def lognormal(
    random: np.random.Generator, n: int = 30, level: float = 1e-3, noise: float = 0.03
) -> np.ndarray:
    return level * np.exp(noise * random.standard_normal(n))


def comparison(
    random: np.random.Generator,
    groups: int = 30,
    implementations: Sequence[str] = ("first", "second"),
    runs: int = 1,
    n: int = 30,
    slow: dict[str, float] | None = None,
    slow_points: dict[tuple[int, str], float] | None = None,
) -> list[Measured]:
    """Base and head with 3% noise; ``slow`` multiplies whole implementations of head."""
    made = []
    for group in range(groups):
        for name in implementations:
            factor = (slow or {}).get(name, 1.0) * (slow_points or {}).get((group, name), 1.0)
            base = [lognormal(random, n) for _ in range(runs)]
            head = [lognormal(random, n) * factor for _ in range(runs)]
            repeats = [[float(np.log(np.median(one))) for one in side] for side in (base, head)]
            made.append(Measured(point(group, name), base, head, repeats if runs > 1 else ()))
    return made
