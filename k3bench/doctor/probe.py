"""The questions that need a heavy library or may hang, each asked in a process of its own.

`python -m k3bench.doctor.probe NAME` prints one JSON object on the last line of stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Answer = dict[str, Any]

# One short sequence: what decides about support is the platform and K3's geometry.
_LENGTHS = (64,)


def jax_devices() -> Answer:
    """jax's version and default device, and which KDA kernels that device can run."""
    import jax

    from k3bench.measure.backends import jax_backend

    backend = jax_backend()
    return {
        "version": jax.__version__,
        "device": backend.device,
        "platform": backend.platform,
        "count": len(jax.devices()),
        **_families(_kda_families, backend.platform),
    }


def torch_devices() -> Answer:
    """torch's version, build and first device, and which MLA kernels that device can run."""
    import torch

    from k3bench.measure.backends import torch_backend

    backend = torch_backend()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "device": backend.device,
        "platform": backend.platform,
        "count": torch.cuda.device_count() or 1,
        **_families(_mla_families, backend.platform),
    }


def _families(read: Callable[[str], Answer], platform: str) -> Answer:
    # A kernel room that does not import must not hide what the library itself said.
    try:
        return {"families": read(platform), "kernels_problem": None}
    except Exception as error:
        return {"families": {}, "kernels_problem": _one_line(error)}


def _kda_families(platform: str) -> Answer:
    import kda_tpu

    case = kda_tpu.KdaCase(lengths=_LENGTHS)
    return {"kda_prefill": _support(kda_tpu.IMPLEMENTATIONS, platform, case)}


def _mla_families(platform: str) -> Answer:
    import mla_rocm

    decode, prefill = mla_rocm.MlaDecodeCase(_LENGTHS), mla_rocm.MlaPrefillCase(_LENGTHS)
    return {
        "mla_decode": _support(mla_rocm.DECODE_IMPLEMENTATIONS, platform, decode),
        "mla_prefill": _support(mla_rocm.PREFILL_IMPLEMENTATIONS, platform, prefill),
    }


def _support(implementations: Mapping[str, Any], platform: str, case: Any) -> Answer:
    """Name to None where it runs, to the reason where it does not."""
    found = {name: item.can_run(platform, case) for name, item in implementations.items()}
    return {name: None if support.ok else support.reason for name, support in found.items()}


def triton_gfx950() -> Answer:
    """Triton's version, and a kernel really compiled for gfx950, which needs no GPU."""
    import os
    import tempfile

    import triton  # type: ignore[import-untyped]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    from k3bench.doctor.probe_kernel import double

    source = ASTSource(
        fn=double,
        signature={"x": "*fp32", "y": "*fp32", "n": "i32", "block": "constexpr"},
        constexprs={"block": 256},
    )
    with tempfile.TemporaryDirectory() as cache:
        # An empty cache: a kernel compiled last month says nothing about today's compiler.
        os.environ["TRITON_CACHE_DIR"] = cache
        compiled = triton.compile(source, target=GPUTarget("hip", "gfx950", 64))
        assembly = compiled.asm["amdgcn"]
    if "gfx950" not in assembly:
        raise RuntimeError("the compiled kernel does not name gfx950 as its target")
    return {"version": triton.__version__, "hsaco_bytes": len(compiled.asm["hsaco"])}


def libtpu_v6e() -> Answer:
    """Whether libtpu, as a compiler, describes a v6e topology on a host without TPU."""
    import importlib.metadata

    from jax.experimental import topologies

    topology = topologies.get_topology_desc(platform="tpu", topology_name="v6e:2x2")
    return {
        "version": importlib.metadata.version("libtpu"),
        "device_kind": topology.devices[0].device_kind,
        "count": len(topology.devices),
    }


def ledger() -> Answer:
    """Kind of database and schema of the ledger; opening it here never makes or upgrades one."""
    from k3bench.ledger import LedgerError, open_ledger
    from k3bench.ledger.upgrade import HEAD, recorded_revision

    try:
        opened = open_ledger(create=False)
        with opened.engine.connect() as connection:
            revision = recorded_revision(connection)
    except LedgerError as error:
        return {"problem": str(error), "reason": error.reason}
    return {"database": opened.engine.dialect.name, "schema": revision, "head": HEAD}


PROBES: Mapping[str, Callable[[], Answer]] = {
    "jax": jax_devices,
    "torch": torch_devices,
    "triton": triton_gfx950,
    "libtpu": libtpu_v6e,
    "ledger": ledger,
}


def _one_line(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else text[:297] + "..."


def main() -> None:
    """Answers one question; an exception is an answer too."""
    try:
        answer = PROBES[sys.argv[1]]()
    except Exception as error:
        answer = {"problem": _one_line(error), "absent": _absent_module(error)}
    # A line of its own: libraries print to stdout as well.
    print("\n" + json.dumps(answer), flush=True)


def _absent_module(error: BaseException) -> str | None:
    return error.name if isinstance(error, ModuleNotFoundError) else None


if __name__ == "__main__":
    main()
