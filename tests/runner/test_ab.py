"""`k3bench ab` on a toy project: both commits in one run, in turns, as ordinary records."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness.asv_project import ToyProject

from k3bench.runner.ab_worker import points


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
    assert "toy.Toy.device_toy(point=1) absent: skipped: no such chip here" in output

    calls = [line.split()[1:] for line in project.logged() if line.startswith("call")]
    timed = calls[4:]  # after the four checks
    round_of = [
        ["0.001", "fast"], ["0.003", "fast"], ["0.001", "slow"], ["0.003", "slow"],
    ]  # fmt: skip
    assert timed == [
        turn for n in range(12) for turn in (round_of if n % 2 == 0 else round_of[::-1])
    ]


def test_nothing_is_left_for_asv_to_resume(project: ToyProject) -> None:
    assert not list((project.root / ".k3bench" / "runs").iterdir())


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
