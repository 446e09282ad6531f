"""Tolerances: what distance means, and that the faults of real kernels lie beyond it."""

import dataclasses
import math

import pytest
import torch

from mla_rocm import (
    TOLERANCES,
    MlaArgumentError,
    MlaDecodeCase,
    MlaGeometry,
    MlaPrefillCase,
    Outputs,
    make_decode_inputs,
    make_prefill_inputs,
    max_abs_error,
    reference_decode,
    reference_prefill,
    tolerance_for,
)
from mla_rocm.inputs import MlaDecodeInputs

INF, NAN = math.inf, math.nan


def _outputs(o, lse):
    return Outputs(torch.tensor(o), torch.tensor(lse))


@pytest.mark.parametrize(
    ("o", "lse", "error"),
    [
        ([1.0, 2.0], [0.0, -INF], 0.0),
        ([1.0, 2.5], [0.0, -INF], 0.5),
        ([1.0, 2.0], [0.25, -INF], 0.25),
        ([1.0, NAN], [0.0, -INF], INF),
        ([1.0, INF], [0.0, -INF], INF),
        ([1.0, 2.0], [0.0, NAN], INF),
        ([1.0, 2.0], [0.0, 0.0], INF),
        ([1.0, 2.0], [-INF, -INF], INF),
        ([1.0, 2.0], [0.0, INF], INF),
    ],
)
def test_nan_is_infinitely_wrong_and_minus_infinity_equals_only_itself(o, lse, error):
    assert max_abs_error(_outputs(o, lse), _outputs([1.0, 2.0], [0.0, -INF])) == error


def test_outputs_of_another_shape_are_refused():
    with pytest.raises(MlaArgumentError, match=r"o has shape \(1,\)"):
        max_abs_error(_outputs([1.0], [0.0]), _outputs([1.0, 2.0], [0.0]))


def test_no_tokens_have_no_error():
    empty = Outputs(torch.zeros(0, 12, 128), torch.zeros(0, 12))
    assert max_abs_error(empty, empty) == 0.0


def test_every_dtype_has_a_tolerance_with_a_reason_and_others_have_none():
    assert set(TOLERANCES) == {"float32", "float16", "bfloat16"}
    assert all(tolerance.reason for tolerance in TOLERANCES.values())
    with pytest.raises(MlaArgumentError, match="float64"):
        tolerance_for("float64")


def _wrong_scale(inputs: MlaDecodeInputs):
    # nope 512 makes the scale 576^-0.5 and changes nothing else in decode.
    return dataclasses.replace(inputs, geometry=MlaGeometry(heads=12, nope=512))


def _no_rotary_part(inputs: MlaDecodeInputs):
    cache = inputs.kv_cache.clone()
    cache[..., 512:] = 0
    return dataclasses.replace(inputs, kv_cache=cache)


def _neighbours_pages(inputs: MlaDecodeInputs):
    return dataclasses.replace(inputs, block_table=inputs.block_table.roll(1, 0))


def _two_pages_swapped_for_one(inputs: MlaDecodeInputs):
    table = inputs.block_table.clone()
    table[:, 1] = table[:, 0]
    return dataclasses.replace(inputs, block_table=table)


def _last_token_lost(inputs: MlaDecodeInputs):
    return dataclasses.replace(inputs, seq_lens=inputs.seq_lens - 1)


def _last_tile_lost(inputs: MlaDecodeInputs):
    return dataclasses.replace(inputs, seq_lens=inputs.seq_lens - 32)


FAULTS = (
    _wrong_scale,
    _no_rotary_part,
    _neighbours_pages,
    _two_pages_swapped_for_one,
    _last_token_lost,
    _last_tile_lost,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_decode_fault_lies_beyond_the_tolerance(fault, dtype):
    inputs = make_decode_inputs(MlaDecodeCase((140, 200, 96), page_size=16, dtype=dtype))
    right, wrong = reference_decode(inputs), reference_decode(fault(inputs))
    assert max_abs_error(wrong, right) > 2 * tolerance_for(dtype).max_abs_error


@pytest.mark.parametrize("context", [4096, 32768])
def test_a_lost_tile_lies_beyond_the_bf16_tolerance_at_long_contexts_too(context):
    inputs = make_decode_inputs(MlaDecodeCase((context,) * 2))
    scores = torch.stack(
        [
            inputs.q[b].float()
            @ inputs.kv_cache[inputs.block_table[b].long()].flatten(0, 1).float().T
            for b in range(2)
        ]
    )
    # A launch whose split lengths are off loses whole tiles; the tests see it in the heads whose
    # attention falls there: take the tile that matters to any of the 24, as a scan would.
    tile = int(scores.amax((0, 1)).argmax()) // 64
    table = inputs.block_table.clone()
    table[:, tile] = table[:, (tile + 1) % table.shape[1]]
    wrong = reference_decode(dataclasses.replace(inputs, block_table=table))
    error = max_abs_error(wrong, reference_decode(inputs))
    assert error > 2 * tolerance_for("bfloat16").max_abs_error


def test_a_prefill_that_forgets_its_prefix_or_its_order_lies_beyond_the_tolerance():
    inputs = make_prefill_inputs(MlaPrefillCase((40, 30), (64, 128)))
    right = reference_prefill(inputs)
    tolerance = tolerance_for("bfloat16").max_abs_error
    no_prefix = dataclasses.replace(inputs, prefix_lens=torch.zeros_like(inputs.prefix_lens))
    assert max_abs_error(reference_prefill(no_prefix), right) > 2 * tolerance
    one_less = dataclasses.replace(inputs, prefix_lens=inputs.prefix_lens - 1)
    assert max_abs_error(reference_prefill(one_less), right) > 2 * tolerance
    swapped = dataclasses.replace(inputs, latent_kv=inputs.latent_kv.flip(0))
    assert max_abs_error(reference_prefill(swapped), right) > 2 * tolerance
