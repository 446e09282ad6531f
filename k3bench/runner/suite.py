"""What the suite's benchmarks are, asked in a process of its own: importing them imports jax.

``python -m k3bench.runner.suite OUT`` writes the benchmarks of the current directory's suite.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3bench.asv_type import IMPLEMENTATION
from k3bench.devices import environment_for_this_machine

Scalar = str | int | float | bool


class SuiteError(RuntimeError):
    """The suite could not be imported."""


@dataclass(frozen=True)
class SuiteBenchmark:
    """One benchmark under one preset.

    Attributes:
        name: as asv knows it.
        param_names: in asv's order, ``implementation`` among them.
        params: the values of each parameter; None where a value is no JSON scalar.
        shown: the same values as asv's ``--bench`` sees them (their repr).
        warmup, repeat: what the class itself fixes; None where the preset decides.
    """

    name: str
    param_names: tuple[str, ...]
    params: tuple[tuple[Scalar | None, ...], ...]
    shown: tuple[tuple[str, ...], ...]
    warmup: int | None
    repeat: int | None

    def expression(self, parameters: Mapping[str, Scalar], implementation: str) -> str | None:
        """The ``--bench`` expression that selects exactly that point; None where there is none."""
        wanted = {**parameters, IMPLEMENTATION: implementation}
        if sorted(wanted) != sorted(self.param_names):
            return None
        texts = []
        for name, values, shown in zip(self.param_names, self.params, self.shown, strict=True):
            matches = [
                text
                for value, text in zip(values, shown, strict=True)
                if value == wanted[name] and type(value) is type(wanted[name])
            ]
            if not matches:
                return None
            texts.append(matches[0])
        return f"^{re.escape(self.name + '(' + ', '.join(texts) + ')')}$"


def read_suite(project_root: Path, environ: Mapping[str, str]) -> dict[str, SuiteBenchmark]:
    """Every parametrised benchmark of a project by name, as it is under those variables.

    Raises:
        SuiteError: the suite does not import; the message ends with Python's last line.
    """
    with tempfile.TemporaryDirectory(prefix="k3bench-suite-") as directory:
        out = Path(directory) / "suite.json"
        variables = {**environ, **environment_for_this_machine(environ)}
        variables["PYTHONPATH"] = str(project_root)
        completed = subprocess.run(
            [sys.executable, "-m", "k3bench.runner.suite", str(out)],
            cwd=project_root, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if completed.returncode != 0:
            last = (completed.stderr.strip().splitlines() or ["no message"])[-1]
            raise SuiteError(f"the suite in benchmarks/ does not import: {last}")
        found = json.loads(out.read_text())
    return {
        entry["name"]: SuiteBenchmark(
            name=entry["name"],
            param_names=tuple(entry["param_names"]),
            params=tuple(tuple(values) for values in entry["params"]),
            shown=tuple(tuple(values) for values in entry["shown"]),
            warmup=entry["warmup"],
            repeat=entry["repeat"],
        )
        for entry in found
    }


def _describe(benchmark: Any) -> dict[str, Any]:
    from asv_runner.benchmarks._base import _get_first_attr

    def count(name: str) -> int | None:
        value = _get_first_attr(benchmark._attr_sources, name, None)
        return value if isinstance(value, int) else None

    params = [list(values) for values in benchmark._params]
    return {
        "name": benchmark.name,
        "param_names": list(benchmark.param_names),
        "params": [[v if isinstance(v, Scalar) else None for v in values] for values in params],
        "shown": [[repr(value) for value in values] for values in params],
        "warmup": count("warmup"),
        "repeat": count("repeat"),
    }


def discovered(root: Path) -> Iterator[Any]:
    """asv's benchmark objects of the suite in ``root``, as its own runner finds them."""
    from asv_runner.discovery import disc_benchmarks

    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    yield from disc_benchmarks(str(root / "benchmarks"))


def main(out: Path) -> None:
    """Writes the suite of the current directory as JSON."""
    out.write_text(json.dumps([_describe(benchmark) for benchmark in discovered(Path.cwd())]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # nothing of jax's or torch's threads is waited for
