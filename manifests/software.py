"""The interpreter and every installed distribution, read from metadata and never by importing.

Importing jax or torch would cost seconds and could touch a device.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import platform
import re
import sys
from pathlib import Path
from typing import Any

from manifests.machine import Machine

# The libraries on the timed path: a difference in one of these makes timings incomparable.
_TIMED = (
    "jax",
    "jaxlib",
    "libtpu",
    "torch",
    "triton",
    "numpy",
    "ml_dtypes",
    "jax-rocm7-plugin",
    "jax-rocm7-pjrt",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "pytorch-triton-rocm",
    "aiter",
    "flashinfer-python",
)


def read_python() -> dict[str, Any]:
    """The running interpreter: what it is, how it was built, and the flags it runs with."""
    flags = {name: int(getattr(sys.flags, name)) for name in ("debug", "optimize", "dev_mode")}
    gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    return {
        "implementation": platform.python_implementation(),
        "version": platform.python_version(),
        "compiler": platform.python_compiler(),
        "flags": flags,
        "gil": bool(gil_enabled()),
    }


def read_distributions() -> dict[str, str | None]:
    """Every installed distribution, by normalised name; the first on sys.path is what imports find.

    A distribution whose metadata gives no version has None; one without even a name is a remnant
    of a broken uninstall and cannot be imported by name.
    """
    found: dict[str, str | None] = {}
    for distribution in importlib.metadata.distributions():
        # The annotation promises a name, but a damaged METADATA file has none.
        name: str | None = distribution.metadata["Name"]
        if name:
            found.setdefault(_normalised(name), distribution.metadata["Version"])
    return dict(sorted(found.items()))


def read_libraries(machine: Machine, distributions: dict[str, str | None]) -> dict[str, Any]:
    """Versions of what runs inside a timed call; None where a library is not installed.

    jaxlib carries XLA and has no version of its own for it: `jaxlib_git` names the commit of both.
    """
    torch = _constants("torch", "version.py")
    jaxlib = _constants("jaxlib", "version.py")
    return {
        "distributions": {
            name: distributions[_normalised(name)]
            for name in _TIMED
            if _normalised(name) in distributions
        },
        "jaxlib_git": _text(jaxlib.get("_git_hash")),
        "torch_git": _text(torch.get("git_version")),
        "torch_debug": torch.get("debug") if isinstance(torch.get("debug"), bool) else None,
        "torch_cuda": _text(torch.get("cuda")),
        "torch_hip": _text(torch.get("hip")),
        "rocm": _rocm(machine),
    }


def _normalised(name: str) -> str:
    """PEP 503: runs of -, _ and . are one dash, and case does not count."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _constants(package: str, file: str) -> dict[str, Any]:
    """Module-level names bound to literals in one file of a package, read without running it."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        try:
            tree = ast.parse((Path(folder) / file).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        found: dict[str, Any] = {}
        for node in tree.body:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            if targets and isinstance(node, ast.Assign | ast.AnnAssign):
                value = node.value
                if isinstance(value, ast.Constant):
                    found.update({t.id: value.value for t in targets if isinstance(t, ast.Name)})
        return found
    return {}


def _rocm(machine: Machine) -> str | None:
    """The ROCm release under ROCM_PATH, or under /opt/rocm where that is not set."""
    folder = machine.environ.get("ROCM_PATH") or "/opt/rocm"
    return machine.text(f"{folder}/.info/version")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
