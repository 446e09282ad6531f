"""Remembers TPU results by content: kernel source, point, target, flags, versions, parsers."""

import functools
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from k3bench.canonical import canonical_json
from k3bench.compiled.cache import JsonCache, room_sha256
from k3bench.compiled.tpu.aot import DUMP_FLAGS
from k3bench.compiled.tpu.point import KdaPoint
from k3bench.compiled.tpu.result import PARSER_VERSION, CompiledResult
from k3bench.compiled.tpu.targets import Target


def cache_key(point: KdaPoint, target: Target, versions: Mapping[str, str]) -> str:
    """What the result of a point depends on, as 64 hex digits."""
    return result_key({"kernels": room_sha256("kda_tpu")}, point.to_json(), target, versions)


def result_key(
    source: Mapping[str, Any],
    point: Mapping[str, Any],
    target: Target,
    versions: Mapping[str, str],
) -> str:
    """The same for points of any family, as 64 hex digits.

    ``source``: what the program is made from. With it count this package's own source, the point,
    the target's name and rates, the dump flags, the versions of the compiler, and the parsers'
    version.
    """
    identity = {
        **source,
        # Parsers, cost model and its constants: a changed one must never serve old figures.
        "analysis": [room_sha256("k3bench.compiled"), _constants(), PARSER_VERSION],
        "point": dict(point),
        "target": [
            target.name,
            target.topology,
            target.clock_hz,
            target.hbm_bytes_per_s,
            dict(target.slots),
        ],
        "flags": list(DUMP_FLAGS),
        "versions": dict(versions),
    }
    return sha256(canonical_json(identity).encode()).hexdigest()


@functools.cache
def _constants() -> str:
    from k3bench.compiled.tpu.cost_model import CONSTANTS_FILE

    return sha256(Path(__file__).with_name(CONSTANTS_FILE).read_bytes()).hexdigest()


class ResultCache(JsonCache[CompiledResult]):
    """The cache of TPU results."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, CompiledResult.from_json)
