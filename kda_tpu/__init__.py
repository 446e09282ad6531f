"""KDA (Kimi Delta Attention) prefill for TPU: the public names. Importing touches no device."""

from kda_tpu.api import Choice, choose, kda_prefill
from kda_tpu.errors import KdaArgumentError
from kda_tpu.gate import Gate, log_decay
from kda_tpu.implementations import IMPLEMENTATIONS
from kda_tpu.inputs import KdaCase, KdaInputs, input_shapes, make_inputs
from kda_tpu.interface import Bound, Implementation, Support
from kda_tpu.reference import kda_reference
from kda_tpu.tolerance import max_abs_error, tolerance
from kda_tpu.variants import VARIANTS

__all__ = [
    "IMPLEMENTATIONS",
    "VARIANTS",
    "Bound",
    "Choice",
    "Gate",
    "Implementation",
    "KdaArgumentError",
    "KdaCase",
    "KdaInputs",
    "Support",
    "choose",
    "input_shapes",
    "kda_prefill",
    "kda_reference",
    "log_decay",
    "make_inputs",
    "max_abs_error",
    "tolerance",
]
