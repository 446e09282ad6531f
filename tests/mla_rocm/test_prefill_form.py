"""Which form a prefix is attended in, where the forms cross, and the 10.2x trap in numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_rocm import MlaGeometry, MlaPrefillCase
from mla_rocm.cost import prefill_attention_flops, query_key_pairs
from mla_rocm.prefill_plan import (
    choose_prefill_form,
    least_prefix_for_absorbed,
    most_new_tokens_for_absorbed,
    prefix_flops,
    sglang_prefill_form,
)
from mla_rocm.work import prefill_work

K3 = MlaGeometry()
CHUNK = 16_384


def test_the_second_16k_chunk_is_where_the_rules_part():
    assert choose_prefill_form(CHUNK, 0) == sglang_prefill_form(0) == "decompressed"
    assert choose_prefill_form(CHUNK, CHUNK) == "chunked_decompressed"
    assert sglang_prefill_form(CHUNK) == "absorbed"


def test_the_trap_in_the_published_numbers():
    first, second = query_key_pairs(CHUNK), query_key_pairs(CHUNK, CHUNK)
    assert (f"{first:.2e}", f"{second:.2e}") == ("1.34e+08", "4.03e+08")
    chunk_1 = prefill_work(MlaPrefillCase((CHUNK,)), sglang_prefill_form(0))
    chunk_2 = prefill_work(MlaPrefillCase((CHUNK,), (CHUNK,)), sglang_prefill_form(CHUNK))
    assert f"{chunk_1.attention_flops:.2e}" == "1.03e+12"
    assert f"{chunk_2.attention_flops:.2e}" == "1.05e+13"
    assert chunk_2.attention_flops / chunk_1.attention_flops == pytest.approx(10.2, abs=0.05)


def test_our_rule_pays_three_times_the_first_chunk_and_a_third_of_sglangs_second():
    case = MlaPrefillCase((CHUNK,), (CHUNK,))
    ours = prefill_work(case, choose_prefill_form(CHUNK, CHUNK))
    first = prefill_work(MlaPrefillCase((CHUNK,)), "decompressed")
    theirs = prefill_work(case, "absorbed")
    assert ours.attention_flops / first.attention_flops == pytest.approx(3.0, abs=5e-3)
    assert theirs.attention_flops / ours.attention_flops == pytest.approx(3.4)
    # Projections do not turn it round: both halves decompressed cost 10% more, in all.
    assert theirs.flops / ours.flops == pytest.approx(3.35, abs=0.3)


@pytest.mark.parametrize(
    ("prefix", "most"), [(0, 0), (1, 0), (2, 1), (512, 127), (16_384, 168), (1_031_168, 170)]
)
def test_the_most_new_tokens_for_which_absorbed_is_cheaper(prefix, most):
    assert most_new_tokens_for_absorbed(prefix) == most


@pytest.mark.parametrize(
    ("new", "least"), [(1, 2), (16, 18), (128, 513), (170, 43_521), (171, None), (CHUNK, None)]
)
def test_the_shortest_prefix_that_is_cheaper_absorbed(new, least):
    assert least_prefix_for_absorbed(new) == least


@given(
    new=st.integers(1, 300),
    prefix=st.integers(1, 60_000),
    heads=st.sampled_from([1, 12, 96]),
)
def test_both_crossovers_are_where_the_flops_cross(new, prefix, heads):
    geometry = MlaGeometry(heads=heads)
    cheaper = prefix_flops(geometry, new, prefix, "absorbed") < prefix_flops(
        geometry, new, prefix, "decompressed"
    )
    assert (new <= most_new_tokens_for_absorbed(prefix, geometry)) == cheaper
    least = least_prefix_for_absorbed(new, geometry)
    assert (least is not None and prefix >= least) == cheaper
    chosen = choose_prefill_form(new, prefix, geometry)
    assert chosen == ("chunked_absorbed" if cheaper else "chunked_decompressed")


@given(new=st.integers(1, 400), prefix=st.integers(1, 400))
def test_the_rule_never_costs_more_than_the_other_form(new, prefix):
    case = MlaPrefillCase((new,), (prefix,))
    chosen = choose_prefill_form(new, prefix)
    work = {form: prefill_work(case, form) for form in ("chunked_absorbed", "chunked_decompressed")}
    assert work[chosen].flops == min(each.flops for each in work.values())


def test_the_attention_flops_of_the_work_are_the_cost_formulas():
    case = MlaPrefillCase((40, 7), (35, 0))
    for form, new_form, prefix_form in (
        ("decompressed", "decompressed", "decompressed"),
        ("absorbed", "absorbed", "absorbed"),
        ("chunked_absorbed", "decompressed", "absorbed"),
    ):
        assert prefill_work(case, form).attention_flops == sum(
            prefill_attention_flops(K3, new, prefix, new_form=new_form, prefix_form=prefix_form)
            for new, prefix in zip(case.new_lengths, case.prefix_lengths, strict=True)
        )
