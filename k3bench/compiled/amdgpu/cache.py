"""Remembers GPU results by content: kernel source, point, target, Triton, parsers, constants."""

from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from k3bench.compiled.amdgpu.model import CONSTANTS_FILE
from k3bench.compiled.amdgpu.result import PARSER_VERSION, GpuResult
from k3bench.compiled.amdgpu.targets import GpuTarget
from k3bench.compiled.cache import JsonCache, room_sha256
from k3bench.measure.result import canonical_json


def cache_key(factory: str, arguments: Mapping[str, Any], target: GpuTarget, triton: str) -> str:
    """What a result depends on, as 64 hex digits.

    The kernels' room and the factory's own module, this package with its constants, what was asked
    for, the target with all its rates, and the compiler's version.
    """
    rates = {
        entry.name: getattr(target, entry.name)
        for entry in fields(target)
        if entry.name != "sources"
    }
    identity = {
        "kernels": [room_sha256("mla_rocm"), _module_sha256(factory)],
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


def _module_sha256(factory: str) -> str:
    import importlib.util

    spec = importlib.util.find_spec(factory.partition(":")[0])
    if spec is None or spec.origin is None:
        return ""
    return sha256(Path(spec.origin).read_bytes()).hexdigest()


def _constants() -> str:
    return sha256(Path(__file__).with_name(CONSTANTS_FILE).read_bytes()).hexdigest()
