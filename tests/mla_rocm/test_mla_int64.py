"""Offsets past 2^31 elements, in buffers that are reserved but hardly touched.

Address space costs nothing until it is written: an 8 GB buffer of which a page is used takes a
page. What int32 arithmetic would address lies before or elsewhere in the buffer, and is NaN or
another sequence's.
"""

import pytest
import torch
from mla_devices import HALF, INTERPRETED, on_devices

from mla_rocm import (
    DECODE_IMPLEMENTATIONS,
    MlaDecodeCase,
    MlaDecodeInputs,
    MlaGeometry,
    make_decode_inputs,
    max_abs_error,
    reference_decode,
    tolerance_for,
)
from mla_rocm.decode_triton import bind_decode
from mla_rocm.geometry import needs_int64_offsets

CASE = MlaDecodeCase((5, 20, 70), heads=2, page_size=64, dtype=HALF)
HERE = [found for found in on_devices(DECODE_IMPLEMENTATIONS, CASE) if found[1] == "cpu"]


def _reserved(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    try:
        return torch.empty(shape, dtype=dtype)
    except RuntimeError as error:
        pytest.skip(f"cannot reserve the address space: {error}")


@pytest.mark.parametrize(("name", "device"), HERE)
def test_a_cache_row_past_2_31_elements_is_read_where_it_lies(name, device):
    small = make_decode_inputs(CASE, device)
    pages, page_size, width = small.kv_cache.shape
    # As many pages as make the last ones' elements need 33 bits.
    count = 2**31 // (page_size * width) + 2 * pages
    cache = _reserved(count, page_size, width, dtype=small.kv_cache.dtype)
    assert needs_int64_offsets(cache.shape)
    first = count - pages
    cache[first:] = small.kv_cache
    # Where an offset taken modulo 2^32 or 2^31 would land.
    cache[: 2 * pages] = float("nan")
    inputs = MlaDecodeInputs(
        small.geometry, small.q, cache, small.block_table + first, small.seq_lens
    )
    assert int(inputs.block_table.min()) * page_size * width > 2**31
    outputs = DECODE_IMPLEMENTATIONS[name].bind(inputs).fn()
    error = max_abs_error(outputs, reference_decode(small))
    assert error <= tolerance_for(CASE.dtype).max_abs_error


@pytest.mark.skipif(not INTERPRETED, reason="about our Triton kernels, in the interpreter")
def test_partial_results_past_2_31_elements_are_written_and_merged_where_they_lie():
    case = MlaDecodeCase((5, 20, 0, 40, 33, 5, 21, 7, 70), heads=1, dtype="float32")
    inputs = make_decode_inputs(case)
    # B x H x splits x D: the ninth sequence's partial results begin past 2^31.
    splits = 2**31 // (8 * case.geometry.latent) + 1
    assert needs_int64_offsets((9, 1, splits, case.geometry.latent))
    _reserved(9, 1, splits, case.geometry.latent, dtype=torch.float32)
    asked = MlaDecodeInputs(
        MlaGeometry(heads=1), inputs.q, inputs.kv_cache, inputs.block_table, inputs.seq_lens, splits
    )
    outputs = bind_decode(asked).fn()
    error = max_abs_error(outputs, reference_decode(inputs))
    assert error <= tolerance_for(case.dtype).max_abs_error
