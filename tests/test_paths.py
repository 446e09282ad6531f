"""The project root: the nearest directory with asv.conf.json, else the checkout of the package."""

from pathlib import Path

import pytest

from k3bench.paths import MARKER, ProjectNotFound, project_root


def test_the_nearest_directory_with_a_marker_wins(tmp_path, monkeypatch):
    inner = tmp_path / "outer" / "inner"
    (inner / "deep").mkdir(parents=True)
    (tmp_path / "outer" / MARKER).touch()
    assert project_root(inner / "deep") == tmp_path / "outer"
    (inner / MARKER).touch()
    monkeypatch.chdir(inner / "deep")
    assert project_root() == inner


def test_outside_any_project_the_source_checkout_is_taken(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    (checkout / "k3bench").mkdir(parents=True)
    (checkout / MARKER).touch()
    monkeypatch.setattr("k3bench.paths.__file__", str(checkout / "k3bench" / "paths.py"))
    assert project_root(Path("/")) == checkout


def test_no_project_at_all_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr("k3bench.paths.__file__", str(tmp_path / "k3bench" / "paths.py"))
    with pytest.raises(ProjectNotFound, match=f"no {MARKER} in {tmp_path} or above it"):
        project_root(tmp_path)
