"""Remembers GPU results by content: kernel source, point, target, Triton, parsers, constants."""

import importlib.util
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from k3bench.canonical import canonical_json
from k3bench.compiled.amdgpu.launches import PROVIDER
from k3bench.compiled.amdgpu.model import CONSTANTS_FILE
from k3bench.compiled.amdgpu.result import PARSER_VERSION, GpuResult
from k3bench.compiled.amdgpu.targets import GpuTarget
from k3bench.compiled.cache import JsonCache, room_sha256

# Where sglang keeps attention kernels and the host code that launches them, newest release first.
_PROVIDER_FOLDERS = ("kernels/ops/attention", "srt/layers/attention")


def cache_key(factory: str, arguments: Mapping[str, Any], target: GpuTarget, triton: str) -> str:
    """What a result depends on, as 64 hex digits.

    The kernels' room and the factory's own module, a provider's kernels where they are asked for,
    this package with its constants, what was asked for, the target with all its rates, and the
    compiler's version.
    """
    rates = {
        entry.name: getattr(target, entry.name)
        for entry in fields(target)
        if entry.name != "sources"
    }
    identity = {
        "kernels": [
            room_sha256("mla_rocm"),
            _module_sha256(factory),
            provider_sha256(str(arguments.get("implementation", ""))),
        ],
        "analysis": [room_sha256("k3bench.compiled"), _constants(), PARSER_VERSION],
        "factory": factory,
        "arguments": dict(arguments),
        "target": rates,
        "triton": triton,
    }
    return sha256(canonical_json(identity).encode()).hexdigest()


def gpu_cache(directory: Path) -> JsonCache[GpuResult]:
    """The cache of GPU results in a directory; it may hold other results too."""
    return JsonCache(directory, GpuResult.from_json)


def provider_sha256(implementation: str) -> str | None:
    """Of the sources that a provider's kernels and host code come from; None where there are none.

    A point of a provider that is not installed is another point once it is.
    """
    if not implementation.startswith(PROVIDER):
        return None
    spec = importlib.util.find_spec(PROVIDER)
    if spec is None or spec.origin is None:
        return None
    digest = sha256()
    for folder in _PROVIDER_FOLDERS:
        for path in sorted(Path(spec.origin).parent.joinpath(folder).rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _module_sha256(factory: str) -> str:
    spec = importlib.util.find_spec(factory.partition(":")[0])
    if spec is None or spec.origin is None:
        return ""
    return sha256(Path(spec.origin).read_bytes()).hexdigest()


def _constants() -> str:
    return sha256(Path(__file__).with_name(CONSTANTS_FILE).read_bytes()).hexdigest()
