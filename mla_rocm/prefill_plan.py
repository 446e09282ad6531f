"""How our Triton prefill is cut up: forms, passes over spans of keys, tiles; integers alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mla_rocm.cost import Form
from mla_rocm.errors import MlaArgumentError

PrefillForm = Literal["decompressed", "absorbed", "chunked_decompressed", "chunked_absorbed"]
PREFILL_FORMS: tuple[str, ...] = get_args(PrefillForm)

# New tokens of a sequence per pass, and prefix tokens decompressed at a time, in the chunked forms.
CHUNK_TOKENS = 16384


@dataclass(frozen=True)
class Tiles:
    """Queries and keys of one tile, warps and stages, and the least side of its MFMA (HIP only)."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    mfma_rows: int


# From gfx950's compiled figures. Decompressed: 242 VGPRs, two workgroups a compute unit; 64 keys
# take 319 VGPRs and leave one, 8 warps spill. Absorbed: 397 VGPRs, one workgroup, no scratch;
# 32-row MFMAs take all 512 and scratch, 64 keys or 128 queries spill in the loop.
TILES: dict[Form, Tiles] = {
    "decompressed": Tiles(128, 32, 4, 2, 32),
    "absorbed": Tiles(64, 32, 4, 2, 16),
}


@dataclass(frozen=True)
class Span:
    """What one sequence does in one pass.

    Attributes:
        sequence: its number.
        query_begin, queries: its new tokens that attend, counted from its first new token.
        key_begin, keys: the positions of its context (prefix, then new tokens) attended.
    """

    sequence: int
    query_begin: int
    queries: int
    key_begin: int
    keys: int


@dataclass(frozen=True)
class Pass:
    """One attention launch over spans of several sequences, all in one form.

    Attributes:
        form: width of the products.
        causal: the last query of a span sees all its keys, the one before one less, and so on;
            else every query sees every key.
        spans: one per sequence that takes part.
    """

    form: Form
    causal: bool
    spans: tuple[Span, ...]

    @property
    def pairs(self) -> int:
        """Query-key pairs that are scored, per head."""
        return sum(
            span.queries * span.keys - self.causal * (span.queries * (span.queries - 1) // 2)
            for span in self.spans
        )


def plan_prefill(
    new_lengths: Sequence[int],
    prefix_lengths: Sequence[int],
    form: PrefillForm,
    chunk_tokens: int = CHUNK_TOKENS,
) -> tuple[Pass, ...]:
    """The passes of a prefill: parts of one query's softmax over disjoint keys, merged after.

    ``decompressed`` and ``absorbed``: one causal pass over prefix and new tokens. ``chunked_*``:
    new tokens in chunks; each attends itself decompressed, and what comes before it (prefix and
    earlier chunks) in the named form: absorbed in one pass, decompressed ``chunk_tokens`` keys at
    a time, which bounds the decompressed keys. Sequences share passes.

    Raises:
        MlaArgumentError: for an unknown form or a chunk below 1.
    """
    if form not in PREFILL_FORMS:
        raise MlaArgumentError(f"form is {form!r}: give one of {', '.join(PREFILL_FORMS)}")
    if chunk_tokens < 1:
        raise MlaArgumentError(f"chunk_tokens is {chunk_tokens}: give 1 or more")
    lengths = [
        (sequence, new, prefix)
        for sequence, (new, prefix) in enumerate(zip(new_lengths, prefix_lengths, strict=True))
        if new > 0
    ]
    if form == "decompressed" or form == "absorbed":
        spans = tuple(Span(sequence, 0, new, 0, prefix + new) for sequence, new, prefix in lengths)
        return (Pass(form, True, spans),) if spans else ()

    before_form: Form = "absorbed" if form == "chunked_absorbed" else "decompressed"
    passes = []
    for begin in range(0, max((new for _, new, _ in lengths), default=0), chunk_tokens):
        chunks = [
            (sequence, min(chunk_tokens, new - begin), prefix + begin)
            for sequence, new, prefix in lengths
            if new > begin
        ]
        own = tuple(Span(sequence, begin, count, seen, count) for sequence, count, seen in chunks)
        passes.append(Pass("decompressed", True, own))
        longest = max(seen for _, _, seen in chunks)
        step = chunk_tokens if before_form == "decompressed" else max(1, longest)
        for key_begin in range(0, longest, step):
            earlier = tuple(
                Span(sequence, begin, count, key_begin, min(step, seen - key_begin))
                for sequence, count, seen in chunks
                if seen > key_begin
            )
            passes.append(Pass(before_form, False, earlier))
    return tuple(passes)
