"""MLA shapes: decode at the published contexts, prefill whole and in chunks after a prefix.

From 4K on, contexts are those of the published MI355X measurements of Kimi K3 (TP=8), where a
prompt past one chunk of 16,384 tokens is prefilled chunk by chunk. 1K is where launches dominate.
"""

from collections.abc import Iterator

from workloads.model import Call, MlaGeometry, Workload, prefill
from workloads.registry import family

# 96 heads over eight chips.
K3_PER_CHIP = MlaGeometry(heads=12)

CHUNK_TOKENS = 16_384

# 1M is 1,047,552 tokens: what a 1,048,576-token context leaves beside the generated ones.
DECODE_CONTEXTS = {
    "1K": 1_024,
    "4K": 4_096,
    "32K": 32_768,
    "64K": 65_536,
    "512K": 524_288,
    "1M": 1_047_552,
}
DECODE_BATCH_SIZES = (1, 4, 16, 64, 128)
WHOLE_PREFILLS = {"1K": 1_024, "4K": 4_096, "8K": 8_192, "16K": 16_384}
PREFILL_BATCH_SIZES = (1, 4)
# Where a CPU measures the same trap: a sixteenth of the 32K point, in chunks of 1,024 tokens.
SMALL_CHUNK_TOKENS = 1_024
SMALL_CHUNKED_CONTEXT = "2K"
CHUNKED_CONTEXTS = {
    SMALL_CHUNKED_CONTEXT: 2_048,
    "32K": 32_768,
    "64K": 65_536,
    "512K": 524_288,
    "1M": 1_047_552,
}

_LABEL = "fixed shape"


@family("mla-decode")
def mla_decode() -> Iterator[Workload]:
    """One new token a sequence; the context is everything it attends to, itself included."""
    for name, context in DECODE_CONTEXTS.items():
        for batch in DECODE_BATCH_SIZES:
            yield Workload(
                id=f"mla-decode/ctx{name}_B{batch}",
                kind="mla-decode",
                provenance="fixed",
                geometry=K3_PER_CHIP,
                calls=(Call(new_tokens=(1,) * batch, cached_tokens=(context - 1,) * batch),),
                label=_LABEL,
                description=f"MLA decode, {batch} x {context:,} tokens of context",
            )


@family("mla-prefill")
def mla_prefill() -> Iterator[Workload]:
    """A whole prompt in one call, without a prefix."""
    for name, length in WHOLE_PREFILLS.items():
        for batch in PREFILL_BATCH_SIZES:
            yield Workload(
                id=f"mla-prefill/T{name}_B{batch}",
                kind="mla-prefill",
                provenance="fixed",
                geometry=K3_PER_CHIP,
                calls=(prefill(*(length,) * batch),),
                label=_LABEL,
                description=f"MLA prefill, {batch} x {length:,} tokens, no prefix",
            )


@family("mla-chunk")
def mla_chunk() -> Iterator[Workload]:
    """The last chunk of a long prompt: up to 16,384 new tokens over the cached rest."""
    for name, context in CHUNKED_CONTEXTS.items():
        chunk = SMALL_CHUNK_TOKENS if name == SMALL_CHUNKED_CONTEXT else CHUNK_TOKENS
        new = context % chunk or chunk
        yield Workload(
            id=f"mla-chunk/ctx{name}_last",
            kind="mla-prefill",
            provenance="fixed",
            geometry=K3_PER_CHIP,
            calls=(Call(new_tokens=(new,), cached_tokens=(context - new,)),),
            label=_LABEL,
            description=f"MLA prefill, {new:,} new tokens after a prefix of {context - new:,}",
        )
