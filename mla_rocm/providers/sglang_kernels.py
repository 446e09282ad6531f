"""Where sglang keeps the kernels that are measured here, by release, and why one may be missing."""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from mla_rocm.base import Support
from mla_rocm.triton_runtime import triton_support

# Newest place first; releases before the kernel folder kept them beside the attention backends.
_PLACES = {
    "decode_attention_fwd": (
        "sglang.kernels.ops.attention.decode_attention",
        "sglang.srt.layers.attention.triton_ops.decode_attention",
    ),
    "extend_attention_fwd": (
        "sglang.kernels.ops.attention.extend_attention",
        "sglang.srt.layers.attention.triton_ops.extend_attention",
    ),
    "fused_recurrent_kda_packed_decode": (
        "sglang.kernels.ops.attention.fla.fused_recurrent",
        "sglang.srt.layers.attention.fla.fused_recurrent",
    ),
}

# Without its dependency tree, which holds another torch; docs/mla.md.
NOT_INSTALLED = (
    "sglang is not installed: pip install --no-deps sglang==0.5.23 && pip install orjson psutil "
    "pybase64 packaging pillow starlette msgspec pydantic pyzmq tqdm ipython aiohttp"
)


def sglang_support(platform: str, function: str) -> Support:
    """Whether sglang has the function here and Triton kernels run on the platform.

    sglang is imported only where they do: its import looks for devices.
    """
    if importlib.util.find_spec("sglang") is None:
        return Support(False, NOT_INSTALLED)
    support = triton_support(platform)
    if not support.ok:
        return support
    try:
        load(function)
    except ImportError as error:
        return Support(False, str(error))
    return Support(True)


@functools.cache
def load(function: str) -> Callable[..., Any]:
    """The function, from the first place that has it.

    Raises:
        ImportError: from none; one line with each place's reason.
    """
    reasons = []
    for place in _PLACES[function]:
        try:
            found = getattr(importlib.import_module(place), function, None)
        except ImportError as error:
            reasons.append(f"{place}: {error}")
            continue
        if found is not None:
            return found  # type: ignore[no-any-return]
        reasons.append(f"{place} has no {function}")
    raise ImportError(f"sglang's {function} cannot be imported: {'; '.join(reasons)}")
