"""A made-up asv project: a git history, and result files as asv would have written them."""

import json
import random
import subprocess
from pathlib import Path

from asv import util

MACHINE: dict[str, str | int] = {
    "machine": "made-up",
    "arch": "x86_64",
    "cpu": "made up",
    "num_cpu": "2",
    "os": "Linux",
    "ram": "8",
    "version": 1,
}
_FIRST = 1_750_000_000
_DAY = 86_400


def asv_project(
    root: Path, *, commits: int, benchmarks: int, parameters: int, seed: int = 3
) -> list[str]:
    """A project of ``benchmarks`` x ``parameters`` series; returns the hashes, oldest first.

    A few series step up or down, some values are missing, and one benchmark has no parameters.
    """
    root.mkdir(parents=True)
    (root / "asv.conf.json").write_text(
        json.dumps(
            {"version": 1, "project": "made-up", "repo": ".", "branches": ["main"], "dvcs": "git",
             "results_dir": "results", "html_dir": "html", "env_dir": "env",
             "environment_type": "existing", "benchmark_dir": "benchmarks",
             "plugins": [".k3bench.asv_plugin"]}
        )
    )  # fmt: skip
    hashes = _history(root, commits)
    draw = random.Random(seed)
    names = [f"suite.Bench{number}.time_it" for number in range(benchmarks)]
    sizes = {name: 0 if number == 0 else parameters for number, name in enumerate(names)}
    levels = {name: [10 ** draw.uniform(-5, -1) for _ in range(sizes[name] or 1)] for name in names}
    steps = {name: draw.randrange(commits) for name in names[::3]}
    results = root / "results" / str(MACHINE["machine"])
    results.mkdir(parents=True)
    (results / "machine.json").write_text(json.dumps(MACHINE))
    _write_benchmarks(root / "results" / "benchmarks.json", sizes)
    for number, commit in enumerate(hashes):
        found = {}
        for name in names:
            jump = 1.4 if name in steps and number >= steps[name] else 1.0
            values = [level * jump * (1 + draw.gauss(0, 0.02)) for level in levels[name]]
            found[name] = _row(draw, values, sizes[name])
        _write_results(results, commit, number, found)
    return hashes


def _history(root: Path, commits: int) -> list[str]:
    stream = "".join(
        f"commit refs/heads/main\nmark :{number + 1}\n"
        f"committer t <t@localhost> {_FIRST + number * _DAY} +0000\n"
        f"data {len(f'change {number}')}\nchange {number}\n"
        for number in range(commits)
    )

    def git(*arguments: str, given: str = "") -> str:
        return subprocess.run(
            ["git", *arguments], cwd=root, input=given, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q", "-b", "main")
    git("fast-import", "--quiet", given=stream)
    return git("rev-list", "--reverse", "main").split()


def _write_benchmarks(path: Path, sizes: dict[str, int]) -> None:
    known = {
        name: {
            "name": name, "type": "time", "unit": "seconds", "version": "1", "code": "",
            "params": [[str(value) for value in range(size)]] if size else [],
            "param_names": ["size"] if size else [], "timeout": 60, "min_run_count": 2,
            "number": 0, "repeat": 0, "rounds": 1, "sample_time": 0.01, "warmup_time": -1,
        }
        for name, size in sizes.items()
    }  # fmt: skip
    util.write_json(str(path), known, 2)


def _row(draw: random.Random, values: list[float], size: int) -> list[object]:
    shown: list[float | None] = [None if draw.random() < 0.01 else value for value in values]
    low = [None if value is None else value * 0.98 for value in shown]
    high = [None if value is None else value * 1.02 for value in shown]
    count = [None if value is None else 20 for value in shown]
    parameters = [[str(value) for value in range(size)]] if size else []
    return [shown, parameters, "1", _FIRST * 1000, 1.0, low, high, low, high, count, count]


def _write_results(
    directory: Path, commit: str, number: int, found: dict[str, list[object]]
) -> None:
    document = {
        "commit_hash": commit, "env_name": "existing-py", "date": (_FIRST + number * _DAY) * 1000,
        "params": {**{k: v for k, v in MACHINE.items() if k != "version"}, "python": "3.11"},
        "python": "3.11", "requirements": {}, "env_vars": {},
        "result_columns": ["result", "params", "version", "started_at", "duration",
                           "stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75",
                           "stats_number", "stats_repeat"],
        "results": found, "durations": {},
    }  # fmt: skip
    util.write_json(str(directory / f"{commit[:8]}-existing-py.json"), document, 2)
