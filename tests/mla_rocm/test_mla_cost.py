"""Pairs, FLOPs and bytes, against the worked figures of the MLA literature and of MI355X runs."""

import pytest

from mla_rocm import MlaArgumentError
from mla_rocm.cost import (
    absorption_flops,
    decode_attention_flops,
    decode_cache_bytes,
    decompression_flops,
    flops_per_pair,
    prefill_attention_flops,
    query_key_pairs,
)
from mla_rocm.geometry import MlaGeometry

K3 = MlaGeometry()
CHUNK = 16384


def test_causal_pairs_of_8192_tokens():
    assert query_key_pairs(8192) == 33_558_528


@pytest.mark.parametrize(("new", "prefix"), [(0, 0), (0, 9), (1, 0), (1, 9), (5, 3), (16, 16)])
def test_the_pair_formula_counts_the_visible_pairs(new, prefix):
    visible = sum(key <= prefix + query for query in range(new) for key in range(prefix + new))
    assert query_key_pairs(new, prefix) == visible


def test_32k_as_two_chunks_has_three_times_the_pairs_in_the_second():
    first, second = query_key_pairs(CHUNK), query_key_pairs(CHUNK, CHUNK)
    assert first == pytest.approx(1.34e8, rel=5e-3)
    assert second == pytest.approx(4.03e8, rel=5e-3)
    assert second / first == pytest.approx(3.00, abs=5e-3)
    assert first + second == query_key_pairs(2 * CHUNK), "chunking drops and repeats no pair"


def test_an_absorbed_second_chunk_costs_10_2_times_a_decompressed_first():
    first = prefill_attention_flops(K3, CHUNK, new_form="decompressed")
    second = prefill_attention_flops(K3, CHUNK, CHUNK, new_form="absorbed")
    assert first == pytest.approx(1.03e12, rel=5e-3)
    assert second == pytest.approx(1.05e13, rel=5e-3)
    assert second / first == pytest.approx(10.2, abs=0.05)


def test_the_form_of_the_prefix_alone_changes_only_the_prefix_pairs():
    mixed = prefill_attention_flops(K3, 512, 1024, new_form="decompressed", prefix_form="absorbed")
    new_part = query_key_pairs(512) * flops_per_pair(K3, "decompressed")
    assert mixed == new_part + 512 * 1024 * flops_per_pair(K3, "absorbed")


def test_an_absorbed_pair_costs_3_4_times_a_decompressed_one():
    assert flops_per_pair(K3, "decompressed") == 2 * 12 * (192 + 128)
    assert flops_per_pair(K3, "absorbed") == 2 * 12 * (576 + 512)
    assert flops_per_pair(K3, "absorbed") / flops_per_pair(K3, "decompressed") == 3.4


def test_an_unknown_form_is_refused():
    with pytest.raises(MlaArgumentError, match="'latent'"):
        flops_per_pair(K3, "latent")


def test_up_projections_cost_the_same_per_token_on_either_side():
    per_token = 2 * 12 * 512 * (128 + 128)
    assert decompression_flops(K3, 1) == absorption_flops(K3, 1) == per_token
    assert decompression_flops(K3, 1000) == 1000 * per_token


def test_a_decode_step_at_one_million_tokens_reads_28_96_gb_over_24_layers():
    per_layer = decode_cache_bytes(K3, 1_047_552)
    assert 24 * per_layer == pytest.approx(28.96e9, rel=5e-4)
    assert 24 * decode_cache_bytes(K3, 1) == 27.0 * 1024


def test_a_decode_step_does_22_7_flops_per_cache_byte():
    flops, read = decode_attention_flops(K3, 4096), decode_cache_bytes(K3, 4096)
    assert flops == 4096 * 26_112
    assert flops / read == pytest.approx(22.7, abs=0.05)
