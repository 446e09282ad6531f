"""Compiles ``original`` for TPU v6e without a TPU; run in a process of its own by the tests.

Prints one JSON object: case name to the number of Mosaic kernels in the compiled program and the
devices it was compiled for. libtpu reads its environment when it loads, hence the process.
"""

import json
import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TPU_SKIP_MDS_QUERY"] = "1"
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"

import jax
import numpy as np
from jax.experimental import topologies

from kda_tpu import IMPLEMENTATIONS, Gate, KdaCase
from kda_tpu.inputs import input_shapes

CASES = {
    "small fp32, unbounded gate, an empty sequence, K != V": KdaCase(
        (70, 0, 64), heads=2, head_dim_k=64, head_dim_v=128, dtype="float32", gate=Gate("unbounded")
    ),
    "K3 per chip, bf16, bounded gate": KdaCase((300, 212)),
}


def main() -> None:
    topology = topologies.get_topology_desc(platform="tpu", topology_name="v6e:2x2")
    mesh = jax.sharding.Mesh(np.array(topology.devices[:1]), ("x",))
    on_tpu = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def placed(tree):
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on_tpu), tree)

    found = {}
    for name, case in CASES.items():
        dims = {n: getattr(case, n) for n in ("heads", "head_dim_k", "head_dim_v")}
        bound = IMPLEMENTATIONS["original"].bind(case.lengths, case.gate, **dims)
        # Pallas asks the mesh which TPU it lowers for.
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            lowered = jax.jit(bound.fn).lower(placed(input_shapes(case)), placed(bound.plan))
        compiled = lowered.compile()
        found[name] = {
            "kernels": compiled.as_text().count('custom_call_target="tpu_custom_call"'),
            "device": topology.devices[0].device_kind,
            "output": str(compiled.out_info[0].shape),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
