"""Every test here has a cache of its own, so that nothing of this machine is read or changed."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty K3BENCH_CACHE for the test."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("K3BENCH_CACHE", str(directory))
    return directory
