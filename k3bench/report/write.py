"""Writes what a report consists of, and tells which files are not what it says."""

from collections.abc import Mapping
from pathlib import Path


def write_files(files: Mapping[Path, str], project_root: Path) -> list[Path]:
    """Writes the files that differ, each at once or not at all.

    Args:
        files: content by path relative to the project.
        project_root: where they go.

    Returns their paths, relative to the project.
    """
    changed = stale_files(files, project_root)
    for path in changed:
        target = project_root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.write_text(files[path])
        temporary.replace(target)
    return changed


def stale_files(files: Mapping[Path, str], project_root: Path) -> list[Path]:
    """The files whose content on disk is another."""
    return [
        path
        for path, content in files.items()
        if not (project_root / path).is_file() or (project_root / path).read_text() != content
    ]
