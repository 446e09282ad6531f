"""Remembers whether a kernel is right, by its source: no modelled time before a correctness check.

A kernel that is compiled for an accelerator cannot run here, but its interpreter can: the same
kernel code, on small inputs, held against the fp32 reference. That is done once for each version of
the kernels' source.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from k3bench.canonical import canonical_json
from k3bench.compiled.cache import cache_directory, room_sha256
from k3bench.journal import write_durably
from k3bench.measure.result import Correctness


def kept_verdict(
    implementation: str,
    check: Callable[[], Correctness],
    *,
    directory: Path | None = None,
    room: str = "kda_tpu",
) -> Correctness:
    """The verdict on this version of a kernel, checked now unless it was before.

    Args:
        implementation: its name in the room, with the operation where names repeat.
        check: runs the kernel in its interpreter and judges it; whatever it raises is a ``failed``
            verdict, which is not kept.
        directory: of the cache; cache_directory() unless given.
        room: the package that holds the kernel.
    """
    identity = canonical_json([room_sha256(room), implementation])
    key = sha256(identity.encode()).hexdigest()
    path = (directory or cache_directory()) / "verdicts" / f"{key}.json"
    try:
        return Correctness(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        pass
    try:
        verdict = check()
    except Exception as error:  # a kernel may fail in any way; that is a verdict too
        first_line = (str(error).strip().splitlines() or [""])[0]
        return Correctness("failed", detail=f"{type(error).__name__}: {first_line}"[:500])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, json.dumps(asdict(verdict)))
    return verdict
