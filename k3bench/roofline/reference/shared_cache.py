"""YOCO's cross-decoder: layers that attend one cache, against layers that each keep a copy."""

from collections.abc import Callable, Sequence

from torch import Tensor

from k3bench.roofline.reference.masks import causal
from k3bench.roofline.reference.softmax import attend

Rows = Callable[[int], tuple[Tensor, Tensor]]


def cross_decoder(x: Tensor, queries: Sequence[Tensor], cache: Rows, prefix: int = 0) -> Tensor:
    """x [M, D] through layers x <- x + attention(x W_q) over the rows that ``cache(layer)`` gives.

    Args:
        x: hidden rows of the new tokens.
        queries: W_q [D, K] of each layer, with values as wide as x.
        cache: layer number to keys [N, K] and values [N, D]; one object for all layers is YOCO.
        prefix: cached tokens before x.
    """
    visible = causal(len(x), prefix)
    for number, w_q in enumerate(queries):
        keys, values = cache(number)
        x = x + attend(x @ w_q, keys, values, visible, w_q.shape[-1] ** -0.5).o
    return x
