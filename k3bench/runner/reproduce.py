"""Reproduces a result of the ledger: checks what it needs here, and spells the command for it.

Checked, in this order: the kind (a published figure is somebody else's), the commit, the workload
by its SHA-256, the benchmark and its counts, and the environment manifest field by field.
"""

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from k3bench.devices import environment_for_this_machine
from k3bench.ledger import ResultRow, select_results
from k3bench.ledger.models import Result
from k3bench.measure.clocks import CLOCKS_VARIABLE
from k3bench.measure.protocol import PRESET_VARIABLE, PRESETS, resolve_protocol
from k3bench.run import ManifestCaptureError, capture_manifest
from k3bench.runner.asv_run import RunRequest
from k3bench.runner.suite import SuiteBenchmark, SuiteError, read_suite

# A variable with one of these in its recorded value was cleaned: what it was cannot be set again.
_CLEANED = ("<redacted>", "<project>", "<path>", "~/")
# What decides about a compiled figure: the compiler's distributions, and nothing of the machine.
_COMPILERS = ("jax", "jaxlib", "libtpu", "triton")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. ``ok`` is None where it is only worth knowing."""

    name: str
    ok: bool | None
    detail: str


@dataclass(frozen=True)
class Reproduction:
    """Whether a result can be reproduced here, and how.

    Attributes:
        result_id: the record's full id.
        checks: everything that was looked at.
        request: the run that measures exactly that point; None where there is none.
        command: the same as a line for a shell.
    """

    result_id: str
    checks: tuple[Check, ...]
    request: RunRequest | None
    command: str | None

    @property
    def ok(self) -> bool:
        """Whether nothing stands in the way."""
        return self.request is not None and all(check.ok is not False for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "result_id": self.result_id,
            "reproducible": self.ok,
            "command": self.command,
            "checks": [asdict(check) for check in self.checks],
        }


def find_result(session: Session, prefix: str) -> ResultRow:
    """The result whose id starts with ``prefix``. LookupError if none or several do."""
    known: list[Result] = []
    if prefix and set(prefix) <= set("0123456789abcdef"):
        query = select(Result).where(Result.id >= prefix, Result.id < prefix + "g").limit(2)
        known = list(session.scalars(query))
    if not known:
        raise LookupError(f"no result {prefix!r} in the ledger: `k3bench results --json` shows ids")
    if len(known) > 1:
        raise LookupError(f"several results start with {prefix!r}: give more digits")
    [row] = [
        row
        for row in select_results(
            session,
            kind=known[0].kind,
            implementation=known[0].implementation,
            device=known[0].device,
            run_id=known[0].run_id,
        )
        if row.id == known[0].id
    ]
    return row


def siblings_of(session: Session, row: ResultRow) -> tuple[str, ...]:
    """The other implementations that a measured row's run measured in turns with it."""
    if row.run_id is None or row.kind != "measured":
        return ()
    others = select_results(session, kind=row.kind, run_id=row.run_id, commit=row.commit)
    return tuple(
        dict.fromkeys(
            other.implementation
            for other in others
            if (other.benchmark, other.parameters) == (row.benchmark, row.parameters)
            and other.implementation != row.implementation
        )
    )


def measured_again(session: Session, row: ResultRow, run_id: str) -> ResultRow | None:
    """What a run measured of a row's point, under the row's clock."""
    found = select_results(session, kind=row.kind, run_id=run_id, implementation=row.implementation)
    for other in found:
        if (other.benchmark, other.parameters, other.clock) == (
            row.benchmark,
            row.parameters,
            row.clock,
        ):
            return other
    return None


def plan_reproduction(
    row: ResultRow,
    manifest: Mapping[str, Any] | None,
    project_root: Path,
    *,
    siblings: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
) -> Reproduction:
    """How to measure a row's point again, and every difference that stands in the way.

    Args:
        row: the result.
        manifest: where it was made; None for published figures.
        project_root: the checkout whose suite measures.
        siblings: further implementations to measure in turns with it.
        environ: of the command; the present one by default.
    """
    environ = os.environ if environ is None else environ
    if row.kind == "published":
        reason = f"published, from {row.source}: somebody else's figure is not made here"
        return Reproduction(row.id, (Check("kind", False, reason),), None, None)
    checks = [
        Check("kind", True, f"{row.kind} on {row.device}"),
        _commit(row, project_root),
        _workload(row),
    ]
    variables, more = _recorded_variables(manifest or {}, environ)
    checks += more
    if "further_clock" in (row.figures or {}):
        variables[CLOCKS_VARIABLE] = "all"
    preset = row.preset if row.preset in PRESETS else None
    settings = {} if preset is None else {PRESET_VARIABLE: preset}
    there = {**environ, **variables, **settings}
    request = None
    try:
        benchmark = read_suite(project_root, there).get(row.benchmark)
    except SuiteError as error:
        checks.append(Check("benchmark", False, str(error)))
    else:
        point, extra, expressions = _point(row, benchmark, siblings)
        checks.append(point)
        if expressions:
            request = RunRequest(
                preset=preset,
                bench=expressions,
                commits=f"{row.commit}^!",
                quick=row.preset == "quick",
                fresh=True,
                extra=extra,
                variables=variables,
            )
    checks += _environment(row, manifest, project_root, there)
    command = None if request is None else request.shown(request.commits)
    return Reproduction(row.id, tuple(checks), request, command)


def _commit(row: ResultRow, project_root: Path) -> Check:
    command = ["git", "-C", str(project_root), "cat-file", "-e", f"{row.commit}^{{commit}}"]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return Check("commit", True, str(row.commit))
    return Check("commit", False, f"{row.commit} is not in this clone: git fetch it")


def _workload(row: ResultRow) -> Check:
    """The workload of that name has the recorded content; a call of a replay is hashed as such."""
    import workloads

    name, separator, number = row.workload_id.partition("/call")
    try:
        found = workloads.get(name).sha256
    except (KeyError, ValueError) as error:
        reason = str(error.args[0] if error.args else error)
        return Check("workload", False, f"{row.workload_id}: {reason}")
    if separator:
        found = hashlib.sha256(f"{found}/{number}".encode()).hexdigest()
    if found != row.workload_sha256:
        detail = (
            f"{row.workload_id} is {found[:12]} here, {row.workload_sha256[:12]} in the record: "
            "its lengths are others; `k3bench workloads verify`"
        )
        return Check("workload", False, detail)
    return Check("workload", True, f"{row.workload_id} sha256:{found}")


def _recorded_variables(
    manifest: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, str], list[Check]]:
    """The recorded variables that the command sets, and those that cannot be set again."""
    recorded: Mapping[str, str] = manifest.get("environment", {}).get("variables", {})
    derived = environment_for_this_machine(environ)
    wanted: dict[str, str] = {}
    unknown = []
    for name, value in recorded.items():
        if environ.get(name, derived.get(name)) == value:
            continue
        if any(mark in value for mark in _CLEANED):
            unknown.append(name)
        else:
            wanted[name] = value
    if not unknown:
        return wanted, []
    detail = f"{', '.join(unknown)}: recorded without secrets and places; set them by hand"
    return wanted, [Check("variables", None, detail)]


def _point(
    row: ResultRow, benchmark: SuiteBenchmark | None, siblings: tuple[str, ...]
) -> tuple[Check, tuple[str, ...], tuple[str, ...]]:
    """Whether the suite has the point with its counts; further asv arguments; --bench."""
    if benchmark is None:
        return Check("benchmark", False, f"the suite has no {row.benchmark} here"), (), ()
    parameters = dict(row.parameters)
    if "further_clock" in (row.figures or {}):
        # Such a clock's own parameters come on top of the benchmark's.
        parameters = {k: v for k, v in parameters.items() if k in benchmark.param_names}
    expressions = []
    for name in (row.implementation, *siblings):
        expression = benchmark.expression(parameters, name)
        if expression is None:
            values = ", ".join(f"{key}={value}" for key, value in row.parameters.items())
            detail = f"{row.benchmark} has no point ({values}) of {name} under this preset"
            return Check("benchmark", False, detail), (), ()
        expressions.append(expression)
    if row.preset is None or row.preset not in PRESETS:
        return Check("benchmark", True, row.benchmark), (), tuple(expressions)
    usual = resolve_protocol(row.preset, warmup=benchmark.warmup, repeat=benchmark.repeat)
    if row.warmup != usual.warmup:
        detail = f"{row.warmup} warm-up calls in the record, {usual.warmup} in the suite here"
        return Check("benchmark", False, detail), (), tuple(expressions)
    extra = () if row.n in (0, usual.repeat) else ("-a", f"repeat={row.n}")
    detail = f"{row.benchmark}, {usual.warmup} warm-up calls, {row.n or usual.repeat} samples"
    return Check("benchmark", True, detail), extra, tuple(expressions)


def _environment(
    row: ResultRow,
    manifest: Mapping[str, Any] | None,
    project_root: Path,
    environ: Mapping[str, str],
) -> list[Check]:
    """One failed check a field that makes timings incomparable; one line on the harmless ones."""
    from manifests import comparable

    if manifest is None:
        return [Check("environment", False, "the record names no manifest")]
    variables = {**environ, **environment_for_this_machine(environ)}
    try:
        here = capture_manifest(sys.executable, project_root, variables)
    except ManifestCaptureError as error:
        return [Check("environment", False, str(error))]
    _, differences = comparable(manifest, here)
    decisive = [
        difference
        for difference in differences
        if not difference.comparable and _matters(row.kind, difference.path)
    ]
    checks = [
        Check(difference.path, False, f"{_shown(difference.a)} there, {_shown(difference.b)} here")
        for difference in decisive
    ]
    if not decisive:
        what = "the compilers are" if row.kind != "measured" else "this machine is"
        checks.append(Check("environment", True, f"{what} as recorded, as far as timings go"))
    source = [d.path for d in differences if d.path.startswith("source.")]
    if source:
        detail = f"the checkout that measured differs in {', '.join(source)}"
        checks.append(Check("source", None, detail))
    return checks


def _matters(kind: str, path: str) -> bool:
    """A compiler's figure follows from the compiler, a measurement from everything."""
    if kind == "measured":
        return True
    return any(f".{name}" in path for name in _COMPILERS) and ".libraries" in path


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else shlex.quote(str(value))
    return text if len(text) <= 80 else f"{text[:77]}..."
