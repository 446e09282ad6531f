"""The suite as asv itself discovers it: names, versions, parameters; and the dates of commits.

asv's discovery imports the whole suite and prints as it goes, so it runs in a process of its own:
``python -m k3bench.export.suite OUT`` with the commits on standard input, a line each.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from k3bench.export.errors import ExportError
from k3bench.measure.protocol import PRESET_VARIABLE

# asv's benchmark dictionary: what benchmarks.json holds for one.
Benchmark = dict[str, Any]


@dataclass(frozen=True)
class Suite:
    """What asv knows of the suite under one preset.

    Attributes:
        benchmarks: by name.
        dates: commit hash to its author date in milliseconds since the epoch, as asv stamps
            results; only commits that this clone has.
        results_dir: where asv.conf.json puts result files, absolute.
    """

    benchmarks: Mapping[str, Benchmark]
    dates: Mapping[str, int]
    results_dir: Path


def discover(project_root: Path, preset: str, commits: Iterable[str]) -> Suite:
    """Asks asv, with the interpreter that runs this, which benchmarks ``preset`` has.

    Raises ExportError with asv's last words where it cannot say.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "suite.json"
        completed = subprocess.run(
            [sys.executable, "-m", "k3bench.export.suite", str(out)],
            cwd=project_root,
            env={**os.environ, PRESET_VARIABLE: preset},
            input="\n".join(commits),
            text=True,
            capture_output=True,
            check=False,
        )
        if completed.returncode != 0:
            said = (completed.stderr + completed.stdout).strip().splitlines() or ["no message"]
            raise ExportError(
                f"asv cannot discover the benchmarks of preset {preset}: {said[-1]}: "
                "`asv check` shows why"
            )
        found = json.loads(out.read_text())
    return Suite(found["benchmarks"], found["dates"], project_root / found["results_dir"])


def positions(benchmark: Benchmark) -> dict[tuple[str, ...], int]:
    """Index of every parameter combination, by the reprs of its values."""
    return {values: index for index, values in enumerate(product(*benchmark["params"]))}


def united(suites: Sequence[Mapping[str, Benchmark]]) -> dict[str, Benchmark]:
    """One benchmarks.json for several presets, which differ in how many points they have.

    Later suites win where the versions differ; parameters are united where they do not.
    """
    whole: dict[str, Benchmark] = {}
    for suite in suites:
        for name, benchmark in suite.items():
            known = whole.get(name)
            same = known is not None and all(
                known[key] == benchmark[key] for key in ("version", "param_names")
            )
            if known is None or not same:
                whole[name] = benchmark
                continue
            axes = [
                list(dict.fromkeys([*before, *after]))
                for before, after in zip(known["params"], benchmark["params"], strict=True)
            ]
            whole[name] = {**benchmark, "params": axes}
    return whole


def _discover_here(out: Path, commits: Sequence[str]) -> None:
    from asv import util
    from asv.benchmarks import Benchmarks
    from asv.config import Config
    from asv.environment import get_environments
    from asv.plugin_manager import plugin_manager
    from asv.repo import get_repo

    config = Config.load("asv.conf.json")
    for plugin in config.plugins:
        plugin_manager.import_plugin(plugin)
    repo = get_repo(config)
    try:
        found = Benchmarks.discover(config, repo, list(get_environments(config, None)), [])
    except util.UserError as error:
        raise SystemExit(str(error)) from None
    out.write_text(
        json.dumps(
            {
                "benchmarks": found._all_benchmarks,
                "dates": _dates(Path(repo._path), commits),
                "results_dir": config.results_dir,
            }
        )
    )


def _dates(repository: Path, commits: Sequence[str]) -> dict[str, int]:
    # asv asks git for one commit at a time; a ledger may name thousands.
    completed = subprocess.run(
        ["git", "-C", repository, "log", "--no-walk=unsorted", "--ignore-missing",
         "--format=%H %at", "--stdin"],
        input="\n".join(commits), text=True, capture_output=True, check=False,
    )  # fmt: skip
    if completed.returncode != 0:
        raise SystemExit(completed.stderr.strip() or "git log failed")
    pairs = (line.split() for line in completed.stdout.splitlines())
    wanted = set(commits)
    return {commit: int(seconds) * 1000 for commit, seconds in pairs if commit in wanted}


if __name__ == "__main__":
    _discover_here(Path(sys.argv[1]), sys.stdin.read().split())
