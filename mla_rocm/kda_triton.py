"""The KDA decode step by our Triton kernel: one launch bound to one set of inputs."""

import torch

from mla_rocm.base import Bound, Implementation, Support
from mla_rocm.kda_case import LOWER_BOUND, KdaDecodeCase, KdaDecodeInputs
from mla_rocm.kda_torch import KdaDecodeOutputs
from mla_rocm.launches import kda_launch
from mla_rocm.triton_runtime import launcher, triton_support


def bind_kda_decode(inputs: KdaDecodeInputs) -> Bound:
    """States are read from the inputs' pool and written to one made here.

    A serving engine updates its pool in place, with the same kernel and the same bytes; here the
    inputs stay as they are, so that every run computes the same.
    """
    packed, indices = inputs.packed, inputs.state_indices
    dtype = str(packed.dtype).removeprefix("torch.")
    tokens = int((indices >= 0).sum())
    launch = kda_launch(
        inputs.batch,
        tokens,
        inputs.heads,
        inputs.head_dim_k,
        inputs.head_dim_v,
        bounded=inputs.gate == "bounded",
        dtype=dtype,
    )
    step = launcher(launch)
    new_state = torch.empty_like(inputs.state)

    def run() -> KdaDecodeOutputs:
        o = packed.new_empty((inputs.batch, inputs.heads, inputs.head_dim_v))
        step(
            packed=packed,
            a_log=inputs.A_log,
            dt_bias=inputs.dt_bias,
            state_indices=indices,
            state_in=inputs.state,
            state_out=new_state,
            o=o,
            scale=inputs.scale,
            lower_bound=LOWER_BOUND,
            row_stride=packed.stride(0),
        )
        return KdaDecodeOutputs(o, new_state)

    return Bound(run, executed_tokens=tokens)


def _can_run(platform: str, case: KdaDecodeCase) -> Support:
    del case  # any valid case
    return triton_support(platform)


TRITON = Implementation(
    name="triton",
    operation="kda_decode",
    summary="packed row, fused gate, each state read and written once; Triton",
    can_run=_can_run,
    bind=bind_kda_decode,
)
