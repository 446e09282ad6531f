"""Model definitions: their layers, and weights that add up to the sizes in their names."""

import pytest

from k3bench.roofline.errors import RooflineError
from k3bench.roofline.hybrid import Pattern, request_state_bytes
from k3bench.roofline.kda import Kda
from k3bench.roofline.model import get_model, model_names
from k3bench.roofline.parameters import count_parameters, rank_memory

# (total, met by a token) in 10^9, as the models' cards state them.
CARDS = {
    "deepseek-v2": (236, 21),
    "deepseek-v3.2": (671, 37),
    "glm-5": (744, 40),
    "kimi-k3": (2780, 104.2),
    "kimi-linear-48b": (48, 3),
    "llama-3.1-70b": (70.6, 70.6),
    "minimax-01": (456, 45.9),
}


@pytest.mark.parametrize("name", model_names())
def test_weights_add_up_to_what_the_card_says(name):
    counted = count_parameters(get_model(name))
    total, active = CARDS[name]
    assert counted.total / 1e9 == pytest.approx(total, rel=0.025)
    # Cards differ in whether embedding and head count: 5% of the small models' active weights.
    assert counted.active / 1e9 == pytest.approx(active, rel=0.05)


def test_k3_has_69_kda_and_24_full_layers_where_they_were_published():
    model = get_model("kimi-k3")
    assert model.layers == 93
    assert model.attention_pattern.count("kda") == 69
    assert model.attention_pattern.numbers("full_attention") == (*range(4, 93, 4), 93)
    assert model.mlp_pattern.numbers("dense_mlp") == (1,)
    assert model.mlp_pattern.count("moe") == 92


@pytest.mark.parametrize(
    ("name", "form", "numbers"),
    [
        ("kimi-linear-48b", "full_attention", (4, 8, 12, 16, 20, 24, 27)),
        ("minimax-01", "full_attention", tuple(range(8, 81, 8))),
    ],
)
def test_full_attention_layers_stand_where_the_config_says(name, form, numbers):
    assert get_model(name).attention_pattern.numbers(form) == numbers


def test_a_k3_request_keeps_a_constant_state_and_a_growing_cache():
    model = get_model("kimi-k3")
    short, long = (
        request_state_bytes(model.attention_pattern, model.attention, context)
        for context in (4096, 8192)
    )
    assert short["kda"] == long["kda"]
    assert 2 * short["full_attention"] == long["full_attention"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('form = "gqa"', 'form = "gpa"', "form 'gpa': use gqa"),
        ("kv_heads = 8", "kv_heads = 7", "64 query heads over 7 key/value heads"),
        ("repeat = 80", "repeat = 79", "79 layers of attention and 80 of mlp"),
        ('layers = ["full_attention"]', 'layers = ["half"]', "attention_pattern names half"),
        ("head_dim = 128", "head_dim = 0", "head_dim is 0: give an integer of 1 or more"),
        ("vocab = 128256", "vocab = 128256\nweight_bits = -1", "weight_bits is -1"),
        ("hidden = 8192", "hidden = 8192\nhiden = 1", "unknown key hiden"),
    ],
)
def test_a_definition_that_is_wrong_says_where(tmp_path, old, new, message):
    from importlib import resources

    text = resources.files("k3bench.roofline").joinpath("models/llama-3.1-70b.toml").read_text()
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RooflineError, match=message):
        get_model(str(path))


def test_an_unknown_form_or_an_empty_pattern_is_refused():
    with pytest.raises(RooflineError, match="no attention 'full': use kda, full_attention"):
        get_model("kimi-k3").form("full")
    with pytest.raises(RooflineError, match="no layers"):
        Pattern.of()
    with pytest.raises(RooflineError, match="the pattern names kda: give its form"):
        request_state_bytes(Pattern(("kda",)), {}, 1)


@pytest.mark.parametrize(("name", "each"), [("llama-3.1-70b", 2), ("deepseek-v3.2", 1)])
def test_a_ranks_weights_are_the_models_at_their_width(name, each):
    model = get_model(name)
    whole = rank_memory(model, 1, context=4096, batch=1)
    assert whole.weights == pytest.approx(each * count_parameters(model).total, rel=1e-3)
    states = request_state_bytes(model.attention_pattern, model.attention, 4096)
    assert whole.states == sum(states.values())
    assert rank_memory(model, 1, context=4096, batch=7).states == 7 * whole.states


def test_a_split_model_keeps_an_eighth_of_its_weights_and_whole_latents():
    model = get_model("deepseek-v3.2")
    whole, rank = (rank_memory(model, tp, context=4096, batch=1) for tp in (1, 8))
    assert whole.weights / 8 < rank.weights < whole.weights / 7
    assert rank.states == whole.states


def test_a_kda_layer_keeps_its_state_and_its_convolutions():
    model = get_model("kimi-linear-48b")
    rank = rank_memory(model, 1, context=1, batch=1)
    form, layers = model.form("kda"), model.attention_pattern.count("kda")
    full = model.attention_pattern.count("full_attention")
    assert isinstance(form, Kda)
    kda = layers * (form.state_bytes() + form.conv_state_bytes)
    assert rank.states == kda + full * 1152
