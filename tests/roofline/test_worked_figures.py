"""The survey's worked figures, each out of the formulas and typed here alone."""

import pytest
from shared_data import shared_file

from k3bench.roofline.dense import Dense
from k3bench.roofline.flash_io import score_matrix_bytes
from k3bench.roofline.hybrid import Pattern, request_state_bytes
from k3bench.roofline.kda import Kda
from k3bench.roofline.linear import LinearState
from k3bench.roofline.mla import Mla
from k3bench.roofline.model import get_model
from k3bench.roofline.pairs import causal_pairs, top_k_pairs, window_pairs
from k3bench.roofline.shared_cache import SharedCache
from k3bench.roofline.sparse import Dsa, Nsa, SparseTime
from k3bench.roofline.step import Step, chunks_of
from k3bench.roofline.windowed import Windowed

K3 = get_model("kimi-k3")
TP = 8
MILLION = 1_047_552
MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture
def mla():
    return K3.form("full_attention").shard(TP)


@pytest.fixture
def kda():
    return K3.form("kda").shard(TP)


def test_an_mla_cache_row_has_1152_bytes_and_27_kib_over_the_full_layers(mla):
    assert mla.cache_bytes_per_token == 1152
    rows = K3.attention_pattern.count("full_attention") * mla.cache_bytes_per_token
    assert rows / 1024 == 27.0


def test_a_decode_step_at_a_million_tokens_reads_28_96_gb_of_cache(mla):
    read = mla.attend(Step.decode(MILLION)).read["cache"]
    assert K3.attention_pattern.count("full_attention") * read / 1e9 == pytest.approx(
        28.96, abs=5e-3
    )


def test_the_kda_states_are_54_3_mb_in_and_as_much_out(kda):
    cost = kda.attend(Step.decode(4096))
    layers = K3.attention_pattern.count("kda")
    assert kda.heads == 12
    assert layers * cost.read["state"] / 1e6 == pytest.approx(54.3, abs=0.05)
    assert cost.written["state"] == cost.read["state"] == kda.state_bytes()


def test_a_gqa_decode_over_8192_tokens():
    gqa = Dense(heads=32, kv_heads=8)
    step = Step.decode(8192)
    shared, unshared = gqa.attend(step), gqa.attend(step, shared_loads=False)
    assert gqa.cache_bytes_per_token == 4096
    assert shared.flops == unshared.flops == 134_217_728
    assert shared.read["cache"] == 32 * MIB
    assert shared.intensity_over("cache") == 4.0
    assert unshared.intensity_over("cache") == 1.0
    assert unshared.intensity == pytest.approx(1.0, rel=1e-3)


def test_pairs_of_causal_and_windowed_attention_over_8192():
    full, windowed = causal_pairs(8192), window_pairs(8192, 1024)
    assert (full, windowed) == (33_558_528, 7_864_832)
    assert round(100 * windowed / full, 1) == 23.4
    form = Windowed(heads=1, kv_heads=1, window=1024)
    assert form.attend(Step.prefill(8192)).scores == windowed


@pytest.mark.parametrize(("new", "prefix"), [(1, 0), (16384, 16384), (7, 1000)])
def test_a_chunk_after_a_prefix_has_c_p_plus_half_c_c_plus_1(new, prefix):
    assert causal_pairs(new, prefix) == new * prefix + new * (new + 1) / 2


def test_32k_in_two_chunks_one_decompressed_and_one_absorbed(mla):
    first, second = chunks_of(32768, 16384)
    pairs = [causal_pairs(step.new_tokens, step.prefix_tokens) for step in (first, second)]
    assert pairs == pytest.approx([1.342e8, 4.027e8], rel=2e-4)
    assert round(pairs[1] / pairs[0], 2) == 3.00
    flops = [
        sum(
            gemm.flops for gemm in mla.attend(step, form).gemms if gemm.name in ("scores", "values")
        )
        for step, form in ((first, "decompressed"), (second, "absorbed"))
    ]
    assert flops == pytest.approx([1.031e12, 1.051e13], rel=5e-4)
    assert round(flops[1] / flops[0], 1) == 10.2
    per_pair = mla.flops_per_pair("absorbed") / mla.flops_per_pair("decompressed")
    assert round(per_pair, 2) == 3.40


def test_the_second_chunk_takes_12_8_times_the_time_for_10_2_times_the_work(mla):
    lines = shared_file("published/k3_mi355x/chunk-split-analysis.txt").read_text().splitlines()
    [times] = [line.split()[3:5] for line in lines if line.startswith("ms per layer")]
    slower = float(times[1]) / float(times[0])
    assert round(slower, 1) == 12.8
    work = 3 * mla.flops_per_pair("absorbed") / mla.flops_per_pair("decompressed")
    assert work / slower == pytest.approx(0.80, abs=5e-3)  # of the first chunk's FLOP/s


def test_scores_of_8192_by_8192_and_32_heads_take_4_gib_and_so_do_probabilities():
    assert score_matrix_bytes(8192, 8192, 32) == 4 * GIB


def test_a_hybrid_of_8_full_layers_in_32_keeps_256_mib_where_a_full_model_keeps_1_gib():
    full, state = Dense(heads=32, kv_heads=8), LinearState(heads=32)
    hybrid = Pattern.of((8, ("linear", "linear", "linear", "full")))
    kept = request_state_bytes(hybrid, {"full": full, "linear": state}, 8192)
    assert kept["full"] == 256 * MIB
    assert hybrid.count("linear") == 24
    assert kept["linear"] == 24 * state.state_bytes()
    assert request_state_bytes(Pattern.of((32, ("full",))), {"full": full}, 8192) == {"full": GIB}


def test_a_state_of_128_by_128_in_fp32_takes_64_kib():
    assert LinearState(heads=1).state_bytes() == Kda(heads=1).state_bytes() == 64 * 1024


@pytest.mark.parametrize("layers", [1, 16])
def test_yoco_keeps_one_cache_for_all_its_layers(layers):
    shared = SharedCache(Dense(heads=32, kv_heads=8), layers)
    assert shared.separate_state_bytes(8192) == layers * 8192 * 4096
    assert shared.state_bytes(8192) == 8192 * 4096


def test_sparse_attention_must_beat_dense_with_all_of_its_stages():
    sparse = SparseTime(index_s=0.2e-3, select_s=0.1e-3, attend_s=0.8e-3)
    assert sparse.seconds == pytest.approx(1.1e-3)
    assert not sparse.beats(1.0e-3)
    assert sparse.beats(1.2e-3)


def test_selecting_2048_of_8192_leaves_a_quarter_of_the_main_pairs_and_all_of_the_indexers():
    step = Step.decode(8192)
    dsa = Dsa(Mla())
    assert dsa.main_pairs(step) / causal_pairs(1, 8191) == 1 / 4
    assert dsa.index_pairs(step) == 8192
    assert dsa.attend(step).scores == dsa.mla.heads * 2048
    nsa = Nsa(heads=16, kv_heads=1, select_block=64, selected=32)
    assert nsa.branch_pairs(step)["selected"] / 8192 == 1 / 4
    assert top_k_pairs(8192, 8192) == causal_pairs(8192)
