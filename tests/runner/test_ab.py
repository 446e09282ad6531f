"""`k3bench ab` on a toy project: both commits in one run, in turns, as ordinary records."""

import json
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness.asv_project import ToyProject

from k3bench.journal import RunJournal
from k3bench.runner.ab_worker import points, side_order


def ab(project: ToyProject, *arguments: str, expect: int = 0, **changes: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-m", "k3bench", "ab", *arguments],
        cwd=project.root, env=project.environ(**changes), text=True, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert completed.returncode == expect, completed.stdout
    return completed.stdout


def log_every_call(project: ToyProject) -> None:
    """The suite notes whose kernel each call is."""
    suite = project.root / "benchmarks" / "toy.py"
    suite.write_text(
        suite.read_text().replace(
            "def call():\n",
            'def call():\n                touch(f"call {kda_tpu.SECONDS} {name}")\n',
        )
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ToyProject:
    """Three commits: a kernel, one three times slower, and one that is wrong."""
    project = ToyProject.create(tmp_path_factory.mktemp("ab"))
    log_every_call(project)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "Log calls")
    project.git("tag", "base")
    project.commit("A slower kernel", seconds=0.003)
    project.git("tag", "slower")
    project.commit("A wrong kernel", seconds=0.001, error=0.5)
    project.git("tag", "wrong")
    return project


def test_both_commits_take_turns_in_one_run_and_are_recorded_under_their_hashes(
    project: ToyProject,
) -> None:
    output = ab(project, "base", "slower", "--bench", r"device_toy\(1", "--preset", "smoke")
    base, head = (project.git("rev-parse", name) for name in ("base", "slower"))
    rows = project.results("--kind", "measured")
    assert sorted((row["commit"] == head, row["implementation"]) for row in rows) == [
        (False, "fast"), (False, "slow"), (True, "fast"), (True, "slow"),
    ]  # fmt: skip
    assert {row["commit"] for row in rows} == {base, head}
    assert len({row["run_id"] for row in rows}) == len({row["manifest_id"] for row in rows}) == 1
    for row in rows:
        assert (row["preset"], row["n"], row["warmup"]) == ("smoke", 10, 2)
        assert row["correctness"]["status"] == "ok"
        assert row["figures"]["dispatch_floor_s"] > 0
        least = (
            0.001
            * (3 if row["commit"] == head else 1)
            * (2 if row["implementation"] == "slow" else 1)
        )
        assert least < row["median_s"] < 100 * least
    assert "k3bench: 4 points, all right" in output
    assert "k3bench: toy.Toy.device_toy(point=1) fast: base " in output
    assert f"k3bench gate {base[:12]} {head[:12]}" in output
    assert output.count("toy.Toy.device_toy(point=1): skipped: absent: no such chip here") == 1

    calls = [line.split()[1:] for line in project.logged() if line.startswith("call")]
    timed = calls[4:]  # after the four checks
    sides = ["0.001", "0.003"]
    assert timed == [
        [seconds, name]
        for n in range(12)
        for name in ("fast", "slow")
        for seconds in (sides if n % 2 == 0 else sides[::-1])
    ]
    assert {(row["commit"], row["figures"]["in_turns_with"]) for row in rows} == {
        (base, head), (head, base),
    }  # fmt: skip


def gate(project: ToyProject, *arguments: str) -> tuple[int, dict[str, Any]]:
    completed = subprocess.run(
        [sys.executable, "-m", "k3bench", "gate", *arguments, "--json"],
        cwd=project.root, env=project.environ(), text=True, capture_output=True, check=False,
    )  # fmt: skip
    return completed.returncode, json.loads(completed.stdout)


def test_the_gate_compares_the_alternating_samples_and_finds_a_slow_down(
    project: ToyProject,
) -> None:
    same = project.git("commit-tree", "base^{tree}", "-p", "base", "-m", "The same kernels")
    ab(project, "base", same, "--bench", r"device_toy\((1|2)")
    # Beyond any load of the machine: the toy's 3 times stay above it, noise of a sleep below.
    code, report = gate(project, "base", same, "--threshold", "50%")
    assert (code, report["verdict"]) == (0, "passed")
    assert report["compared"] == 4
    assert all(finding["statistics"]["in_turns"] for finding in report["findings"])

    ab(project, "base", "slower", "--bench", r"device_toy\((1|2)")
    code, report = gate(project, "base", "slower", "--threshold", "50%")
    assert (code, report["verdict"]) == (1, "failed")
    assert report["counts"] == {"slower": 4}
    for finding in report["findings"]:
        # Of base's runs only those that slower took part in: one at point 2, maybe two at point 1.
        base, head = finding["statistics"]["runs"]
        assert base == head == (1 if finding["parameters"]["point"] == 2 else head)
        assert 1.5 < finding["statistics"]["ratio"] < 3.2


FURTHER_CLOCK = """
import os
from k3bench.measure import clocks
from k3bench.runner import surroundings


class Counting:
    name, clock, parameters, notes = "wall", "device", {}, {}

    def time_all(self, calls, checks, counts, before_call, order):
        with open(os.environ["TOY_LOG"], "a") as log:
            for index in range(2):
                print("further", *order(list(calls), index), file=log)
        return clocks.Timed({name: (0.5,) * counts.repeat for name in calls})


surroundings.further_clocks = lambda backend: (Counting(),)
"""


def test_a_further_clock_takes_turns_in_the_same_order_and_its_records_name_the_other_side(
    tmp_path: Path,
) -> None:
    project = ToyProject.create(tmp_path)
    init = project.root / "benchmarks" / "__init__.py"
    init.write_text(init.read_text() + FURTHER_CLOCK)
    head = project.commit("A slower kernel", seconds=0.002)
    base = project.git("rev-parse", "HEAD~1")
    ab(project, "HEAD~1", "HEAD", "--bench", r"device_toy\(1", K3BENCH_CLOCKS="all")
    assert [line for line in project.logged() if line.startswith("further")] == [
        "further base:fast head:fast base:slow head:slow",
        "further head:fast base:fast head:slow base:slow",
    ]
    further = [row["figures"] for row in project.results() if row["clock"] == "device"]
    assert sorted(figures["in_turns_with"] for figures in further) == sorted([base, head] * 2)


def test_nothing_is_left_for_asv_to_resume(project: ToyProject) -> None:
    assert not list((project.root / ".k3bench" / "runs").iterdir())


def test_a_killed_run_loses_the_point_in_flight_and_no_other(tmp_path: Path) -> None:
    project = ToyProject.create(tmp_path)
    log_every_call(project)
    slower = project.commit("A slower kernel", seconds=0.002)
    suite = project.root / "benchmarks" / "toy.py"
    # The third point's first call waits until it is killed.
    suite.write_text(
        suite.read_text().replace(
            "def call():\n",
            "def call():\n"
            "                while point == 3 and os.environ.get('TOY_STUCK'): time.sleep(0.01)\n",
        )
    )
    command = [sys.executable, "-m", "k3bench", "ab", "HEAD~1", "HEAD"]
    process = subprocess.Popen(
        command, cwd=project.root, env=project.environ(TOY_STUCK="1"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while "prepare 3 fast" not in project.logged():
        assert time.monotonic() < deadline, "the third point was never reached"
        time.sleep(0.02)
    process.kill()
    process.wait()

    project.asv("run", f"{slower}^!", "--bench", r"device_toy\(1, 'fast'")  # an asv run between
    project.log.unlink()
    output = ab(project, "HEAD~1", "HEAD")
    for point in (1, 2):
        assert (
            f"k3bench: toy.Toy.device_toy(point={point}): kept from the interrupted run" in output
        )
    assert {line for line in project.logged() if line.startswith("prepare")} == {
        "prepare 3 fast", "prepare 3 slow",
    }  # fmt: skip
    assert "k3bench: 12 points, all right" in output
    assert "12 ok; 8 reused from an interrupted run" in output
    assert not list((project.root / ".k3bench" / "runs").iterdir())
    rows = [row for row in project.results() if "in_turns_with" in (row["figures"] or {})]
    assert len(rows) == 12
    runs_of: dict[str, set[str]] = {}
    for row in rows:
        runs_of.setdefault(str(row["parameters"]), set()).add(row["run_id"])
    assert all(len(runs) == 1 for runs in runs_of.values()), "both sides of a point are of one run"

    project.log.unlink()
    ab(project, "HEAD~1", "HEAD", "--bench", r"device_toy\(1")
    assert "prepare 1 fast" in project.logged(), "a run that ended is not resumed"


def test_points_beside_another_commit_are_not_kept(tmp_path: Path) -> None:
    journal = RunJournal.create(tmp_path, {})
    for key, run in (("a", "1"), ("b", "2"), ("b", "1"), ("c", "2")):
        record = {"id": f"{key}{run}", "run_id": run}
        journal.append(key, "ab", record)
    assert journal.keep_together(["a", "c"]) is None, "of two runs"
    assert journal.keep_together(["a", "d"]) is None
    assert journal.keep_together([]) is None
    assert journal.keep_together(["a", "b"]) == "1"
    journal.deliver("ab")
    left = {(point.key, point.record["run_id"]) for point in journal.points()}
    delivered = {p.key + p.record["run_id"] for p in journal.points() if p.delivered_at}
    assert left == {("a", "1"), ("b", "1"), ("b", "2"), ("c", "2")}
    assert delivered == {"a1", "b1"}


def test_each_side_is_as_often_first_and_has_the_same_neighbours() -> None:
    names = ["base:x", "head:x", "head:new", "base:y", "head:y"]
    assert side_order(names, 0) == names
    assert side_order(names, 1) == ["head:x", "base:x", "head:new", "head:y", "base:y"]
    calls = [name for n in range(101) for name in side_order(names, n)]
    before = Counter(pairwise(calls))
    before.pop(("base:y", "head:x"), None)  # the last round's end, once
    for name in ("x", "y"):
        own = [before[f"head:{name}", f"base:{name}"], before[f"base:{name}", f"head:{name}"]]
        assert abs(own[0] - own[1]) <= 1 and min(own) >= 50
        assert before[f"base:{name}", f"base:{name}"] == before[f"head:{name}", f"head:{name}"] == 0


def test_a_wrong_head_is_a_failed_check_and_base_keeps_its_time(project: ToyProject) -> None:
    output = ab(project, "base", "wrong", "--bench", r"\(2, 'slow'", expect=1)
    assert "1 of 2 points are wrong" in output
    assert "head wrong: differs by 0.5" in output
    rows = project.results("--kind", "measured", "--commit", "wrong")
    assert [(row["n"], row["median_s"]) for row in rows] == [(0, None)]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("base", "base"), 64, "are the same commit"),
        (("base", "nowhere"), 64, "nowhere: git knows no such commit"),
        (("base", "slower", "--bench", "("), 64, "no regular expression"),
        (("base", "slower", "--bench", "no such benchmark"), 2, "nothing was measured"),
    ],
)
def test_what_cannot_be_compared_is_said(
    project: ToyProject, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert message in ab(project, *arguments, expect=code)


def test_a_commit_without_kernels_is_refused(tmp_path: Path) -> None:
    project = ToyProject.create(tmp_path)
    project.git("rm", "-rq", "--cached", "kda_tpu")
    project.git("commit", "-q", "-m", "No kernels")
    assert "has no kernels to measure" in ab(project, "HEAD~1", "HEAD", expect=64)


SIDES = """
import sys
from pathlib import Path
from k3bench.runner import sides
sides.discovered = lambda root: iter(())  # no suite: this is about modules
root = Path(sys.argv[1])
a = sides.Side("base", "a" * 40, root / "a", root)
b = sides.Side("head", "b" * 40, root / "b", root)
calls = {}
for side in (a, b):
    side.enter()
    import kda_tpu
    calls[side] = kda_tpu.call
found = []
for side in (a, b, b, a):
    side.enter()
    found.append(calls[side]())
print(found)
"""


def test_what_a_kernel_imports_late_is_its_own_commit_s(tmp_path: Path) -> None:
    for name in "ab":
        room = tmp_path / name / "kda_tpu"
        room.mkdir(parents=True)
        (room / "__init__.py").write_text(
            "def call():\n    from kda_tpu import late\n    return late.WHOSE\n"
        )
        (room / "late.py").write_text(f"WHOSE = {name!r}\n")
    found = subprocess.run(
        [sys.executable, "-c", SIDES, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert found.stdout.strip() == str(["a", "b", "b", "a"]), found.stderr


class FakeBenchmark:
    """As asv's: parameter names and values."""

    param_names = ("implementation", "S")

    def __init__(self, *implementations: str) -> None:
        self._params = [list(implementations), [8, 64]]


def test_points_are_selected_as_asv_selects_them_on_each_side() -> None:
    sides = {
        "base": {"m.device_x": FakeBenchmark("a")},
        "head": {"m.device_x": FakeBenchmark("a", "b")},
    }
    (point,) = points(sides, [r"device_x\('\w', 8"])
    assert point.parameters == {"S": 8}
    assert point.implementations == {"base": ("a",), "head": ("a", "b")}
    assert json.dumps([str(p) for p in points(sides, [])]) == (
        '["m.device_x(S=8)", "m.device_x(S=64)"]'
    )
    assert list(points(sides, ["nothing"])) == []
