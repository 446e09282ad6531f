"""Every MLA implementation by name, best first. A new kernel is one file and one line here."""

from mla_rocm import (
    decode_torch,
    decode_triton,
    kda_torch,
    kda_triton,
    prefill_torch,
    prefill_triton,
)
from mla_rocm.base import Implementation
from mla_rocm.providers import aiter_mla, sglang_kda, sglang_mla

DECODE_IMPLEMENTATIONS: dict[str, Implementation] = {
    implementation.name: implementation
    for implementation in (
        decode_triton.TRITON,
        decode_triton.TRITON_BATCH_INVARIANT,
        sglang_mla.SGLANG_DECODE,
        aiter_mla.AITER_DECODE,
        decode_torch.TORCH_SPLITKV,
        decode_torch.TORCH_DENSE,
    )
}

PREFILL_IMPLEMENTATIONS: dict[str, Implementation] = {
    implementation.name: implementation
    for implementation in (
        prefill_triton.TRITON_CHUNKED_DECOMPRESSED,
        prefill_triton.TRITON_DECOMPRESSED,
        prefill_triton.TRITON_CHUNKED_ABSORBED,
        prefill_triton.TRITON_ABSORBED,
        sglang_mla.SGLANG_EXTEND,
        prefill_torch.TORCH_CHUNKED_DECOMPRESSED,
        prefill_torch.TORCH_DECOMPRESSED,
        prefill_torch.TORCH_CHUNKED_ABSORBED,
        prefill_torch.TORCH_ABSORBED,
    )
}

KDA_DECODE_IMPLEMENTATIONS: dict[str, Implementation] = {
    implementation.name: implementation
    for implementation in (
        kda_triton.TRITON,
        sglang_kda.SGLANG,
        kda_torch.TORCH_BATCHED,
    )
}

# Of MLA. The KDA table is apart: its cases and outputs are others, and names may repeat.
IMPLEMENTATIONS: dict[str, Implementation] = {**DECODE_IMPLEMENTATIONS, **PREFILL_IMPLEMENTATIONS}
