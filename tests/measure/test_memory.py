"""What does not fit is refused with the bytes needed and the bytes there."""

from pathlib import Path

import psutil
import pytest

from k3bench.measure.memory import available_bytes, does_not_fit

GIB = 2**30


def _cgroup(directory: Path, limit: str, used: int, cached: int) -> Path:
    (directory / "memory.max").write_text(limit + "\n")
    (directory / "memory.current").write_text(f"{used}\n")
    (directory / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\nslab 2\n")
    return directory


def test_a_containers_limit_counts_where_it_is_the_lower_one(tmp_path: Path) -> None:
    group = _cgroup(tmp_path, str(3 * GIB), 2 * GIB, GIB // 2)
    free = psutil.virtual_memory().available
    assert available_bytes("cpu", group) == pytest.approx(min(free, 3 * GIB // 2), rel=0.1)


@pytest.mark.parametrize("limit", ["max", None])
def test_without_a_limit_the_hosts_free_memory_counts(tmp_path: Path, limit: str | None) -> None:
    if limit:
        _cgroup(tmp_path, limit, 1, 1)
    free = psutil.virtual_memory().available
    assert available_bytes("cpu", tmp_path) == pytest.approx(free, rel=0.1)


def test_a_point_that_fits_has_no_reason_and_one_that_does_not_names_both_sides() -> None:
    assert does_not_fit(9 * GIB, "cpu", available=10 * GIB) is None
    reason = does_not_fit(10 * GIB, "cpu", available=10 * GIB)
    assert reason == ("does not fit: needs 10.0 GiB, 9.0 GiB may be used here (10.0 GiB free)")


def test_on_a_gpu_the_devices_free_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (5 * GIB, 8 * GIB))
    assert available_bytes("rocm") == available_bytes("cuda") == 5 * GIB
