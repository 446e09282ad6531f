"""The CI workflows: pinned, with few rights, and a dry run of their steps that passes and fails."""

import re
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from harness.asv_project import ToyProject
from workflow_steps import ROOT, WORKFLOWS, JobResult, load, python_of_the_tests, run_job

NAMES = sorted(path.name for path in WORKFLOWS.glob("*.yml"))
SCRIPTS = sorted((ROOT / ".github" / "scripts").glob("*.sh"))


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in load(name)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", NAMES)
def test_every_action_is_pinned_by_commit_with_its_version_beside_it(name: str) -> None:
    lines = [line for line in (WORKFLOWS / name).read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


@pytest.mark.parametrize("name", NAMES)
def test_a_job_has_no_right_that_it_does_not_name(name: str) -> None:
    workflow = load(name)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert "contents" in job["permissions"]
        writes = {scope for scope, right in job["permissions"].items() if right == "write"}
        assert writes <= ({"pull-requests"} if name == "comment.yml" else set())


@pytest.mark.parametrize("name", NAMES)
def test_nothing_from_an_event_is_pasted_into_a_script(name: str) -> None:
    for step in steps(name):
        assert "${{" not in step.get("run", "")


def test_a_pull_request_s_code_runs_without_secrets_and_never_with_a_writing_token() -> None:
    assert set(load("pull-request.yml")["on"]) == {"pull_request"}
    assert "secrets." not in (WORKFLOWS / "pull-request.yml").read_text()
    comment = load("comment.yml")
    assert set(comment["on"]) == {"workflow_run"}
    (checkout,) = [s for s in steps("comment.yml") if "checkout" in s.get("uses", "")]
    assert "ref" not in checkout["with"], "the default branch's scripts, not the pull request's"
    for name in NAMES:
        assert "pull_request_target" not in load(name)["on"]
        for step in steps(name):
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("device", ["tpu-v6e", "mi355x"])
def test_a_device_job_is_for_its_label_and_never_for_a_fork(device: str) -> None:
    job = load("devices.yml")["jobs"][device]
    assert job["runs-on"] == ["self-hosted", device]
    assert f"github.event.label.name == 'bench {device}'" in job["if"]
    assert "head.repo.full_name == github.repository" in job["if"]
    (measure,) = [step for step in job["steps"] if step.get("name") == "Measure"]
    assert measure["env"]["DEVICE"] == device
    assert measure["env"]["K3BENCH_DB"] == "${{ secrets.K3BENCH_DB }}"
    (checkout,) = [step for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["clean"] is False, "the spool of points lies in the checkout"


def test_actionlint_finds_nothing() -> None:
    if shutil.which("actionlint") is None:
        pytest.skip("actionlint is not on this machine")
    files = [str(WORKFLOWS / name) for name in NAMES]
    found = subprocess.run(["actionlint", *files], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


# A compiled figure that a commit can change, recorded as the real compiled tier records its own.
COMPILED_SUITE = """
import os
from pathlib import Path
import kda_tpu
from k3bench.asv_type import PointFailedError, bring_into_ledger
from k3bench.journal import RunJournal, point_key
from k3bench.measure import Correctness, Result
from k3bench.measure.point import utc_now

class Toy:
    version = "1"
    params = (["flat"],)
    param_names = ("implementation",)

    def track_modelled_ms(self, implementation):
        journal = RunJournal(Path(os.environ["K3BENCH_RUN_DIR"]))
        name, commit = "compiled_toy.Toy.track_modelled_ms", os.environ["ASV_COMMIT"]
        status = "ok" if kda_tpu.ERROR == 0 else "failed"
        record = Result(
            name, {}, implementation, "compiled", "tpu-v6e", None, None, None, (), 1.0, 64, 64,
            Correctness(status, detail="oom: scoped VMEM" if status == "failed" else None),
            "toy", "0" * 64, os.environ["K3BENCH_MANIFEST_ID"], commit, utc_now(), journal.run_id,
        ).to_record() | {"figures": {"kernel_cycles": round(1e6 * kda_tpu.SECONDS), "jax": "1"}}
        key = point_key(
            commit=commit, environment=os.environ["ASV_ENV_NAME"], benchmark=name, version="1",
            parameters={}, implementation=implementation, warmup=0, repeat=0,
        )
        journal.append(key, os.environ["ASV_ENV_NAME"], record)
        journal.take(key)
        bring_into_ledger(journal, [record])
        if status != "ok":
            raise PointFailedError("k3bench: FAILED")
        return 1e3 * kda_tpu.SECONDS
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ToyProject:
    """A toy with our scripts and a compiled benchmark; main is what pull requests start from."""
    project = ToyProject.create(tmp_path_factory.mktemp("workflow"))
    (project.root / "benchmarks" / "compiled_toy.py").write_text(dedent(COMPILED_SUITE))
    shutil.copytree(ROOT / ".github" / "scripts", project.root / ".github" / "scripts")
    project.commit("A compiled benchmark", seconds=0.001)
    for branch, seconds, error in (
        ("same", 0.001, 0.0), ("worse", 0.002, 0.0), ("broken", 0.001, 1.0),
    ):  # fmt: skip
        project.git("checkout", "-q", "-b", branch, "main")
        project.commit(branch, seconds=seconds, error=error)
    project.git("checkout", "-q", "main")
    # main goes on: the gate compares with where the branch left it.
    project.commit("Faster on main", seconds=0.0005)
    return project


def dry_run(project: ToyProject, branch: str, temporary: Path) -> JobResult:
    """The pull request's job in a clone of the branch, as the hosted runner would check it out."""
    clone = temporary / "clone"
    subprocess.run(["git", "clone", "-q", project.root, clone], check=True)
    head, base = (project.git("rev-parse", name) for name in (branch, "main"))
    subprocess.run(["git", "-C", clone, "checkout", "-q", head], check=True)
    return run_job(
        load("pull-request.yml")["jobs"]["compiled"],
        clone,
        {
            "github.event.pull_request.base.sha": base,
            "github.event.pull_request.head.sha": head,
        },
        project.environ(K3BENCH_CI_PYTHON=python_of_the_tests()),
        temporary / "runner",
    )


@pytest.mark.parametrize(
    ("branch", "code", "said"),
    [
        ("same", 0, "1 point compared"),
        ("worse", 1, "1 worse"),
        ("broken", 1, "1 failed"),
    ],
)
def test_a_pull_request_passes_or_fails_by_its_compiled_figures(
    project: ToyProject, tmp_path: Path, branch: str, code: int, said: str
) -> None:
    job = dry_run(project, branch, tmp_path)
    assert [step.name for step in job.steps] == ["Install", "Compile base and head, and judge"]
    assert job.code == code, job.output
    assert said in job.summary
    verdict = (tmp_path / "clone" / "gate.md").read_text()
    assert verdict and verdict in job.summary


def test_a_pull_request_without_commits_has_nothing_to_judge(
    project: ToyProject, tmp_path: Path
) -> None:
    job = dry_run(project, "main~1", tmp_path)
    assert job.code == 0
    assert "Nothing to judge" in job.output


FAKE_GH = """
echo "$@" >> "$GH_LOG"
for last; do :; done
case "$*" in *body=@*) cat "${last#body=@}" > "$GH_BODY" ;; esac
case "$*" in
  *"/pulls "*) echo "$GH_NUMBER" ;;
  *--paginate*) printf '%s' "$GH_COMMENTS" ;;
esac
"""


@pytest.mark.parametrize(
    ("number", "comments", "request_made"),
    [
        ("7", "", "-X POST repos/team/k3bench/issues/7/comments"),
        ("7", "31\n32\n", "-X PATCH repos/team/k3bench/issues/comments/31"),
        ("", "", None),
        ("7; rm", "", None),
    ],
)
def test_the_comment_is_made_once_and_then_updated(
    tmp_path: Path, number: str, comments: str, request_made: str | None
) -> None:
    gh = tmp_path / "gh"
    gh.write_text("#!/usr/bin/env bash\n" + FAKE_GH)
    gh.chmod(0o755)
    verdict = tmp_path / "gate.md"
    verdict.write_bytes(b"**worse** @everyone \xff $(touch owned)\n" + b"x" * 70_000)
    log, body = tmp_path / "log", tmp_path / "body"
    done = subprocess.run(
        ["bash", ROOT / ".github" / "scripts" / "comment.sh", verdict],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_REPOSITORY": "team/k3bench",
            "HEAD_OWNER": "somebody", "HEAD_BRANCH": "x$(touch owned)", "HEAD_SHA": "a" * 40,
            "GH_LOG": str(log), "GH_BODY": str(body), "GH_NUMBER": number, "GH_COMMENTS": comments,
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    asked = log.read_text()
    assert "-f head=somebody:x$(touch owned)" in asked
    if request_made is None:
        assert not body.exists() and "POST" not in asked and "PATCH" not in asked
        return
    assert request_made in asked
    text = body.read_text()
    assert text.startswith("<!-- k3bench gate -->\n**worse** @\u200beveryone")
    assert len(text) < 65_536
    assert not (tmp_path / "owned").exists()


def test_no_verdict_is_no_comment(tmp_path: Path) -> None:
    script = ROOT / ".github" / "scripts" / "comment.sh"
    done = subprocess.run(["bash", script, tmp_path / "absent"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "no verdict in this run\n")


def device_job(project: ToyProject, temporary: Path, **env: str) -> JobResult:
    """The TPU's job on this machine's CPU, under the smoke preset, on the toy's benchmark."""
    job = load("devices.yml")["jobs"]["tpu-v6e"]
    (measure,) = [step for step in job["steps"] if step.get("name") == "Measure"]
    expressions = dict.fromkeys(re.findall(r"\$\{\{\s*(.+?)\s*\}\}", str(measure["env"])), "")
    expressions["secrets.K3BENCH_DB"] = env.pop("db", f"sqlite:///{temporary}/team.sqlite")
    changed = {**measure, "env": {**measure["env"], "PRESET": "smoke", "DEVICE": "cpu", **env}}
    steps = [changed if step is measure else step for step in job["steps"]]
    environ = project.environ(K3BENCH_CI_PYTHON=python_of_the_tests())
    return run_job({"steps": steps}, project.root, expressions, environ, temporary / "runner")


def test_a_device_job_measures_into_the_team_s_database(
    project: ToyProject, tmp_path: Path
) -> None:
    job = device_job(project, tmp_path, BENCH=r"device_toy\(1", COMMITS="same")
    assert job.code == 0, job.output
    assert (tmp_path / "team.sqlite").is_file()


def test_another_device_than_the_job_s_is_not_measured(project: ToyProject, tmp_path: Path) -> None:
    before = project.logged()
    job = device_job(project, tmp_path, DEVICE="tpu-v6e", BENCH="device_toy")
    assert job.code == 2
    assert "this runner measures cpu, not tpu-v6e" in job.output
    assert project.logged() == before


def test_points_outlive_a_database_that_is_away(project: ToyProject, tmp_path: Path) -> None:
    away = f"sqlite:///{tmp_path}/away/team.sqlite"
    job = device_job(project, tmp_path, db=away, BENCH=r"\(2, 'fast'", COMMITS="same")
    assert job.code == 69
    assert "the points are kept on this runner" in job.output
    assert list((project.root / ".k3bench" / "runs").glob("*/*/*-*.json"))
    (tmp_path / "away").mkdir()
    # The next job's first step brings them in, whatever it measures itself.
    job = device_job(project, tmp_path, db=away, BENCH=r"\(3, 'fast'", COMMITS="same")
    assert job.code == 0, job.output
    rows = subprocess.run(
        [python_of_the_tests(), "-m", "k3bench", "results", "--json"], cwd=project.root,
        env=project.environ(K3BENCH_DB=away), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert '"point": 2' in rows and '"point": 3' in rows
