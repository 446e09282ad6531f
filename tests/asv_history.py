"""asv publishing a made-up project, by itself and as ``k3bench publish`` does it."""

import os
import subprocess
import sys
from pathlib import Path

from k3bench.publishing.speed_project import asv_project

__all__ = ["asv_project", "published", "published_both_ways"]


def published_both_ways(root: Path) -> None:
    """Publishes a project twice: into plain/ by asv, and into html/ by ``k3bench publish``."""
    fast = (
        "import sys; from k3bench.cli import COMMANDS, main; "
        "COMMANDS.setdefault('publish', ('publish', '')); main(['publish', *sys.argv[1:]])"
    )
    # asv walks through sets: their order, and so the order of regressions, hangs on the seed.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "K3BENCH_DB": str(root / "none.sqlite")}
    for command in (
        ("-m", "asv", "publish", "--no-pull", "-o", "plain"),
        ("-c", fast, "--no-pull"),
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def published(root: Path, *command: str) -> str:
    """Runs a publishing command in the project; its output, after its exit code was checked."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
