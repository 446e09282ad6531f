"""Checks of the software: interpreter, git, asv, the project, and the libraries that are timed."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from k3bench.doctor.report import Check

_INSTALL = "run `make bench` or `pip install -c constraints.txt -e '.[tpu,rocm,dev]'`"
_OLDEST_PYTHON = (3, 11)


def check_python() -> Check:
    """The interpreter is new enough, and the package's pins can be read."""
    version = platform.python_version()
    found = f"{platform.python_implementation()} {version}"
    if sys.version_info < _OLDEST_PYTHON:
        return Check("python", "broken", found, "use Python 3.11 or newer", needed=True)
    if not _requirements():
        found += ", k3bench not installed in it: its pins are unknown"
        return Check("python", "warning", found, _INSTALL, needed=True)
    return Check("python", "ok", found, needed=True)


def check_git() -> Check:
    """asv checks commits out with git."""
    mend = "install git from your distribution"
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return Check("git", "broken", f"git does not run ({error})", mend, needed=True)
    return Check("git", "ok", done.stdout.strip(), needed=True)


def check_asv() -> Check:
    """asv is installed in the version that the harness was built against."""
    problem = _version_problem("asv") or _version_problem("asv_runner")
    if problem:
        return Check("asv", "broken", problem, _INSTALL, needed=True)
    try:
        from asv.machine import MachineCollection

        known = Path(MachineCollection.get_machine_file_path()).is_file()
    except Exception as error:  # whatever breaks in asv's import breaks `asv run` too
        return Check("asv", "broken", f"does not import ({error})", _INSTALL, needed=True)
    found = f"asv {importlib.metadata.version('asv')}"
    if not known:
        mend = "run `asv machine --yes` once; else `asv run` stops to ask"
        found += ", this machine not described yet"
        return Check("asv", "warning", found, mend, needed=True)
    return Check("asv", "ok", found, needed=True)


def check_project(root: Path | None) -> Check:
    """asv.conf.json is found, is readable, and names a benchmark directory that is there."""
    if root is None:
        mend = "run inside a checkout of the project"
        return Check("project", "broken", "no asv.conf.json here or above", mend, needed=True)
    try:
        from asv.config import Config

        config = Config.load(str(root / "asv.conf.json"))
        benchmarks = Path(config.benchmark_dir)
    except Exception as error:
        mend = "restore it with `git checkout asv.conf.json`"
        return Check("project", "broken", f"asv.conf.json: {_line(error)}", mend, needed=True)
    if not (root / benchmarks).is_dir():
        mend = "restore it with `git checkout benchmarks`"
        return Check("project", "broken", f"no directory {benchmarks.name}", mend, needed=True)
    found = f"asv.conf.json, environment {config.environment_type}"
    return Check("project", "ok", found, needed=True)


def check_jax(answer: dict[str, Any]) -> Check:
    """jax imports, in the pinned version, and finds a device."""
    problem = answer.get("problem") or _version_problem("jax")
    if problem:
        mend = _INSTALL
        if "version" not in answer and not answer.get("absent"):
            mend = "`python -c 'import jax; jax.devices()'` shows more; JAX_PLATFORMS=cpu avoids it"
        return Check("jax", "broken", problem, mend, needed=True)
    found = f"jax {answer['version']}, {answer['count']} x {answer['device']}"
    return Check("jax", "ok", found, needed=True)


def check_torch(answer: dict[str, Any]) -> Check:
    """torch imports, in the pinned version, and finds a device."""
    problem = answer.get("problem") or _version_problem("torch")
    if problem:
        return Check("torch", "broken", problem, _INSTALL, needed=True)
    build = next((f"{name} {answer[name]}" for name in ("hip", "cuda") if answer[name]), "CPU only")
    found = f"torch {answer['version']} ({build}), {answer['count']} x {answer['device']}"
    return Check("torch", "ok", found, needed=True)


def check_kernels(room: str, answer: dict[str, Any]) -> Check:
    """A kernel room imports, and something in it runs on the default device of its library."""
    name = f"{room} kernels"
    mend = f"`python -c 'import {room}'` shows the whole error"
    if "problem" in answer:
        found = "not asked: their library did not answer"
        return Check(name, "broken", found, "mend the library first", needed=True)
    if answer["kernels_problem"]:
        return Check(name, "broken", answer["kernels_problem"], mend, needed=True)
    counts = {
        family: sum(reason is None for reason in support.values())
        for family, support in answer["families"].items()
    }
    found = ", ".join(f"{count} for {family}" for family, count in counts.items())
    found += f" on {answer['device']}"
    if not all(counts.values()):
        mend = "see the reasons under `can measure`; another device or build may run them"
        return Check(name, "broken", found, mend, needed=True)
    return Check(name, "ok", found, needed=True)


def check_triton(answer: dict[str, Any]) -> Check:
    """Triton compiles for gfx950 here."""
    if answer.get("absent"):
        mend = "pip install -c constraints.txt -e '.[rocm]' to read gfx950 code objects here"
        return Check("triton", "missing", "not installed", mend)
    problem = answer.get("problem") or _version_problem("triton")
    if problem:
        mend = f"{_INSTALL}; a broken compiler cache is mended by deleting ~/.triton"
        return Check("triton", "broken", problem, mend)
    found = f"triton {answer['version']}, gfx950 kernel of {answer['hsaco_bytes']} bytes compiled"
    return Check("triton", "ok", found)


def check_libtpu(answer: dict[str, Any]) -> Check:
    """libtpu compiles for TPU v6e here, without a TPU."""
    try:
        importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError:
        mend = "pip install -c constraints.txt -e '.[tpu]' to compile for TPU v6e here"
        return Check("libtpu", "missing", "not installed", mend)
    problem = answer.get("problem") or _version_problem("libtpu")
    if problem:
        look = "`JAX_PLATFORMS=cpu python -m k3bench.doctor.probe libtpu` shows more"
        return Check("libtpu", "broken", problem, _INSTALL if answer.get("absent") else look)
    kind = f"{answer['count']} x {answer['device_kind']}"
    return Check("libtpu", "ok", f"libtpu {answer['version']}, compiles for {kind}")


@functools.cache
def _requirements() -> dict[str, Requirement]:
    """What our own package asks for, by name: the pins stand in pyproject.toml alone."""
    try:
        lines = importlib.metadata.requires("k3bench") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    requirements = [Requirement(line) for line in lines]
    # An extra's pin ("libtpu==...; extra == 'tpu'") holds wherever the distribution is installed.
    return {requirement.name: requirement for requirement in requirements}


def _version_problem(name: str) -> str | None:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"{name} is not installed"
    wanted = _requirements().get(name)
    if wanted is None or wanted.specifier.contains(version, prereleases=True):
        return None
    return f"{name} {version} is installed, {wanted.specifier} is wanted"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
