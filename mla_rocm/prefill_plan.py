"""How our Triton prefill is cut up: forms, passes over spans of keys, tiles; integers alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mla_rocm.cost import (
    Form,
    absorption_flops,
    decompression_flops,
    flops_per_pair,
)
from mla_rocm.errors import MlaArgumentError
from mla_rocm.geometry import MlaGeometry

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


def prefix_flops(
    geometry: MlaGeometry, new_tokens: int, prefix_tokens: int, prefix_form: Form
) -> int:
    """FLOPs that attending a prefix costs one layer in one form, its projections included.

    Decompressed, every prefix token's keys and values are made first; absorbed, every new token's
    query is moved into latent space and its output back, and each pair costs 3.4 times as much.
    """
    pairs = new_tokens * prefix_tokens * flops_per_pair(geometry, prefix_form)
    if prefix_form == "decompressed":
        return pairs + decompression_flops(geometry, prefix_tokens)
    return pairs + absorption_flops(geometry, new_tokens)


def choose_prefill_form(
    new_tokens: int, prefix_tokens: int, geometry: MlaGeometry | None = None
) -> PrefillForm:
    """Our rule: new tokens decompressed, the prefix in the form with fewer FLOPs."""
    if prefix_tokens == 0:
        return "decompressed"
    geometry = geometry or MlaGeometry()
    absorbed, decompressed = (
        prefix_flops(geometry, new_tokens, prefix_tokens, form)
        for form in ("absorbed", "decompressed")
    )
    return "chunked_absorbed" if absorbed < decompressed else "chunked_decompressed"


def sglang_prefill_form(prefix_tokens: int) -> PrefillForm:
    """sglang's rule on its triton and aiter backends: decompressed only where there is no prefix.

    Its chunked prefix cache, which decompresses the prefix, is enabled for other backends.
    """
    return "absorbed" if prefix_tokens else "decompressed"


def most_new_tokens_for_absorbed(prefix_tokens: int, geometry: MlaGeometry | None = None) -> int:
    """The most new tokens for which the absorbed prefix costs fewer FLOPs; beyond it never does.

    With c = projection FLOPs a token and d = the FLOPs that a pair costs more when absorbed:
    C (c + d P) < c P. For K3 it grows with the prefix towards c / d = 170.7.
    """
    geometry = geometry or MlaGeometry()
    per_token = decompression_flops(geometry, 1)
    per_pair = flops_per_pair(geometry, "absorbed") - flops_per_pair(geometry, "decompressed")
    bound = per_token * prefix_tokens
    return max(0, (bound - 1) // (per_token + per_pair * prefix_tokens)) if bound else 0


def least_prefix_for_absorbed(new_tokens: int, geometry: MlaGeometry | None = None) -> int | None:
    """The shortest prefix that is cheaper absorbed, by FLOPs; None if none is, however long.

    The other side of ``most_new_tokens_for_absorbed``: C c < P (c - d C). For K3 no prefix is from
    171 new tokens on, so a prefill chunk never gains from the absorbed form.
    """
    geometry = geometry or MlaGeometry()
    per_token = decompression_flops(geometry, 1)
    per_pair = flops_per_pair(geometry, "absorbed") - flops_per_pair(geometry, "decompressed")
    gain = per_token - per_pair * new_tokens
    return None if gain <= 0 else per_token * new_tokens // gain + 1
