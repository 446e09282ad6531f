"""Matrix products that accumulate and return fp32, and the log-sum-exp merge of softmax parts."""

import torch
from torch import Tensor

NEG_INF = float("-inf")


def to_operand(x: Tensor) -> Tensor:
    """The form in which a tensor of a 16-bit type enters ``bmm_fp32``.

    On a GPU the tensor itself. On a CPU a float32 copy: CPU products of 16-bit operands come back
    rounded to 16 bits (scores of 17 off by 0.03, weights by 3%), which no attention kernel does.
    Convert once and reuse where an operand is multiplied twice.
    """
    return x.float() if x.device.type == "cpu" else x


def bmm_fp32(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` over a batch, accumulated and returned in fp32.

    Args:
        a: [N, M, K], in the type ``to_operand`` gave; float32 weights are cast to ``b``'s type
            first, as a tensor-core kernel casts probabilities before the second product.
        b: [N, K, P].

    Returns:
        [N, M, P] float32.
    """
    a = a.to(b.dtype)
    if b.dtype == torch.float32:
        return torch.bmm(a, b)
    return torch.bmm(a, b, out_dtype=torch.float32)


def merge_partials(o: Tensor, lse: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Merges softmax parts over disjoint keys into the softmax over all of them.

    Each part is a normalised output and the log of its sum of exponentials; parts are weighted by
    exp(lse - max lse). A part with lse = -inf saw no key: it contributes nothing, whatever its
    output holds (NaN too, since a kernel leaves unwritten parts as it found them). Where no part
    saw a key the output is 0 and the lse -inf, not the NaN of -inf minus -inf.

    Args:
        o: [..., D] float32, parts along ``dim``.
        lse: o's shape without D, float32.
        dim: the dimension of parts, counted from the front (0 or more).

    Returns:
        o and lse without ``dim``, float32.
    """
    highest = lse.amax(dim, keepdim=True)
    weights = (lse - highest.masked_fill(highest == NEG_INF, 0.0)).exp()
    total = weights.sum(dim)
    weights = weights.unsqueeze(-1)
    # Selected before it is weighted: 0 x NaN would still be NaN.
    weighted = torch.where(weights == 0.0, 0.0, o).mul_(weights)
    # The part with the highest lse has weight 1, so a total below 1 means that no part saw a key.
    merged = weighted.sum(dim) / total.clamp_min(1.0).unsqueeze(-1)
    return merged, highest.squeeze(dim) + total.log()
