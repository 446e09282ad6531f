"""Cases: what they refuse, and what they say of themselves."""

import pytest

from mla_rocm import MlaArgumentError, MlaDecodeCase, MlaPrefillCase


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context_lengths": ()}, "context_lengths is empty"),
        ({"context_lengths": (3, -1)}, r"context_lengths\[1\] is -1"),
        ({"context_lengths": (3, 2.0)}, r"context_lengths\[1\] is 2.0"),
        ({"heads": 0}, "geometry.heads is 0"),
        ({"page_size": 32}, "page_size is 32: give one of 1, 16, 64"),
        ({"num_kv_splits": 0}, "num_kv_splits is 0"),
        ({"dtype": "float64"}, "dtype is 'float64': give one of float32, float16, bfloat16"),
        ({"table": "sorted"}, "table is 'sorted'"),
        ({"table": "shared", "context_lengths": (128,)}, "shares nothing"),
        ({"table": "shared", "context_lengths": (128, 63)}, "shares nothing"),
        ({"table": "shared", "context_lengths": (128, 0)}, "shares nothing"),
    ],
)
def test_a_decode_case_names_what_is_wrong(arguments, message):
    with pytest.raises(MlaArgumentError, match=message):
        MlaDecodeCase(**{"context_lengths": (5, 20), **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"new_lengths": ()}, "new_lengths is empty"),
        ({"new_lengths": (1, -2)}, r"new_lengths\[1\] is -2"),
        ({"prefix_lengths": (1,)}, "prefix_lengths has 1 entries for 2 sequences"),
        ({"prefix_lengths": (1, -1)}, r"prefix_lengths\[1\] is -1"),
        ({"heads": -1}, "geometry.heads is -1"),
        ({"page_size": 0}, "page_size is 0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"table": "shared"}, "shares nothing"),
    ],
)
def test_a_prefill_case_names_what_is_wrong(arguments, message):
    with pytest.raises(MlaArgumentError, match=message):
        MlaPrefillCase(**{"new_lengths": (5, 20), **arguments})


def test_cases_count_their_tokens_and_read_as_names():
    decode = MlaDecodeCase((5, 0, 140), page_size=16, num_kv_splits=4, table="contiguous")
    assert (decode.batch, decode.tokens) == (3, 145)
    assert decode.id == "decode-B3-L0..140-H12-page16-splits4-bfloat16-contiguous"
    prefill = MlaPrefillCase((512,), (512,), dtype="float16")
    assert (prefill.batch, prefill.tokens) == (1, 512)
    assert prefill.id == "prefill-B1-T512-P512-H12-page64-float16-shuffled"


def test_a_prefill_without_a_prefix_has_zero_for_every_sequence():
    assert MlaPrefillCase((5, 20)) == MlaPrefillCase((5, 20), (0, 0))
