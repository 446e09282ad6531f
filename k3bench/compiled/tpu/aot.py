"""Compiles one function for a TPU in a process of its own, and brings the compiler's text home."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from k3bench.compiled.errors import CompiledError, CompiledFormatError, CompilerUnavailableError
from k3bench.compiled.tpu.targets import Target

# The versions whose dumps the parsers were written against.
PINNED: Mapping[str, str] = {"jax": "0.10.2", "libtpu": "0.0.42.1"}
# Text of the last schedule and of the slots alone: 2 to 47 MB instead of 1.3 GB.
DUMP_FLAGS = (
    "--xla_jf_dump_llo_text=true",
    "--xla_jf_dump_hlo_text=false",
    "--xla_jf_dump_llo_pass_label_regex=(packed-bundles-post-ra|pre-delay)",
)
TIMEOUT_S = 3600

_SCHEDULE = re.compile(r"\d+-(.+)-\d+-packed-bundles-post-ra\.txt")
_UTILIZATION = re.compile(r"\d+-(.+)-\d+-pre-delay_hlo-static-per-bundle-utilization\.txt")
_VMEM_REPORT = re.compile(r"\d+-TLP-\d+-vmem_report\.html")
_SIZE = r"([\d.]+)([KMG]?)"
_OOM = (
    re.compile(
        rf"Scoped allocation with size {_SIZE} and limit {_SIZE} exceeded scoped vmem limit"
    ),
    re.compile(rf"Ran out of memory in memory space \w+\. Used {_SIZE} of {_SIZE} \w+"),
)
_REFUSED = re.compile(r"Mosaic failed to compile|UNIMPLEMENTED|[Nn]ot implemented|Unsupported")


@dataclass(frozen=True)
class Outcome:
    """What the compiler said.

    Attributes:
        status: ``ok``, ``oom`` (a memory space overflowed), ``unsupported`` (the implementation or
            the lowering refuses) or ``error``.
        detail: one line of reason; None where ok.
        wanted_bytes, limit_bytes: the compiler's own figures of an overflow (to its rounding).
        compile_s: tracing, lowering and compiling.
        versions: of jax, jaxlib and libtpu.
        hlo: text of the optimised module.
        schedules, utilizations: dumps by operation name.
        vmem_report: the compiler's VMEM page.
        tables: known integer parameters by number, flattened.
        padded_tokens: as the factory said.
    """

    status: str
    versions: Mapping[str, str]
    detail: str | None = None
    wanted_bytes: int | None = None
    limit_bytes: int | None = None
    compile_s: float | None = None
    hlo: str = ""
    schedules: Mapping[str, str] = field(default_factory=dict)
    utilizations: Mapping[str, str] = field(default_factory=dict)
    vmem_report: str = ""
    tables: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    padded_tokens: int | None = None


def compiler_versions(*, allow_other: bool = False) -> dict[str, str]:
    """Versions of jax and libtpu, without importing either.

    Raises CompilerUnavailableError where one is missing, or is not the pinned one unless
    ``allow_other``.
    """
    found = {}
    for package, pinned in PINNED.items():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            raise CompilerUnavailableError(
                f"{package} is not installed: pip install '{package}=={pinned}' (the compiler "
                "runs on any x86-64 Linux host, no TPU needed)"
            ) from None
        if found[package] != pinned and not allow_other:
            raise CompilerUnavailableError(
                f"{package} is {found[package]}, but the dumps were learnt from {pinned}: install "
                "that, or pass --allow-other-compiler to try (the result will say so)"
            )
    return found


def compile_for(
    factory: str,
    arguments: Mapping[str, Any],
    target: Target,
    *,
    allow_other_versions: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Outcome:
    """Compiles what a factory builds.

    Args:
        factory: ``module:function`` returning a built.Built, imported in the child.
        arguments: JSON-able keyword arguments for it.
        target: what to compile for.
        allow_other_versions: do not insist on PINNED.
        timeout_s: after which the child is killed.

    Raises:
        CompilerUnavailableError: libtpu or jax is missing or another.
        CompiledError: the child died or ran out of time.
        CompiledFormatError: the dumps are not there or are named otherwise.
    """
    versions = compiler_versions(allow_other=allow_other_versions)
    with tempfile.TemporaryDirectory(prefix="k3bench-compile-") as directory:
        home = Path(directory)
        dump = home / "dump"
        dump.mkdir()
        request, answer, hlo = (home / name for name in ("request.json", "answer.json", "hlo.txt"))
        request.write_text(
            json.dumps(
                {"factory": factory, "arguments": dict(arguments), "topology": target.topology}
            )
        )
        command = [sys.executable, "-m", "k3bench.compiled.tpu.child"]
        completed = _run(
            [*command, str(request), str(answer), str(hlo)], _environment(dump), timeout_s
        )
        if not answer.is_file():
            last = (completed.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise CompiledError(
                f"the compiler died (exit {completed.returncode}) on {factory}: {last[:300]}"
            )
        said = json.loads(answer.read_text())
        versions |= {key: said[key] for key in ("jax", "jaxlib") if key in said}
        if said["status"] != "ok":
            return _refusal(said, versions)
        return Outcome(
            status="ok",
            versions=versions,
            compile_s=said["compile_s"],
            hlo=hlo.read_text(),
            schedules=_texts(dump, _SCHEDULE),
            utilizations=_texts(dump, _UTILIZATION),
            vmem_report=_one_text(dump, _VMEM_REPORT),
            tables={int(number): tuple(values) for number, values in said["tables"].items()},
            padded_tokens=said["padded_tokens"],
        )


def _run(
    command: list[str], environment: dict[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CompiledError(
            f"the compiler took more than {timeout_s:.0f} s and was ended"
        ) from None


def _environment(dump: Path) -> dict[str, str]:
    """The child's environment: the CPU platform, libtpu as a compiler, and where to import from."""
    # The parent's import path, so that a commit's kernels stay that commit's.
    spec = importlib.util.find_spec("kda_tpu")
    rooms = [str(Path(spec.origin).parents[1])] if spec is not None and spec.origin else []
    path = [*rooms, *(entry for entry in sys.path if entry)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        # Compiled text must not depend on what an earlier process left in a cache.
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "LIBTPU_INIT_ARGS": " ".join((f"--xla_jf_dump_to={dump}", *DUMP_FLAGS)),
    }


def _refusal(said: Mapping[str, Any], versions: Mapping[str, str]) -> Outcome:
    status, detail = said["status"], said["detail"]
    if status != "refused":
        return Outcome(status, versions, detail)
    for pattern in _OOM:
        match = pattern.search(detail)
        if match is not None:
            line = next(line for line in detail.splitlines() if pattern.search(line))
            return Outcome(
                "oom",
                versions,
                line.strip()[:500],
                wanted_bytes=_bytes(match[1], match[2]),
                limit_bytes=_bytes(match[3], match[4]),
            )
    first_line = detail.splitlines()[0][:500]
    return Outcome("unsupported" if _REFUSED.search(detail) else "error", versions, first_line)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit])


def _texts(dump: Path, pattern: re.Pattern[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in sorted(dump.iterdir()):
        match = pattern.fullmatch(path.name)
        if match is None or "schedule-analysis" in path.name:
            continue
        if match[1] in texts:
            raise CompiledFormatError(f"{match[1]}: two dumps of one pass")
        texts[match[1]] = path.read_text()
    if not texts:
        raise CompiledFormatError(f"the compiler wrote no dump named like {pattern.pattern}")
    return texts


def _one_text(dump: Path, pattern: re.Pattern[str]) -> str:
    found = [path for path in dump.iterdir() if pattern.fullmatch(path.name)]
    if len(found) != 1:
        raise CompiledFormatError(f"{len(found)} dumps are named like {pattern.pattern}, not one")
    return found[0].read_text()
