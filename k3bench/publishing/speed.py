"""How much faster than asv's publishing ours is, on the same made-up project.

python -m k3bench.publishing.speed [--commits 400] [--benchmarks 57] [--parameters 10] [--repeats 3]

Both publish in turns, each in a new process; what is timed is asv's publishing without the kernel
pages and asv-tachyon's interface, and ours with the loading of what makes it fast. The clock tells
what a user waits, the processor's seconds (of all processes) what repeats on a machine that others
use. The ratio is that of the best of each. Every published file must be the same, byte for byte.
"""

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from k3bench.publishing.speed_project import asv_project

WAYS = ("plain", "fast")
# Holds the time of day.
_INFO = Path("info.json")


@click.command()
@click.option("--commits", default=400, show_default=True)
@click.option("--benchmarks", default=57, show_default=True, help="The first has one series.")
@click.option("--parameters", default=10, show_default=True, help="Series of each other one.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
@click.option("--once", type=click.Choice(WAYS), hidden=True, help="Publish where we stand.")
def main(
    commits: int, benchmarks: int, parameters: int, repeats: int, as_json: bool, once: str | None
) -> None:
    """Publish a made-up project in both ways, in turns, and print the ratio of the best times."""
    if once is not None:
        click.echo(json.dumps(_published(Path.cwd(), once)))
        return
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "project"
        asv_project(root, commits=commits, benchmarks=benchmarks, parameters=parameters)
        found = measured(root, repeats)
    found["series"] = 1 + (benchmarks - 1) * parameters
    found["commits"] = commits
    if as_json:
        click.echo(json.dumps(found, indent=1))
    else:
        click.echo(f"{commits} commits x {found['series']} series, seconds:")
        for unit in ("wall_s", "cpu_s"):
            columns = (" ".join(f"{run[unit]:6.2f}" for run in found[way]) for way in WAYS)
            plain, fast = columns
            click.echo(f"{unit}: plain {plain}, fast {fast}, {found['ratio'][unit]:.2f} times")
        click.echo(f"{found['files']} files, {len(found['different'])} different")
    if found["different"]:
        raise SystemExit(1)


def measured(root: Path, repeats: int) -> dict[str, Any]:
    """Runs of both ways in the project at ``root``, and their results held against each other.

    Returns:
        "plain" and "fast": lists of {"wall_s", "cpu_s"}; "ratio": plain over fast of the best of
        each; "files": how many were compared; "different": the names of those that differ.
    """
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(2 * repeats):
        # Who comes first changes, so that neither always meets the other's warm caches.
        way = WAYS[(number + number // 2) % 2]
        runs[way].append(_in_a_new_process(root, way))
    different, files = _compared(root / "plain", root / "fast")
    ratio = {
        unit: _best(runs["plain"], unit) / _best(runs["fast"], unit) for unit in runs["plain"][0]
    }
    return {**runs, "ratio": ratio, "files": files, "different": different}


def _best(runs: Sequence[Mapping[str, float]], unit: str) -> float:
    return min(run[unit] for run in runs)


def _in_a_new_process(root: Path, way: str) -> dict[str, float]:
    # asv walks through sets: their order, and so the order of regressions, hangs on the seed.
    done = subprocess.run(
        [sys.executable, "-m", "k3bench.publishing.speed", "--once", way],
        cwd=root, env={**os.environ, "PYTHONHASHSEED": "0"}, check=True, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    times: dict[str, float] = json.loads(done.stdout)
    return times


def _published(root: Path, way: str) -> dict[str, float]:
    """Publishes the project into a directory named like the way, and says how long it took."""
    from asv.commands.publish import Publish
    from asv.config import Config

    conf = Config.load(str(root / "asv.conf.json"))
    conf.html_dir = str(root / way)
    wall, cpu = time.perf_counter(), _cpu_seconds()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if way == "fast":
            from k3bench.publishing.publish import fast_publishing

            stack.enter_context(fast_publishing())
        Publish.run(conf, pull=False)
    return {"wall_s": time.perf_counter() - wall, "cpu_s": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _compared(plain: Path, fast: Path) -> tuple[list[str], int]:
    """Names of the files that are not the same in both, and how many files there are."""
    names = {
        path.relative_to(top)
        for top in (plain, fast)
        for path in top.rglob("*")
        if path.is_file() and path.relative_to(top) != _INFO
    }
    different = [
        str(name)
        for name in sorted(names)
        if not ((plain / name).is_file() and (fast / name).is_file())
        or (plain / name).read_bytes() != (fast / name).read_bytes()
    ]
    return different, len(names)


if __name__ == "__main__":
    main()
