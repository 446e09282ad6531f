"""The KDA decode step in torch: the fp32 oracle, how far from it is right, and the baseline."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mla_rocm.base import Bound, Implementation, Support
from mla_rocm.errors import MlaArgumentError
from mla_rocm.kda_case import LOWER_BOUND, NORM_EPS, KdaDecodeCase, KdaDecodeInputs
from mla_rocm.platforms import torch_support


@dataclass(frozen=True)
class KdaDecodeOutputs:
    """What every KDA decode kernel returns.

    Attributes:
        o: [B, H, V] in the inputs' dtype (the oracle: float32); 0 for padding.
        state: float32 [slots, H, K, V], the updated pool; only the sequences' own slots mean
            anything.
    """

    o: Tensor
    state: Tensor


# Largest error of o, and of the state, by input dtype. Outputs reach 0.2 and are rounded once, at
# the end (bfloat16: half of 2^-10 at 0.125 to 0.25, float16: half of 2^-13); the rest is the order
# of float32 sums. States reach 1.5.
O_TOLERANCES = {"float32": 2e-6, "float16": 1e-4, "bfloat16": 1e-3}
STATE_TOLERANCE = 5e-6


def reference_kda_decode(inputs: KdaDecodeInputs) -> KdaDecodeOutputs:
    """The recurrence as it is defined, one sequence at a time, in float32.

    S <- diag(e^g) S; S <- S + beta k (v - k^T S)^T; o = K^-0.5 q^T S, read after the update; q and
    k normalised, beta after its sigmoid, g after the gate. Source: the KDA recurrence of Kimi
    Linear's paper.
    """
    o = torch.zeros((inputs.batch, inputs.heads, inputs.head_dim_v), device=inputs.packed.device)
    states = inputs.state.clone()
    q, k, v, gate, beta = (part.float() for part in inputs.unpack())
    q, k = _normalised(q), _normalised(k)
    decay, beta = log_decay(inputs, gate).exp(), beta.sigmoid()
    for sequence, slot in enumerate(inputs.state_indices.tolist()):
        if slot < 0:
            continue
        state = states[slot] * decay[sequence, :, :, None]
        error = v[sequence] - (state * k[sequence, :, :, None]).sum(1)
        write = k[sequence, :, :, None] * error[:, None, :]
        states[slot] = state + beta[sequence, :, None, None] * write
        o[sequence] = inputs.scale * (states[slot] * q[sequence, :, :, None]).sum(1)
    return KdaDecodeOutputs(o, states)


def log_decay(inputs: KdaDecodeInputs, gate: Tensor) -> Tensor:
    """Log decay, natural, of raw gates [B, H, K] in float32."""
    x = gate + inputs.dt_bias
    rate = inputs.A_log.exp()[:, None]
    if inputs.gate == "bounded":
        return LOWER_BOUND * torch.sigmoid(rate * x)
    return -rate * torch.nn.functional.softplus(x)


def kda_decode_errors(
    outputs: KdaDecodeOutputs, reference: KdaDecodeOutputs, state_indices: Tensor
) -> tuple[float, float]:
    """Largest absolute differences of o and of the sequences' own states; infinite at a NaN.

    Raises:
        MlaArgumentError: if shapes differ.
    """
    owned = state_indices[state_indices >= 0].long()
    pairs = (
        ("o", outputs.o, reference.o),
        ("state", outputs.state[owned], reference.state[owned]),
    )
    errors = []
    for name, values, expected in pairs:
        if values.shape != expected.shape:
            raise MlaArgumentError(
                f"{name} has shape {tuple(values.shape)}, the reference {tuple(expected.shape)}: "
                "compare outputs of the same inputs"
            )
        difference = (values.float() - expected).abs().nan_to_num(nan=float("inf"))
        errors.append(float(difference.max()) if difference.numel() else 0.0)
    return errors[0], errors[1]


def kda_decode_is_right(
    outputs: KdaDecodeOutputs, reference: KdaDecodeOutputs, inputs: KdaDecodeInputs
) -> bool:
    """Whether both errors lie within the tolerances of the inputs' dtype."""
    o_error, state_error = kda_decode_errors(outputs, reference, inputs.state_indices)
    dtype = str(inputs.packed.dtype).removeprefix("torch.")
    return o_error <= O_TOLERANCES[dtype] and state_error <= STATE_TOLERANCE


def bind_batched(inputs: KdaDecodeInputs) -> Bound:
    """All sequences at once; the updated states go to a pool of their own."""
    indices = inputs.state_indices
    rows = (indices >= 0).nonzero().squeeze(1)
    slots = indices[rows].long()
    new_state = torch.empty_like(inputs.state)

    def run() -> KdaDecodeOutputs:
        q, k, v, gate, beta = (part[rows].float() for part in inputs.unpack())
        q, k = _normalised(q) * inputs.scale, _normalised(k)
        state = inputs.state[slots] * log_decay(inputs, gate).exp().unsqueeze(-1)
        predicted = torch.einsum("bhkv,bhk->bhv", state, k)
        correction = beta.sigmoid().unsqueeze(-1) * (v - predicted)
        state += k.unsqueeze(-1) * correction.unsqueeze(-2)
        new_state[slots] = state
        o = inputs.packed.new_zeros((inputs.batch, inputs.heads, inputs.head_dim_v))
        o[rows] = torch.einsum("bhkv,bhk->bhv", state, q).to(o.dtype)
        return KdaDecodeOutputs(o, new_state)

    return Bound(run, executed_tokens=len(rows))


def _normalised(x: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) + NORM_EPS).rsqrt()


def _can_run(platform: str, case: KdaDecodeCase) -> Support:
    del case  # any valid case
    return torch_support(platform)


TORCH_BATCHED = Implementation(
    name="torch_batched",
    operation="kda_decode",
    summary="gathers the states, updates all sequences at once; torch element-wise and einsum",
    can_run=_can_run,
    bind=bind_batched,
)
