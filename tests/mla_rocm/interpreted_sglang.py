"""Lets Triton's interpreter run sglang's KDA decode, where sglang is installed."""

import importlib.util

import triton
import triton.language as tl


@triton.jit
def exp(x):
    """tl.exp by another name: the interpreter replaces it only under its own."""
    return tl.exp(x)


def replace_aliases() -> None:
    """sglang binds ``exp = tl.exp`` when it is imported, which the interpreter does not see."""
    if importlib.util.find_spec("sglang") is None:
        return
    from mla_rocm.providers.sglang_kernels import load

    load("fused_recurrent_kda_packed_decode").__globals__["exp"] = exp
