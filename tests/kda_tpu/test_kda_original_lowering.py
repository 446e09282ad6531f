"""The Pallas kernels of ``original``: lowering and compiling for a TPU, block sizes, poison."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from kda_cases import BOUNDED, UNBOUNDED, inputs_of, oracle_of, small_case

from kda_tpu import (
    IMPLEMENTATIONS,
    Gate,
    KdaCase,
    input_shapes,
    max_abs_error,
    tolerance,
)
from kda_tpu.interface import Bound

KERNELS = [
    "kda_original_gate_cumsum",
    "kda_original_intra",
    "kda_original_recurrence",
    "kda_original_output",
]


def bind(case: KdaCase, interpret=False) -> Bound:
    dims = {n: getattr(case, n) for n in ("heads", "head_dim_k", "head_dim_v")}
    return IMPLEMENTATIONS["original"].bind(case.lengths, case.gate, **dims, interpret=interpret)


def pallas_calls(case: KdaCase) -> list:
    """The pallas_call equations of the traced program, in order."""
    bound = bind(case)
    jaxpr = jax.make_jaxpr(bound.fn)(input_shapes(case), bound.plan)
    return [e for e in jaxpr.eqns if e.primitive.name == "pallas_call"]


@pytest.mark.parametrize("gate", [BOUNDED, UNBOUNDED, Gate("activated")], ids=lambda g: g.kind)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_gate_and_dtype_lowers_for_a_tpu_from_this_machine(gate, dtype):
    case = KdaCase((70, 0, 64), heads=2, dtype=dtype, gate=gate)
    bound = bind(case)
    exported = jax.export.export(jax.jit(bound.fn), platforms=["tpu"])(
        input_shapes(case), bound.plan
    )
    assert exported.platforms == ("tpu",)
    assert exported.mlir_module().count("stablehlo.custom_call @tpu_custom_call") == 4


@pytest.fixture(scope="module")
def compiled_for_v6e() -> dict:
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed (extra: tpu): nothing to compile for v6e with")
    script = Path(__file__).with_name("aot_compile.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_small_and_a_k3_shape_compile_for_v6e_with_four_kernels(compiled_for_v6e):
    assert len(compiled_for_v6e) == 2
    for name, found in compiled_for_v6e.items():
        assert found["kernels"] == 4, name
        assert "v6" in found["device"], name
    outputs = [found["output"] for found in compiled_for_v6e.values()]
    assert outputs == ["(1, 134, 2, 128)", "(1, 512, 24, 128)"]


def vmem_blocks(equation) -> list[tuple[tuple, np.dtype]]:
    """(shape, dtype) of every block that the pipeline holds in VMEM, squeezed dims left out."""
    blocks = []
    for mapping in equation.params["grid_mapping"].block_mappings:
        aval = mapping.transformed_block_aval
        blocks.append((tuple(aval.shape), np.dtype(aval.dtype)))
    return blocks


def test_no_block_grows_with_the_prompt():
    """Full-T blocks once asked for 64 MiB of scoped VMEM at 32K tokens."""
    short, long = (pallas_calls(KdaCase((tokens,))) for tokens in (1024, 32768))
    assert [e.params["name"] for e in short] == [e.params["name"] for e in long] == KERNELS
    for at_1k, at_32k in zip(short, long, strict=True):
        blocks = vmem_blocks(at_32k)
        assert blocks == vmem_blocks(at_1k)
        # Two buffers a block, K3's geometry; v6e gives a kernel 32 MiB unless asked for more.
        doubled = 2 * sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in blocks)
        assert doubled < 2 * 2**20, at_32k.params["name"]


def test_what_the_kernels_write_is_linear_in_tokens():
    """Intermediates a token and head: G, A, u, w, kg, h, v' and o, none of them quadratic."""

    def written(tokens: int) -> int:
        outputs = [v.aval for e in pallas_calls(KdaCase((tokens,))) for v in e.outvars]
        return sum(a.size * a.dtype.itemsize for a in outputs)

    per_token = (written(32768) - written(16384)) / 16384
    K, V, BT, H, state = 128, 128, 64, 24, 128 * 128
    fp32 = 4 * (3 * K + 2 * V + BT + (state + K) / BT)
    assert per_token == H * (fp32 + 2 * V)


def test_uninitialised_memory_reaches_no_output():
    """Interpreted as a TPU would run it, with every buffer full of NaN until it is written.

    The empty sequence comes last, where it has no chunk of its own to write, and two heads make
    the grid leave a block and come back.
    """
    case = small_case((5, 0), heads=2, head_dim_k=16, head_dim_v=8)
    poisoned = pltpu.InterpretParams(uninitialized_memory="nan")
    bound = bind(case, interpret=poisoned)
    outputs = jax.jit(bound.fn)(inputs_of(case), bound.plan)
    assert bool(jnp.isfinite(outputs[0]).all())
    assert max_abs_error(outputs, oracle_of(case)) <= tolerance("float32")
