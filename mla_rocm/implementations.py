"""Every MLA implementation by name, best first. A new kernel is one file and one line here."""

from mla_rocm import decode_torch, prefill_torch
from mla_rocm.base import Implementation

DECODE_IMPLEMENTATIONS: dict[str, Implementation] = {
    implementation.name: implementation
    for implementation in (
        decode_torch.TORCH_SPLITKV,
        decode_torch.TORCH_DENSE,
    )
}

PREFILL_IMPLEMENTATIONS: dict[str, Implementation] = {
    implementation.name: implementation
    for implementation in (
        prefill_torch.TORCH_CHUNKED_DECOMPRESSED,
        prefill_torch.TORCH_DECOMPRESSED,
        prefill_torch.TORCH_CHUNKED_ABSORBED,
        prefill_torch.TORCH_ABSORBED,
    )
}

IMPLEMENTATIONS: dict[str, Implementation] = {**DECODE_IMPLEMENTATIONS, **PREFILL_IMPLEMENTATIONS}
