"""The process that compiles: builds a function, compiles it for a TPU, writes what came out.

    python -m k3bench.compiled.tpu.child REQUEST ANSWER HLO

A process of its own because the compiler reads its flags once, when libtpu is loaded, and because
a compiler that crashes must not take the caller with it.
"""

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from k3bench.compiled.built import Built, UnsupportedError


def compile_request(request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The answer and the optimised HLO text (empty where nothing was compiled).

    request: ``factory`` ("module:function" that returns a Built), ``arguments`` for it, and
    ``topology``.
    """
    import jax
    import jaxlib
    import numpy as np
    from jax.experimental import topologies

    versions = {"jax": jax.__version__, "jaxlib": jaxlib.version.__version__}
    module, _, function = request["factory"].partition(":")
    try:
        built: Built = getattr(importlib.import_module(module), function)(**request["arguments"])
    except UnsupportedError as error:
        return {"status": "unsupported", "detail": str(error), **versions}, ""
    topology = topologies.get_topology_desc(platform="tpu", topology_name=request["topology"])
    mesh = jax.sharding.Mesh(np.array(topology.devices[:1]), ("device",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    arguments = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), built.arguments
    )
    started = time.perf_counter()
    # Pallas asks the mesh in use which TPU it lowers for. Unused arguments are kept, so that the
    # program's parameters are the flattened arguments, one for one.
    try:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            lowered = jax.jit(built.function, keep_unused=True).lower(*arguments)
    except (NotImplementedError, ValueError) as error:
        return {"status": "unsupported", "detail": _first_line(error), **versions}, ""
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {"status": "refused", "detail": str(error)[:20_000], **versions}, ""
    answer = {
        "status": "ok",
        "detail": None,
        "compile_s": time.perf_counter() - started,
        "tables": {str(number): values for number, values in built.tables.items()},
        "padded_tokens": built.padded_tokens,
        **versions,
    }
    return answer, compiled.as_text()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:500]


def main(request: str, answer: str, hlo: str) -> None:
    """Reads the request, writes the answer (JSON) and the HLO text."""
    try:
        result, text = compile_request(json.loads(Path(request).read_text()))
    except Exception as error:  # the parent reports it; a traceback would only hide the line
        result, text = {"status": "error", "detail": _first_line(error)}, ""
    Path(hlo).write_text(text)
    Path(answer).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
