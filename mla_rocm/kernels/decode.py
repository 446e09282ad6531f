"""MLA decode in Triton: split-KV over the paged latent cache, then a blocked log-sum-exp merge."""

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit(do_not_specialize=["num_kv_splits", "table_stride"])
def decode_stage1(
    q,
    kv_cache,
    block_table,
    seq_lens,
    partial_o,
    partial_lse,
    scale_log2,
    num_kv_splits,
    table_stride,
    HEADS: tl.constexpr,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    LATENT_PAD: tl.constexpr,
    ROPE_PAD: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One split of one sequence for BLOCK_H heads: its normalised output and log-sum-exp.

    q [B, H, LATENT + ROPE]; kv_cache [pages, PAGE, LATENT + ROPE]; block_table int32, rows of
    table_stride; seq_lens int32 [B]; partial_o fp32 [B, H, splits, LATENT]; partial_lse fp32
    [B, H, splits], natural log. scale_log2 is the scale times log2(e): exponentials are base 2.
    Splits past the end of a context write nothing.
    """
    split = tl.program_id(0)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    sequence = tl.program_id(2).to(tl.int64)
    context = tl.load(seq_lens + sequence)
    length = tl.cdiv(tl.cdiv(context, num_kv_splits), BLOCK_N) * BLOCK_N
    begin = split * length
    end = tl.minimum(begin + length, context)
    if begin >= end:
        return

    WIDTH: tl.constexpr = LATENT + ROPE
    column = tl.arange(0, LATENT_PAD)
    rope_column = tl.arange(0, ROPE_PAD)
    in_latent = (column < LATENT)[None, :]
    in_rope = (rope_column < ROPE)[None, :]
    has_head = (head < HEADS)[:, None]
    q_row = q + (sequence * HEADS + head)[:, None] * WIDTH
    q_latent = tl.load(q_row + column[None, :], mask=has_head & in_latent, other=0.0)
    q_rope = tl.load(q_row + LATENT + rope_column[None, :], mask=has_head & in_rope, other=0.0)

    key = tl.arange(0, BLOCK_N)
    table = block_table + sequence * table_stride
    highest = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, LATENT_PAD], tl.float32)
    ONE_PAGE: tl.constexpr = PAGE % BLOCK_N == 0

    # Keys past the end of the split repeat its last key, so that no slot outside the context is
    # read and no load needs a mask; their scores are masked.
    if ONE_PAGE:
        page = tl.load(table + begin // PAGE)
    else:
        position = tl.minimum(begin + key, end - 1)
        page = tl.load(table + position // PAGE)
    for start in range(begin, end, BLOCK_N):
        if ONE_PAGE:
            in_tile = tl.minimum(key, end - 1 - start)
            row = kv_cache + (page.to(tl.int64) * PAGE + start % PAGE) * WIDTH
            rows = row + in_tile[:, None] * WIDTH
            upcoming = tl.minimum(start + BLOCK_N, end - 1)
        else:
            position = tl.minimum(start + key, end - 1)
            slot = page.to(tl.int64) * PAGE + position % PAGE
            rows = kv_cache + slot[:, None] * WIDTH
            upcoming = tl.minimum(start + BLOCK_N + key, end - 1)
        # The next tile's page travels with this tile's keys: one memory round trip an iteration.
        page = tl.load(table + upcoming // PAGE)
        if LATENT == LATENT_PAD:
            latent = tl.load(rows + column[None, :])
        else:
            latent = tl.load(rows + column[None, :], mask=in_latent, other=0.0)
        if ROPE == ROPE_PAD:
            rope = tl.load(rows + LATENT + rope_column[None, :])
        else:
            rope = tl.load(rows + LATENT + rope_column[None, :], mask=in_rope, other=0.0)
        scores = tl.dot(q_latent, tl.trans(latent))
        scores = tl.dot(q_rope, tl.trans(rope), scores) * scale_log2
        scores = tl.where((start + key < end)[None, :], scores, float("-inf"))
        raised = tl.maximum(highest, tl.max(scores, 1))
        kept = tl.exp2(highest - raised)
        weights = tl.exp2(scores - raised[:, None])
        total = total * kept + tl.sum(weights, 1)
        acc = tl.dot(weights.to(latent.dtype), latent, acc * kept[:, None])
        highest = raised

    part = (sequence * HEADS + head) * num_kv_splits + split
    tl.store(
        partial_o + part[:, None] * LATENT + column[None, :],
        acc / total[:, None],
        mask=has_head & in_latent,
    )
    tl.store(partial_lse + part, (highest + tl.log2(total)) * LN2, mask=head < HEADS)


@triton.jit(do_not_specialize=["num_kv_splits"])
def decode_stage2(
    partial_o,
    partial_lse,
    seq_lens,
    o,
    lse,
    num_kv_splits,
    HEADS: tl.constexpr,
    LATENT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Merges the written splits of one head of one sequence, for BLOCK_D columns of its output.

    Splits are reduced BLOCK_S at a time, all loads of a block independent: a walk split by split
    pays a memory round trip for each. partial_o, partial_lse: as stage 1 wrote them; o
    [B, H, LATENT]; lse fp32 [B, H]. No split was written for an empty context: 0 and -inf.
    """
    column = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    head = tl.program_id(1)
    sequence = tl.program_id(2).to(tl.int64)
    context = tl.load(seq_lens + sequence)
    length = tl.cdiv(tl.cdiv(context, num_kv_splits), BLOCK_N) * BLOCK_N
    # An empty context has splits of length 0; the maximum only keeps its division defined.
    written = tl.cdiv(context, tl.maximum(length, 1))
    row = sequence * HEADS + head
    split = tl.arange(0, BLOCK_S)
    highest = float("-inf")
    total = 0.0
    acc = tl.zeros([BLOCK_D], tl.float32)
    for first in range(0, written, BLOCK_S):
        present = first + split < written
        part = row * num_kv_splits + first + split
        part_lse = tl.load(partial_lse + part, mask=present, other=float("-inf"))
        part_o = tl.load(
            partial_o + part[:, None] * LATENT + column[None, :],
            mask=present[:, None] & (column < LATENT)[None, :],
            other=0.0,
        )
        # A block holds a written split and a written split holds a key: the maximum is finite.
        raised = tl.maximum(highest, tl.max(part_lse, 0))
        kept = tl.exp(highest - raised)
        weight = tl.exp(part_lse - raised)
        total = total * kept + tl.sum(weight, 0)
        acc = acc * kept + tl.sum(part_o * weight[:, None], 0)
        highest = raised
    total = tl.where(total == 0.0, 1.0, total)
    merged = acc / total
    tl.store(o + row * LATENT + column, merged.to(o.dtype.element_ty), mask=column < LATENT)
    if tl.program_id(0) == 0:
        tl.store(lse + row, highest + tl.log(total))
