"""A device whose clock is a script: tests of the harness need no real time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from k3bench.measure import Candidate, Correctness, Experiment, WorkloadRef


@dataclass
class ScriptedBackend:
    """Counts calls, and lets a sample cost what the call itself returns."""

    device: str = "cpu"
    platform: str = "cpu"
    clock: Literal["wall", "device"] = "wall"
    order: list[str] = field(default_factory=list)

    def wait(self, outputs: Any) -> None:
        self.order.append(f"wait {outputs[0]}")

    def time(self, call: Callable[[], Any]) -> float:
        name, seconds = call()
        self.order.append(f"time {name}")
        return float(seconds)


def experiment(
    backend: ScriptedBackend,
    *,
    seconds: dict[str, float],
    wrong: frozenset[str] = frozenset(),
    raising: frozenset[str] = frozenset(),
    unavailable: dict[str, str] | None = None,
) -> Experiment:
    """A point whose implementations cost a fixed time; some are wrong, some raise."""

    def candidate(name: str) -> Candidate:
        def prepare() -> Callable[[], tuple[str, float]]:
            if name in raising:
                raise RuntimeError("scoped VMEM exceeded\nsecond line")
            return lambda: (name, seconds[name])

        def check(outputs: tuple[str, float]) -> Correctness:
            del outputs
            error = 0.5 if name in wrong else 1e-5
            status: Literal["ok", "wrong"] = "wrong" if name in wrong else "ok"
            return Correctness(status, error, 5e-4, "oracle", f"o differs by {error}")

        return Candidate(name, prepare, check, padded_tokens=128)

    return Experiment(
        workload=WorkloadRef("test/one", "0" * 64),
        tokens=100,
        backend=backend,
        candidates={name: (lambda name=name: candidate(name)) for name in seconds},
        unavailable=unavailable or {},
    )
