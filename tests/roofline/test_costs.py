"""Cost formulas against counts by hand, against each other, and against the kernel rooms' own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from roofline.examples import quick

import mla_rocm.cost
from k3bench.roofline.cost import Cost, Gemm
from k3bench.roofline.dense import Dense
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.flash_io import FlashIo
from k3bench.roofline.forms import FORMS, attention_alone, form_layer
from k3bench.roofline.hardware import get_hardware
from k3bench.roofline.kda import Kda
from k3bench.roofline.linear import LinearState, lightning, retnet
from k3bench.roofline.mla import Mla
from k3bench.roofline.mlp import Mlp, Moe
from k3bench.roofline.paging import PagedCache
from k3bench.roofline.ring import Ring
from k3bench.roofline.shared_cache import SharedCache
from k3bench.roofline.sparse import Dsa
from k3bench.roofline.step import Step, chunks_of
from k3bench.roofline.windowed import Windowed
from mla_rocm.geometry import MlaGeometry
from mla_rocm.kda_case import KdaDecodeCase
from mla_rocm.work import kda_decode_work

V6E, ASCEND = get_hardware("tpu-v6e"), get_hardware("ascend-910c")
steps = st.builds(Step, st.integers(1, 300), st.integers(0, 300), st.integers(1, 3))


@quick
@given(steps, st.sampled_from(["absorbed", "decompressed"]))
def test_mla_has_the_flops_that_the_kernel_room_counts(step, form):
    geometry = MlaGeometry()
    mla = Mla()
    cost = mla.attend(step, form)
    attention = mla_rocm.cost.prefill_attention_flops(
        geometry, step.new_tokens, step.prefix_tokens, new_form=form
    )
    if form == "absorbed":
        around = mla_rocm.cost.absorption_flops(geometry, step.tokens)
    else:
        around = mla_rocm.cost.decompression_flops(geometry, step.batch * step.context)
    assert cost.flops == step.batch * attention + around
    assert cost.read["cache"] == step.batch * mla_rocm.cost.decode_cache_bytes(
        geometry, step.context
    )


def test_kda_has_the_flops_and_state_bytes_that_the_kernel_room_counts():
    case = KdaDecodeCase(batch=3)
    ours = Kda(heads=case.heads).attend(Step.decode(1, case.batch))
    theirs = kda_decode_work(case)
    assert ours.flops == theirs.flops
    assert ours.read["state"] + ours.written["state"] == 2 * case.batch * Kda().state_bytes()


def test_the_per_step_gemm_table_of_mla_has_the_sizes_of_the_maths():
    step = Step.decode(4096, batch=2)
    mla = Mla(gated=True)
    cost = mla.project(step, hidden=7168) + mla.attend(step, "absorbed")
    assert {gemm.name: (gemm.M, gemm.N, gemm.K, gemm.count) for gemm in cost.gemms} == {
        "q_a": (2, 1536, 7168, 1),
        "q_b": (2, 12 * 192, 1536, 1),
        "kv_a": (2, 576, 7168, 1),
        "gate": (2, 12 * 128, 7168, 1),
        "o": (2, 7168, 12 * 128, 1),
        "absorb_q": (2, 512, 128, 12),
        "scores": (1, 4096, 576, 24),
        "values": (1, 512, 4096, 24),
        "expand_o": (2, 128, 512, 12),
    }


def test_mla_is_absorbed_for_a_token_and_decompressed_for_a_chunk():
    mla = Mla()
    assert mla.choose_form(Step.decode(100_000)) == "absorbed"
    assert mla.choose_form(Step.chunk(16384, 16384)) == "decompressed"
    # Decompressing a key costs 2 x 512 x 256 a head; a pair saves 2 x (1088 - 320): 170 queries.
    assert mla.choose_form(Step.chunk(128, 100_000)) == "absorbed"
    assert mla.choose_form(Step.chunk(256, 100_000)) == "decompressed"


def test_a_chunk_may_attend_its_prefix_in_another_form():
    mla, step = Mla(), Step.chunk(16384, 16384)
    mixed = mla.attend(step, "decompressed", prefix_form="absorbed")
    whole = mla.attend(step, "decompressed")
    assert mixed.scores == whole.scores
    assert mixed.read["cache"] == whole.read["cache"]
    assert mixed.flops > whole.flops


@quick
@given(st.integers(1, 400), st.integers(1, 100), st.sampled_from([1, 4, 8]))
def test_a_prompt_in_chunks_scores_the_pairs_of_a_whole_one(tokens, chunk, kv_heads):
    form = Dense(heads=8, kv_heads=kv_heads)
    whole = form.attend(Step.prefill(tokens))
    parts = [form.attend(step) for step in chunks_of(tokens, chunk)]
    assert sum(part.scores for part in parts) == whole.scores
    assert sum(part.flops for part in parts) == whole.flops
    assert sum(part.written["cache"] for part in parts) == whole.written["cache"]
    assert sum(part.read["cache"] for part in parts) >= whole.read["cache"]


def test_mqa_gqa_and_mha_differ_in_bytes_alone():
    step = Step.decode(4096)
    forms = [Dense(heads=32, kv_heads=groups) for groups in (1, 8, 32)]
    assert len({form.attend(step).flops for form in forms}) == 1
    read = [form.attend(step).read["cache"] for form in forms]
    assert read == [read[0], 8 * read[0], 32 * read[0]]


def test_a_window_stops_growing_and_drops_what_it_no_longer_sees():
    form = Windowed(heads=8, kv_heads=8, window=100, sinks=4)
    assert form.state_bytes(50) == 50 * form.cache_bytes_per_token
    assert form.state_bytes(10_000) == 104 * form.cache_bytes_per_token
    assert form.attend(Step.decode(10_000)).read["cache"] == form.state_bytes(10_000)


@quick
@given(st.integers(1, 3000), st.integers(1, 2))
def test_a_linear_form_costs_the_same_at_any_context(context, batch):
    for form in (LinearState(heads=4), retnet(4), lightning(4), Kda(heads=4)):
        here, there = (form.attend(Step.decode(c, batch)) for c in (context, 2 * context))
        assert (here.flops, here.hbm_bytes) == (there.flops, there.hbm_bytes)
        assert form.state_bytes(context) == form.state_bytes(1)


def test_chunks_make_linear_attention_linear():
    form = LinearState(heads=2, chunk=64)
    once, twice = (form.attend(Step.prefill(tokens)).flops for tokens in (4096, 8192))
    assert twice == 2 * once
    every_pair = form.attend(Step.prefill(4096), "parallel").flops
    assert every_pair > 4 * once
    # A token: 2 (K + V) a pair over half a chunk, and 4 K V for the state.
    pairs, state = 64 * 65 // 2, 4 * 128 * 128 * 64
    assert once == 2 * 64 * (pairs * 2 * (128 + 128) + state)


def test_a_kda_chunk_is_its_seven_products():
    form, length = Kda(heads=1, chunk=64), 64
    K = V = 128
    lower, strict = length * (length + 1) // 2, length * (length - 1) // 2
    by_hand = 2 * (lower * (K + V) + strict * (K + K + V) + 3 * length * K * V)
    assert form.attend(Step.prefill(length)).matrix_flops == by_hand
    assert form.attend(Step.prefill(2 * length)).matrix_flops == 2 * by_hand


def test_a_gated_delta_rule_reads_one_decay_a_head():
    step = Step.prefill(64)
    kda, delta = (
        Kda(channel_decay=channel).attend(step).read["decay"] for channel in (True, False)
    )
    assert kda == 128 * delta


def test_dsa_with_a_short_context_still_pays_its_indexer():
    step = Step.decode(1024)
    dsa = Dsa(Mla())
    dense = dsa.mla.attend(step, "absorbed")
    assert dsa.attend_chosen(step) == dense
    assert dsa.attend(step).flops > dense.flops
    long = Step.decode(131_072)
    assert dsa.attend(long).hbm_bytes < dsa.mla.attend(long).hbm_bytes / 4


def test_yocos_prefill_runs_its_upper_half_for_one_token():
    shared = SharedCache(Dense(heads=8, kv_heads=8), layers=4)
    step = Step.prefill(1000)
    early, late = shared.attend(step), shared.attend(step, early_exit=False)
    assert early.scores == 4 * 8 * 1000
    assert late.scores == 4 * 8 * 1000 * 1001 // 2
    assert early.written["cache"] == late.written["cache"] == shared.state_bytes(1000)
    assert early.read["cache"] == 4 * shared.state_bytes(1000)


def test_experts_that_tokens_reach_are_top_k_of_one_and_nearly_all_of_many():
    moe = Moe(experts=896, top_k=16, intermediate=384)
    assert moe.touched(1) == pytest.approx(16)
    assert 31 < moe.touched(2) < 32
    assert 895 < moe.touched(1000) < 896
    one = moe.cost(1, 7168)
    assert one.read["weights"] == 16 * 3 * 384 * 7168 * 2 + 896 * 7168 * 2
    assert one.matrix_flops == 2 * (16 * 3 * 384 * 7168 + 896 * 7168)
    assert Mlp(1024).cost(2, 512).matrix_flops == 2 * 2 * 3 * 1024 * 512


@pytest.mark.parametrize("elements", [40_000, 100_000])
def test_flash_attention_moves_less_with_more_on_chip_and_never_the_scores(elements):
    flash = FlashIo(queries=8192, keys=8192, head_dim=128, on_chip_elements=elements)
    larger = FlashIo(8192, 8192, 128, 4 * elements)
    assert larger.query_stationary_elements() < flash.query_stationary_elements()
    assert larger.key_stationary_elements() < flash.key_stationary_elements()
    assert flash.query_stationary_elements() < flash.standard_elements()
    # Theta(N^2 d^2 / M): passes of N / (M / 2 d) over 2 N d elements.
    leading = 2 * 8192 * 128 * 8192 / (elements / (2 * 128))
    assert flash.query_stationary_elements() == pytest.approx(leading, rel=0.2)


def test_flash_attention_that_fits_reads_and_writes_everything_once():
    flash = FlashIo(queries=64, keys=256, head_dim=64, on_chip_elements=1 << 20)
    once = (2 * 64 + 2 * 256) * 64
    assert flash.query_stationary_elements() == flash.key_stationary_elements() == once
    assert flash.standard_elements() == once + 4 * 64 * 256
    with pytest.raises(RooflineError, match="give at least 256"):
        FlashIo(64, 64, 64, 100)


def test_a_ring_takes_the_longer_of_attention_and_sending_in_every_round():
    attention, step = Dense(heads=96, kv_heads=8), Step.prefill(65_536)
    for layout in ("contiguous", "striped"):
        ring = Ring(attention, 8, layout)
        rounds = ring.rounds(step, V6E)
        assert len(rounds) == 8
        assert rounds[-1].transfer_s == 0.0
        sent = step.new_tokens // 8 * attention.cache_bytes_per_token / V6E.link.value
        assert all(turn.transfer_s == sent for turn in rounds[:-1])
        assert ring.seconds(step, V6E) == sum(
            max(turn.compute_s, turn.transfer_s) for turn in rounds
        )
    striped, contiguous = (
        sum(turn.pairs for turn in Ring(attention, 8, layout).rounds(step, V6E))
        for layout in ("striped", "contiguous")
    )
    assert striped < 0.55 * contiguous  # half the pairs of a block, in every round
    with pytest.raises(RooflineError, match="over 8 devices"):
        Ring(attention, 8).rounds(Step.prefill(1001), V6E)


def test_a_ring_of_short_blocks_waits_for_its_links():
    attention = Dense(heads=8, kv_heads=8)
    short, long = (
        Ring(attention, 8).rounds(Step.prefill(tokens), V6E)[0] for tokens in (4096, 1 << 20)
    )
    assert short.transfer_s > short.compute_s
    assert long.compute_s > long.transfer_s


@quick
@given(st.lists(st.integers(0, 500), max_size=8), st.integers(1, 64), st.integers(1, 1200))
def test_pages_hold_all_rows_and_waste_less_than_a_page_a_sequence(lengths, page, row):
    cache = PagedCache(page, row)
    used = sum(lengths) * row
    assert 0 <= cache.waste_bytes(lengths) < max(1, len(lengths) * page * row)
    assert used + cache.waste_bytes(lengths) == cache.pages(lengths) * page * row
    assert cache.fetched_bytes(lengths) >= used
    # Never more than one cut transaction a page.
    assert cache.fetched_bytes(lengths) < used + cache.pages(lengths) * 128 + 1
    assert cache.table_bytes(lengths) == 4 * cache.pages(lengths)


def test_mla_rows_fill_transactions_of_128_bytes_and_a_page_of_one_costs_no_more():
    lengths = [4096]
    one, sixty_four = (PagedCache(page, Mla().cache_bytes_per_token) for page in (1, 64))
    assert one.fetched_bytes(lengths) == sixty_four.fetched_bytes(lengths) == 4096 * 1152
    assert PagedCache(1, 1100).fetched_bytes(lengths) == 4096 * 1152
    assert PagedCache(64, 1100).fetched_bytes(lengths) == 4096 * 1100


def test_a_bound_names_the_resource_that_sets_it():
    matrix = Cost((Gemm("square", 8192, 8192, 8192),)).bound(V6E)
    assert matrix.limited_by == "matrix"
    assert matrix.seconds == 2 * 8192**3 / 9.18e14
    assert Cost(read={"weights": 1 << 30}).bound(V6E).limited_by == "hbm"
    assert Cost(scores=1 << 30).bound(V6E).by_resource["vector"] == (4 << 30) / V6E.vector.value
    assert Cost(link_bytes=1 << 30).bound(V6E).limited_by == "link"


def test_exponentials_hold_back_a_narrow_head_on_ascends_vector_cores():
    step = Step.prefill(8192)
    narrow = Dense(heads=8, kv_heads=8, qk_dim=16, v_dim=16).attend(step).bound(ASCEND)
    wide = Dense(heads=8, kv_heads=8, qk_dim=256, v_dim=256).attend(step).bound(ASCEND)
    assert narrow.by_resource["vector"] == wide.by_resource["vector"]
    assert narrow.limited_by == "vector"
    assert wide.limited_by == "matrix"


@quick
@given(steps, st.integers(0, 5))
def test_as_many_layers_cost_as_many_times(step, layers):
    one = Dense(heads=4, kv_heads=2).attend(step)
    many = one.times(layers)
    summed = sum([one] * layers, Cost())
    assert (many.flops, many.scores, many.hbm_bytes) == (
        summed.flops,
        summed.scores,
        summed.hbm_bytes,
    )


@pytest.mark.parametrize("name", FORMS)
def test_every_form_answers_in_every_phase_and_splits_over_devices(name):
    for step in (Step.decode(2048), Step.prefill(2048), Step.chunk(512, 1536)):
        whole, share = (attention_alone(form_layer(name, tp).attend(step)) for tp in (1, 8))
        assert 0 < share.flops < whole.flops
        assert 0 < share.read_bytes < whole.read_bytes
        assert share.written_bytes > 0
        assert whole.intensity > 0
    assert form_layer(name).state_bytes(4096) >= form_layer(name).state_bytes(1) > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense(heads=6, kv_heads=4), "6 query heads over 4"),
        (lambda: Dense(heads=0, kv_heads=1), "Dense.heads is 0"),
        (lambda: Dense(heads=8, kv_heads=8).shard(3), "8 query heads do not divide over 3"),
        (lambda: Kda(heads=12).shard(8), "12 heads do not divide over 8"),
        (lambda: Windowed(8, 8, sinks=-1), "sinks is -1"),
        (lambda: Mla().widths("half"), "form 'half'"),
        (lambda: LinearState(1).attend(Step.chunk(1, 1), "parallel"), "starts from no state"),
        (lambda: LinearState(1).attend(Step.prefill(2), "slow"), "way 'slow'"),
        (lambda: Step(0), "new_tokens is 0"),
        (lambda: Step.decode(0), "context is 0"),
        (lambda: Step(1, batch=0), "batch is 0"),
        (lambda: chunks_of(4, 0), "chunk is 0"),
        (lambda: form_layer("gqa", 5), "96 heads do not divide over 5"),
        (lambda: form_layer("gpa"), "form 'gpa': use one of mha"),
        (lambda: Cost().intensity_over("cache"), "nothing is read of cache"),
        (lambda: Dense(1, 1, dtype="fp12").cache_bytes_per_token, "dtype 'fp12'"),
        (lambda: Ring(Dense(1, 1), 2, "round"), "layout 'round'"),
    ],
)
def test_what_has_no_answer_is_refused_with_a_reason(make, message):
    with pytest.raises(RooflineError, match=message):
        make()
