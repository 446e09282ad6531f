"""MLA and KDA decode, MLA prefill for K3 on AMD GPUs: cases, inputs, oracles, implementations.

Importing this package touches no device, so a process may fork after it.
"""

from mla_rocm.api import mla_decode, mla_prefill
from mla_rocm.base import Bound, Implementation, Outputs, Support
from mla_rocm.cases import MlaDecodeCase, MlaPrefillCase
from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import MlaGeometry, choose_num_kv_splits, split_bounds, split_length
from mla_rocm.implementations import (
    DECODE_IMPLEMENTATIONS,
    IMPLEMENTATIONS,
    KDA_DECODE_IMPLEMENTATIONS,
    PREFILL_IMPLEMENTATIONS,
)
from mla_rocm.inputs import (
    MlaDecodeInputs,
    MlaPrefillInputs,
    make_decode_inputs,
    make_prefill_inputs,
)
from mla_rocm.kda_case import KdaDecodeCase, KdaDecodeInputs, make_kda_decode_inputs
from mla_rocm.kda_torch import (
    KdaDecodeOutputs,
    kda_decode_errors,
    kda_decode_is_right,
    reference_kda_decode,
)
from mla_rocm.reference import reference_decode, reference_prefill
from mla_rocm.tolerance import TOLERANCES, Tolerance, max_abs_error, tolerance_for

__all__ = [
    "DECODE_IMPLEMENTATIONS",
    "IMPLEMENTATIONS",
    "KDA_DECODE_IMPLEMENTATIONS",
    "PREFILL_IMPLEMENTATIONS",
    "TOLERANCES",
    "Bound",
    "Implementation",
    "KdaDecodeCase",
    "KdaDecodeInputs",
    "KdaDecodeOutputs",
    "MlaArgumentError",
    "MlaDecodeCase",
    "MlaDecodeInputs",
    "MlaGeometry",
    "MlaPrefillCase",
    "MlaPrefillInputs",
    "Outputs",
    "Support",
    "Tolerance",
    "choose_num_kv_splits",
    "kda_decode_errors",
    "kda_decode_is_right",
    "make_decode_inputs",
    "make_kda_decode_inputs",
    "make_prefill_inputs",
    "max_abs_error",
    "mla_decode",
    "mla_prefill",
    "reference_decode",
    "reference_kda_decode",
    "reference_prefill",
    "split_bounds",
    "split_length",
    "tolerance_for",
]
