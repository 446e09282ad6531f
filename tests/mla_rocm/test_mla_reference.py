"""The oracles against plain float64 arithmetic, one score at a time, on sizes small enough."""

import math

import pytest
import torch

from mla_rocm import (
    MlaArgumentError,
    MlaDecodeInputs,
    MlaGeometry,
    MlaPrefillInputs,
    reference_decode,
    reference_prefill,
)

SMALL = MlaGeometry(heads=2, latent=4, rope=2, nope=3, v_head_dim=5)
BLOCK_TABLE = torch.tensor([[3, 1], [2, -9], [7777, 7777]], dtype=torch.int32)
LENGTHS = torch.tensor([20, 7, 0], dtype=torch.int32)


def _softmax_average(scores, values):
    weights = [math.exp(score) for score in scores]
    total = sum(weights)
    width = range(len(values[0]))
    average = [sum(w * v[i] for w, v in zip(weights, values, strict=True)) / total for i in width]
    return average, math.log(total)


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def _cached(cache, sequence, length):
    return [
        cache[BLOCK_TABLE[sequence, position // 16], position % 16].tolist()
        for position in range(length)
    ]


def test_decode_is_the_softmax_written_out():
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(4, 16, 6, generator=generator, dtype=torch.float32)
    q = torch.randn(3, 2, 6, generator=generator, dtype=torch.float32)
    outputs = reference_decode(MlaDecodeInputs(SMALL, q, cache, BLOCK_TABLE, LENGTHS))
    for sequence, length in enumerate(LENGTHS.tolist()):
        rows = _cached(cache, sequence, length)
        for head in range(2):
            if length == 0:
                assert outputs.o[sequence, head].tolist() == [0.0] * 4
                assert outputs.lse[sequence, head] == -math.inf
                continue
            scores = [_dot(q[sequence, head].tolist(), row) * 5**-0.5 for row in rows]
            o, lse = _softmax_average(scores, [row[:4] for row in rows])
            assert outputs.o[sequence, head].tolist() == pytest.approx(o, abs=1e-5)
            assert outputs.lse[sequence, head].item() == pytest.approx(lse, abs=1e-5)


def test_prefill_is_the_causal_softmax_written_out():
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float32)

    cache, q, latent_kv = normal(4, 16, 6), normal(6, 2, 5), normal(6, 6)
    w_uk, w_uv = normal(2, 3, 4), normal(2, 4, 5)
    cu_seqlens = [0, 4, 4, 6]
    outputs = reference_prefill(
        MlaPrefillInputs(
            SMALL,
            q,
            latent_kv,
            w_uk,
            w_uv,
            torch.tensor(cu_seqlens, dtype=torch.int32),
            cache,
            BLOCK_TABLE,
            LENGTHS,
        )
    )
    for sequence, prefix in enumerate(LENGTHS.tolist()):
        begin, end = cu_seqlens[sequence], cu_seqlens[sequence + 1]
        rows = _cached(cache, sequence, prefix) + latent_kv[begin:end].tolist()
        for token in range(begin, end):
            visible = rows[: prefix + token - begin + 1]
            for head in range(2):
                keys = [
                    [_dot(line, row[:4]) for line in w_uk[head].tolist()] + row[4:]
                    for row in visible
                ]
                values = [
                    [_dot(column, row[:4]) for column in w_uv[head].T.tolist()] for row in visible
                ]
                scores = [_dot(q[token, head].tolist(), key) * 5**-0.5 for key in keys]
                o, lse = _softmax_average(scores, values)
                assert outputs.o[token, head].tolist() == pytest.approx(o, abs=1e-4)
                assert outputs.lse[token, head].item() == pytest.approx(lse, abs=1e-4)


def test_a_reference_with_lowered_float32_precision_is_refused():
    inputs = MlaDecodeInputs(
        SMALL, torch.zeros(3, 2, 6), torch.zeros(4, 16, 6), BLOCK_TABLE, LENGTHS
    )
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(MlaArgumentError, match="precision is lowered"):
            reference_decode(inputs)
    finally:
        torch.set_float32_matmul_precision("highest")
