"""How far an implementation may lie from the fp32 reference, and the distance itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mla_rocm.base import Outputs
from mla_rocm.errors import MlaArgumentError


@dataclass(frozen=True)
class Tolerance:
    """The largest acceptable ``max_abs_error`` for inputs of one dtype, and why."""

    max_abs_error: float
    reason: str


# Each is at least twice the largest error of the torch forms over 20 seeds of ragged decode and
# prefill, with probabilities in float32 and rounded as a tensor-core kernel rounds them.
TOLERANCES: dict[str, Tolerance] = {
    "float32": Tolerance(
        5e-5,
        "sums of up to a million terms in another order than the reference's; outputs reach 5 and "
        "log-sum-exps 20, where fp32's own spacing is 5e-7 to 2e-6",
    ),
    "float16": Tolerance(
        6e-3,
        "outputs reach 5 and are rounded to a spacing of 2^-8 there (error up to 2e-3); absorbed "
        "queries, decompressed keys and probabilities are rounded to 11 bits on the way",
    ),
    "bfloat16": Tolerance(
        4e-2,
        "outputs reach 5 and are rounded to a spacing of 2^-5 there (error up to 1.6e-2); "
        "absorbed queries, decompressed keys and probabilities are rounded to 8 bits on the way",
    ),
}


def tolerance_for(dtype: str) -> Tolerance:
    """The tolerance for inputs of a dtype, by torch's name for it.

    Raises:
        MlaArgumentError: for a dtype that no MLA kernel here takes.
    """
    if dtype not in TOLERANCES:
        raise MlaArgumentError(f"dtype is {dtype!r}: give one of {', '.join(TOLERANCES)}")
    return TOLERANCES[dtype]


def max_abs_error(outputs: Outputs, reference: Outputs) -> float:
    """The largest absolute difference over outputs and log-sum-exps; infinite if any is NaN.

    A log-sum-exp of -inf (a sequence without keys) equals only itself. Outputs without one are
    judged by ``o``.

    Raises:
        MlaArgumentError: if shapes differ.
    """
    error = _tensor_error("o", outputs.o, reference.o)
    if outputs.lse is None:
        return error
    return max(error, _tensor_error("lse", outputs.lse, reference.lse))


def _tensor_error(name: str, values: Tensor, expected: Tensor) -> float:
    if values.shape != expected.shape:
        raise MlaArgumentError(
            f"{name} has shape {tuple(values.shape)}, the reference {tuple(expected.shape)}: "
            "compare outputs of the same inputs"
        )
    if values.numel() == 0:
        return 0.0
    values, expected = values.float(), expected.float()
    difference = (values - expected).abs()
    difference = torch.where(values == expected, 0.0, difference)
    return float(difference.nan_to_num(nan=float("inf"), posinf=float("inf")).max())
