"""Judges a Triton kernel in Triton's interpreter, on small inputs; never timed.

    python -m benchmarks._mla_interpreted OPERATION IMPLEMENTATION

A process of its own, because Triton decides how to run its kernels when it is first imported.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import mla_rocm
from benchmarks._mla import check_kda_decode
from k3bench.compiled.amdgpu.compiler import import_path
from k3bench.measure import Correctness, judge

TIMEOUT_S = 300

# Several pages and splits, a sequence shorter than a tile, and an empty one. float32: products of
# bfloat16 operands are wrong in the interpreter itself.
DECODE = mla_rocm.MlaDecodeCase(
    context_lengths=(100, 0, 5), page_size=16, num_kv_splits=2, dtype="float32"
)
# A prefix of more than a page, a sequence without new tokens, one without a prefix.
PREFILL = mla_rocm.MlaPrefillCase(
    new_lengths=(33, 0, 20), prefix_lengths=(70, 5, 0), heads=1, page_size=16, dtype="float32"
)
# For kernels that refuse an empty context (sglang's divides by zero there); the verdict names it.
DECODE_WITHOUT_EMPTY = replace(DECODE, context_lengths=(100, 37, 5))
KDA_DECODE = {"batch": 2, "heads": 2, "padded": 1, "dtype": "float32"}


def interpreted_verdict(operation: str, implementation: str) -> Correctness:
    """The verdict of a fresh interpreting process.

    Raises RuntimeError with its last line where it gave none.
    """
    # This suite, and the kernels that this process has: a commit's stay that commit's.
    path = os.pathsep.join([import_path("mla_rocm"), str(Path(__file__).parent.parent)])
    finished = subprocess.run(
        [sys.executable, "-P", "-m", "benchmarks._mla_interpreted", operation, implementation],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if finished.returncode != 0:
        said = finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"]
        raise RuntimeError(said[-1])
    return Correctness(**json.loads(finished.stdout))


def judge_here(operation: str, implementation: str) -> Correctness:
    """The verdict, in a process that interprets."""
    if operation == "mla-decode":
        decode = mla_rocm.DECODE_IMPLEMENTATIONS[implementation]
        # No Triton kernel is offered on a CPU; one that refuses the case itself says so instead.
        refused = decode.can_run("cpu", DECODE) != decode.can_run("cpu", DECODE_WITHOUT_EMPTY)
        case = DECODE_WITHOUT_EMPTY if refused else DECODE
        inputs = mla_rocm.make_decode_inputs(case)
        outputs = decode.bind(inputs).fn()
        return judge(
            mla_rocm.max_abs_error(outputs, mla_rocm.reference_decode(inputs)),
            mla_rocm.tolerance_for(case.dtype).max_abs_error,
            reference="the fp32 reference",
            outputs=f"o and lse, interpreted on {case.id}",
        )
    if operation == "mla-prefill":
        inputs = mla_rocm.make_prefill_inputs(PREFILL)
        outputs = mla_rocm.PREFILL_IMPLEMENTATIONS[implementation].bind(inputs).fn()
        return judge(
            mla_rocm.max_abs_error(outputs, mla_rocm.reference_prefill(inputs)),
            mla_rocm.tolerance_for(PREFILL.dtype).max_abs_error,
            reference="the fp32 reference",
            outputs=f"o and lse, interpreted on {PREFILL.id}",
        )
    if operation == "kda-decode":
        case = mla_rocm.KdaDecodeCase(**KDA_DECODE)
        inputs = mla_rocm.make_kda_decode_inputs(case)
        outputs = mla_rocm.KDA_DECODE_IMPLEMENTATIONS[implementation].bind(inputs).fn()
        verdict = check_kda_decode(outputs, mla_rocm.reference_kda_decode(inputs), inputs, case)
        return replace(verdict, detail=f"{verdict.detail}; interpreted on {case.id}")
    raise ValueError(f"operation {operation!r}: give mla-decode, mla-prefill or kda-decode")


if __name__ == "__main__":
    print(json.dumps(asdict(judge_here(*sys.argv[1:]))))
