"""Which source was measured: the commit, and a digest of whatever differs from it.

The digest is over the changed files' names, modes and contents and not over the text of a diff, so
it does not depend on git's version or on the user's diff settings.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

from manifests.machine import Machine

# The ledger changes with every run, and no kernel reads it: it does not make a run dirty.
_LEDGER_FILES = frozenset("results.sqlite" + suffix for suffix in ("", "-wal", "-shm", "-journal"))
# Set while a git hook runs, and then about the hook's repository.
_ELSEWHERE = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"),
    *("GIT_NAMESPACE", "GIT_PREFIX"),
)
_GIT_TIMEOUT_S = 60.0
_BLOCK_BYTES = 1 << 20


class _GitError(Exception):
    """Why there is no commit to name, as one of the schema's words."""


def read_source(machine: Machine, project_root: Path) -> dict[str, Any]:
    """Commit, dirty flag and digest of the checkout at `project_root`.

    `digest` is SHA-256 over the files that differ from HEAD and the untracked ones that are not
    ignored, None for a clean checkout. Without a readable checkout all three are None and `problem`
    says why: git_not_found, not_a_checkout, unsafe_ownership, no_commit or git_failed.
    """
    try:
        commit, changed = _changed_files(machine, project_root)
    except _GitError as error:
        return {"commit": None, "dirty": None, "digest": None, "problem": str(error)}
    digest = _digest(machine, project_root, changed) if changed else None
    return {"commit": commit, "dirty": bool(changed), "digest": digest, "problem": None}


def _changed_files(machine: Machine, project_root: Path) -> tuple[str, list[bytes]]:
    top = _git(machine, project_root, "rev-parse", "--show-toplevel").rstrip(b"\n")
    if not Path(os.fsdecode(top)).samefile(project_root) and not _git(
        machine, project_root, "ls-files", "-z", "--", "."
    ):
        # Unpacked inside somebody else's repository: its commit says nothing about our files.
        raise _GitError("not_a_checkout")
    commit = _git(machine, project_root, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
    # status and not diff: diff writes a refreshed index whatever GIT_OPTIONAL_LOCKS says.
    options = ("--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    listed = _git(machine, project_root, "status", *options, "--ignore-submodules=none", "--", ".")
    prefix = _git(machine, project_root, "rev-parse", "--show-prefix").rstrip(b"\n")
    # Each entry is two letters, a blank and the path from the top of the repository.
    names = {entry[3:].removeprefix(prefix) for entry in listed.split(b"\0") if entry}
    return commit, sorted(names - {os.fsencode(name) for name in _LEDGER_FILES})


def _git(machine: Machine, project_root: Path, *arguments: str) -> bytes:
    # Without optional locks git reads a checkout and leaves it as it is.
    environ = {name: text for name, text in machine.environ.items() if name not in _ELSEWHERE}
    environ |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(project_root), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environ,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise _GitError("git_not_found") from None
    except (OSError, subprocess.TimeoutExpired):
        raise _GitError("git_failed") from None
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.decode("utf-8", errors="replace")
    for words, problem in (
        ("not a git repository", "not_a_checkout"),
        ("dubious ownership", "unsafe_ownership"),
        ("Needed a single revision", "no_commit"),
    ):
        if words in message:
            raise _GitError(problem)
    raise _GitError("git_failed")


def _digest(machine: Machine, project_root: Path, names: list[bytes]) -> str:
    """SHA-256 over (name, kind, SHA-256 of the content) of each file, in order of name."""
    total = hashlib.sha256()
    for name in names:
        kind, content = _content(machine, project_root / os.fsdecode(name))
        for part in (name, kind.encode(), content):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()


def _content(machine: Machine, path: Path) -> tuple[str, bytes]:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return "link", os.fsencode(path.readlink())
        if stat.S_ISDIR(mode):
            # A submodule, or an untracked repository: its own commit and changes stand for it.
            inner = read_source(machine, path)
            return "repository", f"{inner['commit']} {inner['digest']}".encode()
        if not stat.S_ISREG(mode):
            return "special", b""
        content = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                content.update(block)
        return ("executable" if mode & stat.S_IXUSR else "file"), content.digest()
    except FileNotFoundError:
        return "deleted", b""
    except OSError:
        return "unreadable", b""
