"""sglang's packed KDA decode, on our inputs."""

from mla_rocm.base import Bound, Implementation, Support
from mla_rocm.kda_case import LOWER_BOUND, KdaDecodeCase, KdaDecodeInputs
from mla_rocm.kda_torch import KdaDecodeOutputs
from mla_rocm.providers.sglang_kernels import load, sglang_support


def bind_kda_decode(inputs: KdaDecodeInputs) -> Bound:
    """sglang keeps states as [V, K] and updates its pool in place: a copy of ours, made here."""
    decode = load("fused_recurrent_kda_packed_decode")
    heads, k, v = inputs.heads, inputs.head_dim_k, inputs.head_dim_v
    pool = inputs.state.mT.contiguous()
    mixed, gate, beta = inputs.packed.split([heads * (2 * k + v), heads * k, heads], -1)
    bias = inputs.dt_bias.flatten()
    tokens = int((inputs.state_indices >= 0).sum())

    def run() -> KdaDecodeOutputs:
        o = inputs.packed.new_empty((inputs.batch, 1, heads, v))
        decode(
            mixed,
            gate,
            beta,
            inputs.A_log,
            bias,
            inputs.scale,
            pool,
            o,
            inputs.state_indices,
            use_qk_l2norm_in_kernel=True,
            lower_bound=LOWER_BOUND if inputs.gate == "bounded" else None,
        )
        return KdaDecodeOutputs(o.squeeze(1), pool.mT)

    return Bound(run, executed_tokens=tokens, in_place=True)


def _can_run(platform: str, case: KdaDecodeCase) -> Support:
    del case  # any valid case
    return sglang_support(platform, "fused_recurrent_kda_packed_decode")


SGLANG = Implementation(
    name="sglang",
    operation="kda_decode",
    summary="sglang's packed decode, states updated in place",
    can_run=_can_run,
    bind=bind_kda_decode,
)
