"""One KDA decode step in Triton: fused gate; each state is read once and written once."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["row_stride"])
def kda_decode_step(
    packed,
    a_log,
    dt_bias,
    state_indices,
    state_in,
    state_out,
    o,
    scale,
    lower_bound,
    row_stride,
    HEADS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    K_PAD: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BOUNDED: tl.constexpr,
):
    """BLOCK_V value columns of one head of one sequence.

    packed: [B, row_stride], rows of q [H, K], k [H, K], v [H, V], raw gate [H, K], raw beta [H];
    a_log fp32 [H]; dt_bias fp32 [H, K]; state_indices int32 [B], negative for padding;
    state_in, state_out fp32 [slots, H, K, V], which may be one pool; o [B, H, V].
    """
    column = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    head = tl.program_id(1)
    sequence = tl.program_id(2).to(tl.int64)
    slot = tl.load(state_indices + sequence).to(tl.int64)

    # These depend on no other load and are in flight while the slot is fetched.
    channel = tl.arange(0, K_PAD)
    in_k, in_v = channel < K, column < V
    row = packed + sequence * row_stride
    values = row + 2 * HEADS * K
    gates = values + HEADS * V
    q = tl.load(row + head * K + channel, mask=in_k, other=0.0).to(tl.float32)
    k = tl.load(row + (HEADS + head) * K + channel, mask=in_k, other=0.0).to(tl.float32)
    v = tl.load(values + head * V + column, mask=in_v, other=0.0).to(tl.float32)
    gate = tl.load(gates + head * K + channel, mask=in_k, other=0.0).to(tl.float32)
    beta = tl.sigmoid(tl.load(gates + HEADS * K + head).to(tl.float32))
    bias = tl.load(dt_bias + head * K + channel, mask=in_k, other=0.0)
    rate = tl.exp(tl.load(a_log + head))

    o_row = o + (sequence * HEADS + head) * V
    if slot < 0:
        tl.store(o_row + column, tl.zeros([BLOCK_V], o.dtype.element_ty), mask=in_v)
        return

    offset = (slot * HEADS + head) * K * V
    inside = in_k[:, None] & in_v[None, :]
    cell = channel[:, None] * V + column[None, :]
    state = tl.load(state_in + offset + cell, mask=inside, other=0.0)

    q = q * (scale * tl.rsqrt(tl.sum(q * q, 0) + 1e-6))
    k = k * tl.rsqrt(tl.sum(k * k, 0) + 1e-6)
    x = gate + bias
    if BOUNDED:
        decay = tl.exp(lower_bound * tl.sigmoid(rate * x))
    else:
        softplus = tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
        decay = tl.exp(-rate * softplus)

    # q^T S' = q^T S + (q . k) correction: both reductions over K start from the decayed state, so
    # that the output does not wait for the update.
    state = state * decay[:, None]
    predicted = tl.sum(state * k[:, None], 0)
    recalled = tl.sum(state * q[:, None], 0)
    correction = beta * (v - predicted)
    output = recalled + tl.sum(q * k, 0) * correction
    tl.store(o_row + column, output.to(o.dtype.element_ty), mask=in_v)
    tl.store(state_out + offset + cell, state + k[:, None] * correction[None, :], mask=inside)
