"""Glue: what asv.conf.json names among its plugins: an environment type and a publisher.

Nothing is installed per commit: the machine's own interpreter (jax, torch, ROCm as the runner
provides them) runs every commit's kernels. Only the kernel rooms are taken from the commit; the
suite that measures them (benchmarks/, k3bench/, workloads/, manifests/) is the one of the working
tree, so all commits of a range are held against the same ruler.
"""

import atexit
import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from asv import commands, util
from asv.console import log
from asv.environment import Environment, EnvironmentUnavailable
from asv.runner import BENCHMARK_RUN_SCRIPT

from k3bench.asv_type import KERNEL_ROOMS
from k3bench.dashboard.publisher import KernelPages
from k3bench.devices import environment_for_this_machine
from k3bench.measure.protocol import PRESET_VARIABLE, ProtocolError, preset_name
from k3bench.run import Invocation, ManifestCaptureError, Run

# asv finds publishers among the classes that its plugins import.
__all__ = ["KernelPages", "ProvisionedEnvironment"]

# What asv starts when it is about to measure (and not to discover or check).
MEASURING_MODES = ("run", "run_server", "setup_cache")

_run: Run | None = None


class ProvisionedEnvironment(Environment):  # type: ignore[misc]
    """The machine's own interpreter with the kernels of a checked-out commit on its path."""

    tool_name = "provisioned"
    matches_python_fallback = False

    def __init__(
        self,
        conf: Any,
        python: str,
        requirements: dict[str, str],
        tagged_env_vars: dict[tuple[str, str], str],
    ) -> None:
        if requirements:
            raise EnvironmentUnavailable(
                f"asv.conf.json: matrix.req asks for {', '.join(sorted(requirements))}, but the "
                "'provisioned' environment installs nothing; use matrix.env_nobuild, or another "
                "environment_type"
            )
        try:
            preset = preset_name()
        except ProtocolError as error:
            raise util.UserError(str(error)) from None
        # The preset is part of the environment's name: each preset has result files of its own.
        tagged_env_vars = {("nobuild", PRESET_VARIABLE): preset, **tagged_env_vars}
        self._interpreter = _find_interpreter(python)
        self._commit: str | None = None
        self._conf = conf
        self._requirements = requirements  # asv's constructor reads it before it sets it
        super().__init__(conf, python, requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python: str) -> bool:
        try:
            _find_interpreter(python)
        except EnvironmentUnavailable:
            return False
        return True

    @property
    def _kernels(self) -> Path:
        """The directory that holds the current commit's kernel rooms."""
        return Path(self._env_dir).resolve() / "kernels" / str(self._commit)

    def _get_installed_commit_hash(self) -> str | None:
        return self._commit

    def _set_installed_commit_hash(self, commit_hash: str | None) -> None:
        self._commit = commit_hash

    def check_presence(self) -> bool:
        return Path(self._path).is_dir()

    def _setup(self) -> None:
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        """Lays the commit's kernel rooms out, in a directory of their own.

        One directory a commit, made whole or not at all and never changed: runs of different
        commits may go on side by side.
        """
        self._set_commit_hash(commit_hash)
        self._commit = commit_hash
        if self._kernels.is_dir():
            return
        log.info(f"Taking the kernels of {repo.get_decorated_hash(commit_hash, 8)}")
        self._kernels.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._kernels.parent, prefix=".taking-") as directory:
            rooms = Path(directory) / "rooms"
            extract_kernels(Path(repo._path), commit_hash, self._repo_subdir, rooms)
            with contextlib.suppress(OSError):  # another run was faster; its copy is the same
                rooms.rename(self._kernels)

    def find_executable(self, executable: str) -> str:
        if executable.startswith("python"):
            return self._interpreter
        return str(util.which(executable))

    def run_executable(self, executable: str, args: list[str], **kwargs: Any) -> Any:
        return util.check_output([self.find_executable(executable), *args], **kwargs)

    def run(self, args: list[str], **kwargs: Any) -> Any:
        """Starts the interpreter as asv asks, with the commit's kernels first on its path."""
        root = Path.cwd()
        env = dict(kwargs.pop("env", None) or os.environ)
        env.update(self._global_env_vars)
        env.update(self.env_vars)
        env.update(environment_for_this_machine(env))
        env.pop("PYTHONPATH", None)
        env["ASV_PYTHONPATH"] = os.pathsep.join([str(self._kernels), str(root)])
        if len(args) > 1 and args[0] == BENCHMARK_RUN_SCRIPT and args[1] in MEASURING_MODES:
            env.update(self._current_run(root, env).environment(self._kernels))
        return util.check_output([self._interpreter, *args], env=env, **kwargs)

    def _current_run(self, root: Path, env: dict[str, str]) -> Run:
        global _run
        if _run is None:
            log.flush()  # the run prints past asv's log, which may be in the middle of a line
            try:
                results = (root / self._conf.results_dir).resolve()
                _run = Run(root, results, self._interpreter, env, _invocation())
            except ManifestCaptureError as error:
                raise util.UserError(str(error)) from None
            atexit.register(_run.close)
        return _run


def extract_kernels(repository: Path, commit: str, subdirectory: str, target: Path) -> None:
    """Writes a commit's kernel rooms to ``target``; rooms that the commit lacks stay absent.

    Raises:
        UserError: git does not know the commit, or could not archive it.
    """
    tree = f"{commit}:{subdirectory}" if subdirectory else commit
    target.mkdir()
    listed = _git(repository, "ls-tree", "--name-only", tree).decode().splitlines()
    rooms = [room for room in KERNEL_ROOMS if room in listed]
    if rooms:
        archive = io.BytesIO(_git(repository, "archive", "--format=tar", tree, *rooms))
        with tarfile.open(fileobj=archive) as tar:
            tar.extractall(target, filter="data")


def _git(repository: Path, *arguments: str) -> bytes:
    completed = subprocess.run(
        ["git", "-C", repository, *arguments], capture_output=True, check=False
    )
    if completed.returncode != 0:
        message = completed.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise util.UserError(f"git {arguments[0]} failed in the repository: {message[-1]}")
    return completed.stdout


def _find_interpreter(python: str) -> str:
    """The interpreter for asv's ``pythons`` entry: a version like 3.11, a name or a path."""
    if python in ("same", f"{sys.version_info.major}.{sys.version_info.minor}"):
        return sys.executable
    name = f"python{python}" if python[:1].isdigit() else python
    try:
        return str(util.which(name))
    except OSError:
        raise EnvironmentUnavailable(
            f"no interpreter {name} on this machine; asv.conf.json's pythons must name one that "
            "has jax and torch installed"
        ) from None


def _invocation() -> Invocation:
    """What this asv command was asked for; asv gives plugins no arguments, so read them again."""
    parser, _ = commands.make_argparser()
    try:
        args = parser.parse_args()
    except SystemExit:  # not started as asv's command line (asv's own API)
        return Invocation(preset=preset_name())
    return Invocation(
        bench=tuple(getattr(args, "bench", None) or ()),
        dry_run=bool(getattr(args, "dry_run", False)),
        preset=preset_name(),
        command=tuple(sys.argv[1:]),
    )
