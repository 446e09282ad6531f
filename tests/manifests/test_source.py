"""The source: which commit, dirty or not, and a digest that changes just when the source does."""

import subprocess
from pathlib import Path

import pytest

from manifests.machine import Machine
from manifests.source import read_source

ENVIRON = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


def git(directory: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(directory), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=ENVIRON,
    ).stdout.strip()


def read(directory: Path, **environ: str) -> dict[str, object]:
    return read_source(Machine(environ={**ENVIRON, **environ}), directory)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    directory = tmp_path / "checkout"
    directory.mkdir()
    git(directory, "init", "-q")
    (directory / "kernel.py").write_text("x = 1\n")
    (directory / "results.sqlite").write_text("rows\n")
    (directory / ".gitignore").write_text("html/\n")
    git(directory, "add", ".")
    git(directory, "commit", "-qm", "one")
    return directory


def test_a_clean_checkout_has_a_commit_and_no_digest(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert read(checkout) == {"commit": commit, "dirty": False, "digest": None, "problem": None}


@pytest.mark.parametrize("name", ["results.sqlite", "results.sqlite-wal", "results.sqlite-shm"])
def test_a_changed_ledger_does_not_make_a_run_dirty(checkout: Path, name: str) -> None:
    (checkout / name).write_text("more rows\n")
    assert read(checkout)["dirty"] is False


def test_an_ignored_file_does_not_make_a_run_dirty(checkout: Path) -> None:
    (checkout / "html").mkdir()
    (checkout / "html/index.html").write_text("page")
    assert read(checkout)["dirty"] is False


def test_a_touched_but_equal_file_does_not_make_a_run_dirty(checkout: Path) -> None:
    (checkout / "kernel.py").write_text("x = 1\n")
    (checkout / "kernel.py").touch()
    assert read(checkout)["dirty"] is False


def test_every_kind_of_change_gives_a_digest_of_its_own(checkout: Path) -> None:
    digests = []

    def note() -> None:
        found = read(checkout)
        assert found["dirty"] is True
        digests.append(found["digest"])

    (checkout / "kernel.py").write_text("x = 2\n")
    note()
    git(checkout, "add", "kernel.py")
    (checkout / "kernel.py").write_text("x = 3\n")
    note()
    (checkout / "kernel.py").unlink()
    note()
    (checkout / "kernel.py").write_text("x = 1\n")
    (checkout / "kernel.py").chmod(0o755)
    note()
    (checkout / "kernel.py").unlink()
    (checkout / "kernel.py").symlink_to("elsewhere.py")
    note()
    git(checkout, "checkout", "-qf", "HEAD", "--", ".")
    (checkout / "new.py").write_text("y = 1\n")
    note()
    (checkout / "new.py").rename(checkout / "other.py")
    note()
    assert len(set(digests)) == len(digests) == 7


def test_staged_and_unstaged_are_the_same_source(checkout: Path) -> None:
    (checkout / "new.py").write_text("y = 1\n")
    unstaged = read(checkout)
    git(checkout, "add", "new.py")
    assert read(checkout) == unstaged


def test_the_digest_does_not_depend_on_the_users_diff_settings(checkout: Path) -> None:
    (checkout / "kernel.py").write_text("x = 2\n")
    before = read(checkout)
    git(checkout, "config", "diff.noprefix", "true")
    git(checkout, "config", "diff.external", "false")
    git(checkout, "config", "diff.context", "9")
    assert read(checkout) == before


def test_odd_file_names_are_digested_too(checkout: Path) -> None:
    (checkout / "a b\n\tä.py").write_text("1")
    (checkout / b"\xff.py".decode("utf-8", "surrogateescape")).write_text("2")
    assert read(checkout)["dirty"] is True


def test_an_untracked_repository_inside_counts_by_its_commit(checkout: Path) -> None:
    inner = checkout / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "a").write_text("1")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "inner")
    before = read(checkout)
    (inner / "a").write_text("2")
    assert before["dirty"] is True
    assert read(checkout)["digest"] != before["digest"]


def test_a_project_in_a_subdirectory_is_judged_by_itself(checkout: Path) -> None:
    project = checkout / "project"
    project.mkdir()
    (project / "a.py").write_text("1")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "two")
    (checkout / "kernel.py").write_text("x = 2\n")
    assert read(project)["dirty"] is False
    (project / "a.py").write_text("2")
    assert read(project)["dirty"] is True


def test_reading_changes_nothing_in_the_checkout(checkout: Path) -> None:
    (checkout / "kernel.py").touch()
    index = (checkout / ".git/index").read_bytes()
    read(checkout)
    assert (checkout / ".git/index").read_bytes() == index


def test_a_hooks_git_dir_does_not_lead_elsewhere(checkout: Path, tmp_path: Path) -> None:
    assert read(checkout, GIT_DIR=str(tmp_path / "other")) == read(checkout)


def test_no_checkout_is_said_and_not_guessed(tmp_path: Path) -> None:
    found = read(tmp_path, GIT_CEILING_DIRECTORIES=str(tmp_path.parent))
    assert found == {
        "commit": None,
        "dirty": None,
        "digest": None,
        "problem": "not_a_checkout",
    }


def test_an_archive_unpacked_inside_another_repository_has_not_its_commit(checkout: Path) -> None:
    unpacked = checkout / "html/k3bench"
    unpacked.mkdir(parents=True)
    (unpacked / "kernel.py").write_text("x = 1\n")
    assert read(unpacked)["problem"] == "not_a_checkout"


def test_a_repository_without_a_commit_says_so(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert read(tmp_path)["problem"] == "no_commit"


def test_a_machine_without_git_says_so(checkout: Path, tmp_path: Path) -> None:
    assert read(checkout, PATH=str(tmp_path))["problem"] == "git_not_found"


def test_a_broken_repository_says_that_git_failed(checkout: Path) -> None:
    (checkout / ".git/index").write_bytes(b"not an index")
    assert read(checkout)["problem"] == "git_failed"
