"""The GPU's clock on a torch that only records: flushed, idle, then events around the call."""

from types import SimpleNamespace

import pytest
import torch

from k3bench.measure.backends.gpu import FLUSH_FACTOR, TorchGpu, describe_torch_gpu


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    happened: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            happened.append("event")

        def elapsed_time(self, end: "Event") -> float:
            return 2.5

    def empty(size: int, dtype: torch.dtype, device: str) -> SimpleNamespace:
        happened.append(f"allocate {size * dtype.itemsize}")
        return SimpleNamespace(zero_=lambda: happened.append(f"overwrite {size}"))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: happened.append("wait"))
    monkeypatch.setattr(torch, "empty", empty)
    return happened


def test_twice_the_last_level_cache_is_overwritten_before_every_sample(log: list[str]) -> None:
    device, flush_bytes = describe_torch_gpu("AMD Instinct MI355X", 4 << 20)
    assert flush_bytes == FLUSH_FACTOR * (256 << 20) and FLUSH_FACTOR >= 2
    backend = TorchGpu(device, "rocm", flush_bytes)
    assert backend.time(lambda: log.append("call")) == pytest.approx(2.5e-3)
    backend.time(lambda: log.append("call"))
    sample = [f"overwrite {flush_bytes}", "wait", "event", "call", "event", "wait"]
    assert log == [f"allocate {flush_bytes}", *sample, *sample]
