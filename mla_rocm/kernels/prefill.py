"""Varlen MLA prefill attention in Triton, decompressed (192/128) or absorbed (576/512)."""

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _attend_tiles(
    first,
    last,
    q_main,
    q_rope,
    kv,
    k_rope,
    keys,
    visible,
    scale_log2,
    highest,
    total,
    acc,
    MAIN: tl.constexpr,
    ROPE: tl.constexpr,
    V_DIM: tl.constexpr,
    MAIN_PAD: tl.constexpr,
    ROPE_PAD: tl.constexpr,
    V_PAD: tl.constexpr,
    KV_STRIDE: tl.constexpr,
    ROPE_STRIDE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SHARED_KV: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Online softmax over key tiles [first, last); MASKED tiles hide keys from some queries.

    visible [BLOCK_M]: keys that each query sees. Pointers are at the sequence's first key.
    """
    main = tl.arange(0, MAIN_PAD)
    rope = tl.arange(0, ROPE_PAD)
    value = tl.arange(0, V_PAD)
    for start in range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        row = tl.arange(0, BLOCK_N)
        if MASKED:
            # The last key stands in for those past the end: always the sequence's own row.
            row = tl.minimum(row, keys - 1 - start)
        tile = tl.cast(start, tl.int64)
        kv_rows = kv + tile * KV_STRIDE + row[:, None] * KV_STRIDE
        rope_rows = k_rope + tile * ROPE_STRIDE + row[:, None] * ROPE_STRIDE
        if MAIN == MAIN_PAD:
            k_main = tl.load(kv_rows + main[None, :])
        else:
            k_main = tl.load(kv_rows + main[None, :], mask=(main < MAIN)[None, :], other=0.0)
        if ROPE == ROPE_PAD:
            k_rotary = tl.load(rope_rows + rope[None, :])
        else:
            k_rotary = tl.load(rope_rows + rope[None, :], mask=(rope < ROPE)[None, :], other=0.0)
        scores = tl.dot(q_main, tl.trans(k_main))
        scores = tl.dot(q_rope, tl.trans(k_rotary), scores) * scale_log2
        if MASKED:
            scores = tl.where(key[None, :] < visible[:, None], scores, float("-inf"))
        # Every query sees the sequence's first key, which is in the first tile: finite from there.
        raised = tl.maximum(highest, tl.max(scores, 1))
        kept = tl.exp2(highest - raised)
        weights = tl.exp2(scores - raised[:, None])
        total = total * kept + tl.sum(weights, 1)
        if SHARED_KV:
            values = k_main
        elif V_DIM == V_PAD:
            values = tl.load(kv_rows + MAIN + value[None, :])
        else:
            in_value = (value < V_DIM)[None, :]
            values = tl.load(kv_rows + MAIN + value[None, :], mask=in_value, other=0.0)
        acc = tl.dot(weights.to(values.dtype), values, acc * kept[:, None])
        highest = raised
    return highest, total, acc


@triton.jit
def prefill_attention(
    q,
    kv,
    rows,
    o,
    lse,
    spans,
    scale_log2,
    HEADS: tl.constexpr,
    LATENT: tl.constexpr,
    MAIN: tl.constexpr,
    ROPE: tl.constexpr,
    V_DIM: tl.constexpr,
    MAIN_PAD: tl.constexpr,
    ROPE_PAD: tl.constexpr,
    V_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SHARED_KV: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """BLOCK_M queries of one head of one sequence over that sequence's keys.

    q [Tq, H, MAIN + ROPE]; rows [Tk, LATENT + ROPE], whose end is the rotary key of all heads;
    kv [Tk, H, MAIN + V_DIM], keys and values of each head, or with SHARED_KV ``rows`` itself:
    latents are the keys and the values of all heads, and MAIN is V_DIM is LATENT.
    spans int32 [B, 4]: first query, queries, first key, keys. CAUSAL: the last query sees every
    key, the one before it one less, and so on. o [Tq, H, V_DIM]; lse fp32 [Tq, H]; a query
    without keys gets 0 and -inf.
    """
    ROPE_STRIDE: tl.constexpr = LATENT + ROPE
    HEAD_STRIDE: tl.constexpr = 0 if SHARED_KV else MAIN + V_DIM
    KV_STRIDE: tl.constexpr = ROPE_STRIDE if SHARED_KV else HEADS * (MAIN + V_DIM)
    Q_WIDTH: tl.constexpr = MAIN + ROPE
    sequence = tl.program_id(2)
    first_query = tl.load(spans + sequence * 4)
    queries = tl.load(spans + sequence * 4 + 1)
    first_key = tl.load(spans + sequence * 4 + 2).to(tl.int64)
    keys = tl.load(spans + sequence * 4 + 3)
    # Under a causal mask the last tiles see the most keys: they start first, so that the longest
    # workgroup does not run alone at the end.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    begin = tile * BLOCK_M
    if begin >= queries:
        return
    head = tl.program_id(1)
    query = begin + tl.arange(0, BLOCK_M)
    out_row = (first_query + tl.minimum(query, queries - 1)).to(tl.int64) * HEADS + head
    main = tl.arange(0, MAIN_PAD)
    rope = tl.arange(0, ROPE_PAD)
    value = tl.arange(0, V_PAD)
    q_rows = q + out_row[:, None] * Q_WIDTH
    q_main = tl.load(q_rows + main[None, :], mask=(main < MAIN)[None, :], other=0.0)
    q_rope = tl.load(q_rows + MAIN + rope[None, :], mask=(rope < ROPE)[None, :], other=0.0)
    kv_base = kv + first_key * KV_STRIDE + head * HEAD_STRIDE
    rope_base = rows + first_key * ROPE_STRIDE + LATENT

    if CAUSAL:
        visible = keys - queries + query + 1
        seen_by_all = keys - queries + begin + 1
        seen_by_any = tl.minimum(keys, keys - queries + begin + BLOCK_M)
    else:
        visible = tl.zeros([BLOCK_M], tl.int32) + keys
        seen_by_all = keys
        seen_by_any = keys
    unmasked = seen_by_all // BLOCK_N * BLOCK_N
    highest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, V_PAD], tl.float32)
    highest, total, acc = _attend_tiles(
        0, unmasked, q_main, q_rope, kv_base, rope_base, keys, visible, scale_log2,
        highest, total, acc, MAIN, ROPE, V_DIM, MAIN_PAD, ROPE_PAD, V_PAD, KV_STRIDE,
        ROPE_STRIDE, BLOCK_N, SHARED_KV, False,
    )  # fmt: skip
    highest, total, acc = _attend_tiles(
        unmasked, seen_by_any, q_main, q_rope, kv_base, rope_base, keys, visible, scale_log2,
        highest, total, acc, MAIN, ROPE, V_DIM, MAIN_PAD, ROPE_PAD, V_PAD, KV_STRIDE,
        ROPE_STRIDE, BLOCK_N, SHARED_KV, True,
    )  # fmt: skip

    total = tl.where(total == 0.0, 1.0, total)
    in_queries = query < queries
    inside = in_queries[:, None] & (value < V_DIM)[None, :]
    result = (acc / total[:, None]).to(o.dtype.element_ty)
    tl.store(o + out_row[:, None] * V_DIM + value[None, :], result, mask=inside)
    tl.store(lse + out_row, (highest + tl.log2(total)) * LN2, mask=in_queries)
