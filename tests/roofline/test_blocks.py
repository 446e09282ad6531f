"""Whole models by block: against published times, and where layers cross."""

import dataclasses

import pytest

from k3bench.ledger.published import published_records
from k3bench.roofline.blocks import attention_layer, model_step, model_steps
from k3bench.roofline.crossover import first_context
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.hardware import get_hardware, hardware_names
from k3bench.roofline.model import get_model, model_names
from k3bench.roofline.published import distances
from k3bench.roofline.step import Step, chunks_of

K3, MI355X = get_model("kimi-k3"), get_hardware("mi355x")
TP = 8


def published(benchmark):
    """Milliseconds by context and block."""
    found = {}
    for record in published_records():
        if record["benchmark"] == benchmark and "block" in record["parameters"]:
            at = record["parameters"]
            found.setdefault(at["context"], {})[at["block"]] = 1e3 * record["median_s"]
    return found


DECODE = published("published.k3_decode.composition")
PREFILL = published("published.k3_prefill.composition")


def test_the_published_tables_are_there():
    assert sorted(DECODE) == [4096, 32768, 65536, 524288, 1047552]
    assert sorted(PREFILL) == [1024, 4096, 8192, 32768]


@pytest.mark.parametrize("context", DECODE)
def test_every_blocks_bound_lies_below_its_published_time(context):
    rows = distances(model_step(K3, Step.decode(context), tp=TP), MI355X, DECODE[context])
    names = [row.block for row in rows]
    assert names == [
        "kda", "full_attention", "moe", "attention_residual", "other", "device_total",
    ]  # fmt: skip
    for row in rows:
        assert 0 < row.bound_ms < row.published_ms, row
        assert row.ratio == row.published_ms / row.bound_ms


@pytest.mark.parametrize("context", PREFILL)
def test_bounds_of_one_layer_and_of_the_whole_lie_below_the_published_prefill(context):
    absorbed = "absorbed" if context == 32768 else None
    steps = chunks_of(context, 16384)
    for name, shown in (("kda", "kda_layer"), ("full_attention", "full_attention_layer")):
        bound = sum(
            attention_layer(K3, name, step, TP, absorbed).bound(MI355X).seconds for step in steps
        )
        assert 1e3 * bound < PREFILL[context][shown]
    whole = model_steps(K3, steps, tp=TP, prefix_form=absorbed).total_bound_us(MI355X) / 1e3
    assert whole < PREFILL[context]["device_total"]


def seconds(name, step):
    return attention_layer(K3, name, step, TP).bound(MI355X).seconds


def crossing(make):
    return first_context(
        lambda tokens: seconds("kda", make(tokens)) < seconds("full_attention", make(tokens)),
        1 << 20,
    )


def test_in_prefill_the_bounds_cross_where_the_published_layers_do():
    found = crossing(Step.prefill)
    assert found is not None
    assert 0.9 * 8192 < found < 1.1 * 8192
    # Published: still a little dearer at 8K, far cheaper at 32K.
    assert PREFILL[8192]["kda_layer"] > PREFILL[8192]["full_attention_layer"]
    assert PREFILL[32768]["kda_layer"] < PREFILL[32768]["full_attention_layer"]


def test_in_decode_the_bounds_cross_later_than_published_for_weights_and_not_for_caches():
    found = crossing(Step.decode)
    assert found is not None
    assert found > 4096
    # There, what KDA reads more of weights and states is what MLA reads of cache.
    kda, full = (
        attention_layer(K3, name, Step.decode(found), TP) for name in ("kda", "full_attention")
    )
    more = kda.hbm_bytes - (full.hbm_bytes - full.read["cache"])
    assert more == pytest.approx(full.read["cache"], rel=1e-3)
    # The published layers have already crossed at 4K: full attention pays 11.6 times its bound
    # there (split and merge kernels), KDA 3.6 times.
    kda_row, full_row = distances(model_step(K3, Step.decode(4096), tp=TP), MI355X, DECODE[4096])[
        :2
    ]
    assert kda_row.published_ms / 69 < full_row.published_ms / 24
    assert full_row.ratio > 3 * kda_row.ratio


def test_attention_alone_crosses_where_a_cache_outgrows_a_state():
    kda, mla = (K3.form(name).shard(TP) for name in ("kda", "full_attention"))
    found = first_context(lambda context: 2 * kda.state_bytes() < mla.state_bytes(context), 1 << 20)
    assert found == 2 * kda.state_bytes() // mla.cache_bytes_per_token + 1 == 1366


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("device", hardware_names())
def test_every_model_has_bounds_on_every_device(name, device):
    cost = model_step(get_model(name), Step.decode(4096, 4), tp=4)
    hardware = get_hardware(device)
    document = cost.to_json(hardware)
    assert document["total_bound_us"] == pytest.approx(
        sum(block["bound_us"] for block in document["blocks"].values())
    )
    assert 0 < cost.overlapped_bound_us(hardware) <= document["total_bound_us"] * (1 + 1e-12)
    for block in document["blocks"].values():
        assert set(block) == {"flops", "bytes", "bound_us", "layers"}
        assert block["bound_us"] * (1 + 1e-12) >= 1e6 * block["bytes"] / hardware.hbm.value


def test_ranks_share_weights_and_copy_latents():
    one, eight = (model_step(K3, Step.decode(4096), tp=tp) for tp in (1, 8))
    head = [cost.named("other").parts["head"].hbm_bytes for cost in (one, eight)]
    assert head[0] == 8 * head[1]
    cache = [cost.named("full_attention").cost.read["cache"] for cost in (one, eight)]
    assert cache[0] == cache[1]


def test_collectives_are_a_block_of_their_own_and_cost_links():
    step = Step.decode(4096, 16)
    without, with_them = (model_step(K3, step, tp=8, collectives=on) for on in (False, True))
    added = with_them.named("collectives")
    assert [block.name for block in without.blocks] == [b.name for b in with_them.blocks[:-1]]
    assert added.bound(MI355X).limited_by == "link"
    assert added.cost.link_bytes == 2 * 93 * (2 * 7 * 16 * 7168 * 2 // 8)
    assert [b.name for b in model_step(K3, step, collectives=True).blocks][-1] == "other"


def test_a_batch_reads_weights_once_and_caches_each():
    one, many = (model_step(get_model("llama-3.1-70b"), Step.decode(4096, b)) for b in (1, 32))
    weights = [cost.named("full_attention").cost.read["weights"] for cost in (one, many)]
    cache = [cost.named("full_attention").cost.read["cache"] for cost in (one, many)]
    assert weights[0] == weights[1]
    assert cache[1] == 32 * cache[0]


def test_a_model_without_a_matrix_peak_for_its_dtype_is_bounded_by_bf16_and_says_so():
    moe = model_step(K3, Step.decode(1), tp=8).named("moe")
    assert moe.dtype_on(MI355X) == "fp8"
    assert moe.dtype_on(get_hardware("cpu-epyc-9654")) == "bf16"


def test_chunks_sum_what_they_cost():
    steps = chunks_of(3000, 1024)
    whole = model_steps(K3, steps, tp=8)
    single = [model_step(K3, step, tp=8) for step in steps]
    assert [block.name for block in whole.blocks] == [block.name for block in single[0].blocks]
    for number, block in enumerate(whole.blocks):
        assert block.cost.flops == sum(cost.blocks[number].cost.flops for cost in single)
        assert block.layers == single[0].blocks[number].layers
    with pytest.raises(RooflineError, match="no steps"):
        model_steps(K3, [])


def test_a_residual_mix_reads_no_more_than_every_source_every_time():
    plain = dataclasses.replace(K3, residual_layers=None)
    assert "attention_residual" not in [
        block.name for block in model_step(plain, Step.decode(1), tp=8).blocks
    ]
    mixes = model_step(K3, Step.decode(1), tp=8).named("attention_residual").cost
    sources = 2 * sum(2 + layer // 12 for layer in range(93)) + 2 + 92 // 12
    assert mixes.scores == sources
    assert mixes.vector_flops == 6 * sources * 7168
    assert mixes.read["hidden"] < sources * 7168 * 2


def test_a_crossover_is_the_first_context_and_refuses_what_is_not_one():
    assert first_context(lambda n: n >= 1000, 4096) == 1000
    assert first_context(lambda n: True, 10) == 1
    assert first_context(lambda n: False, 10) is None
    with pytest.raises(RooflineError, match="ask for the other way round"):
        first_context(lambda n: n < 5, 10)
    with pytest.raises(RooflineError, match="contexts 1 to 0"):
        first_context(lambda n: True, 0)


def test_unknown_blocks_and_uneven_splits_are_refused():
    with pytest.raises(RooflineError, match="block 'mlp': use one of kda"):
        model_step(K3, Step.decode(1)).named("mlp")
    with pytest.raises(RooflineError, match="96 heads do not divide over 7"):
        model_step(K3, Step.decode(1), tp=7)
    with pytest.raises(RooflineError, match="tp is 0"):
        model_step(K3, Step.decode(1), tp=0)
