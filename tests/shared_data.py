"""Finds the checking data beside the repository, and skips the test where it is absent."""

from pathlib import Path

import pytest

_SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def shared_file(relative: str) -> Path:
    """The path of one checking file, e.g. ``lengths/sharegpt_k3_lengths.json``.

    Skips the calling test with a reason when the file is not on this machine.
    """
    path = _SHARED / relative
    if not path.is_file():
        pytest.skip(f"checking data {relative} is not beside this checkout (../shared/data)")
    return path
