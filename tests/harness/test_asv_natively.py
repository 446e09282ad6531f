"""asv's own commands on the provisioned environment, end to end, with real processes."""

import sqlite3
import time
from pathlib import Path

import pytest
from asv_project import ToyProject


@pytest.fixture
def project(tmp_path: Path) -> ToyProject:
    return ToyProject.create(tmp_path)


def measured(project: ToyProject) -> list[dict]:
    return project.results("--kind", "measured")


def test_a_run_over_two_commits_lands_in_the_ledger_and_compares(project: ToyProject) -> None:
    base = project.git("rev-parse", "HEAD")
    head = project.commit("A slower kernel", seconds=0.004)
    output = project.asv("run", "--record-samples", f"{base}^!")
    assert "6 points in the ledger (6 ok)" in output
    project.asv("run", "--record-samples", "NEW")
    rows = measured(project)
    assert {row["commit"] for row in rows} == {base, head}
    assert len(rows) == 12
    for row in rows:
        assert row["device"] == "cpu"
        assert row["correctness"]["status"] == "ok"
        assert row["n"] == 10
        assert row["median_s"] <= row["p90_s"]
        assert row["tokens_per_s"] == row["tokens"] / row["median_s"]
        assert row["manifest_id"]
    compared = project.asv("compare", base[:8], head[:8])
    assert "toy.Toy.device_toy(3, 'slow')" in compared
    # A kernel four times slower: asv sees it in samples that are ours.
    medians = {
        commit: [row["median_s"] for row in rows if row["commit"] == commit]
        for commit in (base, head)
    }
    assert min(medians[head]) > max(medians[base])
    assert "+" in compared


def test_ranges_and_continuous_run_on_the_same_interpreter(project: ToyProject) -> None:
    base = project.git("rev-parse", "HEAD")
    head = project.commit("The same kernel again", seconds=0.001)
    project.asv("run", f"{base}..{head}", "--bench", "toy.*fast")
    assert {row["commit"] for row in measured(project)} == {head}
    output = project.asv("continuous", base, head, "--bench", "toy.*fast")
    assert "2 commits * 1 environments" in output
    assert "6 points in the ledger (6 ok)" in output
    assert {row["commit"] for row in measured(project)} == {base, head}


def test_bench_selects_and_only_the_selected_are_measured(project: ToyProject) -> None:
    project.asv("run", "--bench", r"Toy.device_toy\(2, 'slow'")
    assert project.logged() == ["experiment 2", "prepare 2 slow"]
    (row,) = measured(project)
    assert (row["parameters"], row["implementation"]) == ({"point": 2}, "slow")


def test_siblings_are_measured_together_once(project: ToyProject) -> None:
    project.asv("run", "--bench", r"Toy.device_toy\(1")
    # The absent one is asked too, and refuses before anything is built.
    assert project.logged() == [
        "experiment 1", "prepare 1 fast", "prepare 1 slow", "experiment 1",
    ]  # fmt: skip


def test_a_wrong_kernel_is_recorded_without_a_speed_and_the_run_says_so(
    project: ToyProject,
) -> None:
    project.commit("Break the slow kernel", seconds=0.001, error=0.25)
    output = project.asv("run", expect=2)
    assert "3 ok, 3 wrong" in output
    assert "WRONG, no speed recorded: toy.Toy.device_toy(point=2) slow: differs by 0.25" in output
    rows = measured(project)
    wrong = [row for row in rows if row["implementation"] == "slow"]
    assert len(wrong) == 3
    for row in wrong:
        assert row["correctness"] == {"status": "wrong", "max_abs_error": 0.25, "tolerance": 1e-3}
        assert row["median_s"] is row["tokens_per_s"] is None
        assert row["n"] == 0
    assert all(row["median_s"] for row in rows if row["implementation"] == "fast")


def test_quick_takes_one_sample_and_never_passes_as_the_preset(project: ToyProject) -> None:
    project.asv("run", "--quick", "--bench", "fast")
    rows = measured(project)
    assert {(row["n"], row["preset"]) for row in rows} == {(1, "quick")}


def test_attributes_override_the_preset_s_counts(project: ToyProject) -> None:
    project.asv("run", "-a", "repeat=3", "--bench", "fast")
    assert {row["n"] for row in measured(project)} == {3}


def test_a_dry_run_records_nothing_anywhere(project: ToyProject) -> None:
    output = project.asv("run", "--dry-run", "--bench", "fast")
    assert "not recorded (--dry-run)" in output
    assert not (project.root / "results.sqlite").exists()
    assert not list((project.root / ".k3bench" / "runs").iterdir())


def test_skip_existing_commits_measures_nothing_again(project: ToyProject) -> None:
    project.asv("run", "--bench", "fast")
    before = len(project.logged())
    project.asv("run", "--skip-existing-commits", "--bench", "fast")
    assert len(project.logged()) == before


def test_a_second_complete_run_measures_afresh(project: ToyProject) -> None:
    project.asv("run", "--bench", "fast")
    project.asv("run", "--bench", "fast")
    assert len(measured(project)) == 6
    assert not list((project.root / ".k3bench" / "runs").iterdir())


def test_a_detached_head_runs(project: ToyProject) -> None:
    head = project.git("rev-parse", "HEAD")
    project.git("checkout", "-q", "--detach", head)
    project.asv("run", "--bench", "fast")
    assert {row["commit"] for row in measured(project)} == {head}


def test_publish_makes_pages(project: ToyProject) -> None:
    project.asv("run", "--bench", "fast")
    project.asv("publish")
    assert (project.root / "html" / "index.json").is_file()


def test_presets_have_result_files_of_their_own(project: ToyProject) -> None:
    project.asv("run", "--bench", r"\(1, 'fast'")
    project.asv("run", "--bench", r"\(1, 'fast'", K3BENCH_PRESET="ladder")
    assert {(row["preset"], row["n"]) for row in measured(project)} == {
        ("smoke", 10), ("ladder", 20),
    }  # fmt: skip
    files = list((project.root / ".asv" / "results").glob("*/*-provisioned-*.json"))
    assert len(files) == 2


def test_an_unknown_preset_is_one_clear_line(project: ToyProject) -> None:
    output = project.asv("run", expect=1, K3BENCH_PRESET="fast")
    assert "K3BENCH_PRESET=fast: no such preset; use one of smoke, ladder, device" in output


def test_a_commit_without_the_kernel_room_is_refused_not_replaced(project: ToyProject) -> None:
    project.git("rm", "-rq", "--cached", "kda_tpu")
    project.git("commit", "-q", "-m", "No kernels")
    # The working tree still has the room; the commit has not.
    output = project.asv("run", "--show-stderr", "--bench", r"\(1, 'fast'", expect=2)
    assert "has no kda_tpu/" in output
    assert not (project.root / "results.sqlite").exists()


def wait_for_points(project: ToyProject, count: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if len(list((project.root / ".k3bench" / "runs").glob("*/*/*-*.json"))) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{count} points were not journaled within {seconds} s")


def prepared(project: ToyProject) -> list[tuple[int, str]]:
    """(point, implementation) of every preparation so far, in order."""
    lines = [line.split() for line in project.logged() if line.startswith("prepare")]
    return [(int(point), implementation) for _, point, implementation in lines]


def test_a_killed_run_loses_only_the_point_in_flight_and_resumes(project: ToyProject) -> None:
    project.commit("Slow enough to be killed", seconds=0.03)
    victim = project.start("run")
    wait_for_points(project, 2)
    victim.kill()
    victim.communicate()

    kept = {(row["parameters"]["point"], row["implementation"]) for row in measured(project)}
    assert len(kept) >= 2, "what was finished is in the ledger before anything is run again"
    before = len(prepared(project))
    output = project.asv("run")
    assert "finished points of the interrupted run" in output
    assert f"{len(kept)} reused from an interrupted run" in output

    everything = [(point, name) for point in (1, 2, 3) for name in ("fast", "slow")]
    assert not set(prepared(project)[before:]) & kept, "finished points are not measured twice"
    rows = measured(project)
    assert sorted((r["parameters"]["point"], r["implementation"]) for r in rows) == everything
    with sqlite3.connect(project.root / "results.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    # The resumed run is complete: nothing is left to resume, and the next one measures afresh.
    assert not list((project.root / ".k3bench" / "runs").iterdir())


def test_nothing_survives_a_killed_run_to_disturb_the_next(project: ToyProject) -> None:
    project.commit("Slow enough to be killed", seconds=0.05)
    victim = project.start("run")
    wait_for_points(project, 2)
    victim.kill()
    victim.communicate()
    time.sleep(0.3)
    before = len(project.logged())
    time.sleep(1.5)
    assert len(project.logged()) == before


def test_two_runs_at_once_both_land(project: ToyProject) -> None:
    runs = [project.start("run"), project.start("run", K3BENCH_PRESET="ladder")]
    outputs = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    rows = measured(project)
    assert sorted({row["preset"] for row in rows}) == ["ladder", "smoke"]
    assert len(rows) == 12


def test_an_unwritable_ledger_loses_nothing(project: ToyProject) -> None:
    output = project.asv(
        "run", "--bench", "fast", K3BENCH_DB=f"sqlite:///{project.root}/absent/dir/x.sqlite"
    )
    assert "stay in its journal" in output
    assert measured(project), "the next command brings the points in"
