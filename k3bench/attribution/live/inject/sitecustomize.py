"""Runs at the start of every Python process of a launched server: arms the ranges there.

Found through PYTHONPATH, which spawned workers inherit. The server's environment need not have this
package: the ranges are loaded from the file beside, and need torch alone. A sitecustomize that this
one hides runs afterwards.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent


def _load(name: str, spec: importlib.machinery.ModuleSpec | None) -> Any:
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _arm() -> None:
    name = "k3bench_ranges"
    path = _HERE.parent / "ranges.py"
    ranges = _load(name, importlib.util.spec_from_file_location(name, path))
    if not ranges.ranges_enabled():
        return
    given = os.environ.get(ranges.RULES_VARIABLE)
    rules = ranges.parse_rules(given) if given else ranges.K3_RULES

    def report(line: str) -> None:
        print(f"k3bench: {line} (process {os.getpid()})", file=sys.stderr, flush=True)

    ranges.wrap_classes_when_defined(rules, report)


def _run_hidden_sitecustomize() -> None:
    elsewhere = [entry for entry in sys.path if entry and Path(entry).resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    _load("sitecustomize", spec)


_arm()
_run_hidden_sitecustomize()
