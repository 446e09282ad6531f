"""FLOPs, query-key pairs and cache bytes of MLA attention: what each form must do and read."""

from typing import Literal

from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import MlaGeometry

Form = Literal["decompressed", "absorbed"]


def query_key_pairs(new_tokens: int, prefix_tokens: int = 0) -> int:
    """Pairs that causal attention scores for one sequence and head: C P + C (C + 1) / 2.

    Each of ``new_tokens`` (C) sees the whole prefix (P), itself and the new tokens before it.
    """
    return new_tokens * prefix_tokens + new_tokens * (new_tokens + 1) // 2


def flops_per_pair(geometry: MlaGeometry, form: Form) -> int:
    """Multiply-adds (as 2 FLOPs) of one query-key pair over all heads: scores and weighted sum."""
    if form == "decompressed":
        widths = geometry.decompressed_qk_dim + geometry.decompressed_v_dim
    elif form == "absorbed":
        widths = geometry.absorbed_qk_dim + geometry.absorbed_v_dim
    else:
        raise MlaArgumentError(f"form {form!r} is unknown: give 'decompressed' or 'absorbed'")
    return 2 * geometry.heads * widths


def prefill_attention_flops(
    geometry: MlaGeometry,
    new_tokens: int,
    prefix_tokens: int = 0,
    *,
    new_form: Form,
    prefix_form: Form | None = None,
) -> int:
    """FLOPs of one layer's causal attention over one sequence, without the up-projections.

    Args:
        geometry: head count and widths.
        new_tokens: query tokens.
        prefix_tokens: cached tokens before them.
        new_form: the form in which new tokens attend each other.
        prefix_form: the form in which they attend the prefix; ``new_form`` if not given.
    """
    new_pairs = query_key_pairs(new_tokens)
    prefix_pairs = query_key_pairs(new_tokens, prefix_tokens) - new_pairs
    return new_pairs * flops_per_pair(geometry, new_form) + prefix_pairs * flops_per_pair(
        geometry, prefix_form or new_form
    )


def decompression_flops(geometry: MlaGeometry, key_tokens: int) -> int:
    """FLOPs to up-project ``key_tokens`` latents to every head's key and value."""
    widths = geometry.nope + geometry.v_head_dim
    return 2 * key_tokens * geometry.heads * geometry.latent * widths


def absorption_flops(geometry: MlaGeometry, query_tokens: int) -> int:
    """FLOPs to move ``query_tokens`` queries into latent space and their outputs back out."""
    widths = geometry.nope + geometry.v_head_dim
    return 2 * query_tokens * geometry.heads * geometry.latent * widths


def decode_attention_flops(geometry: MlaGeometry, context_tokens: int) -> int:
    """FLOPs of one absorbed decode step over ``context_tokens`` cached tokens, one layer."""
    return context_tokens * flops_per_pair(geometry, "absorbed")


def decode_cache_bytes(geometry: MlaGeometry, context_tokens: int, itemsize: int = 2) -> int:
    """Cache bytes that one decode step must read in one layer.

    Counts the tokens read, never the allocation: pages are allocated whole and pools are larger
    than what is in use.
    """
    return context_tokens * geometry.cache_bytes_per_token(itemsize)
