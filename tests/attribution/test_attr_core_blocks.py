"""Block definitions: what ships is sound, what is wrong in one's own is named."""

from pathlib import Path

import pytest

from k3bench.attribution.blocks import load_blocks, parse_blocks, shipped_definitions
from k3bench.attribution.errors import DefinitionError, RequestError
from k3bench.attribution.ranges import blocks_of_dispatches
from k3bench.attribution.reader import read_trace
from tests.attribution.k3_traces import write_trace


def test_three_definitions_are_shipped_and_sound() -> None:
    assert shipped_definitions() == ("generic-decoder", "kimi-k3", "kimi-linear")
    for name in shipped_definitions():
        assert load_blocks(name).name == name


def test_kimi_k3_states_the_structure_of_its_93_layers() -> None:
    k3 = load_blocks("kimi-k3")
    layers = k3.layers()
    assert layers["kda"] + layers["full_attn"] == 93
    assert layers["moe"] + layers["dense_mlp"] == 93
    decode = {c.label: c.per_step for c in k3.counts if "decode" in c.phases}
    assert decode["KDA recurrence"] == 69
    assert decode["MLA stage 1"] == 24
    assert decode["expert GEMM 1"] == decode["expert GEMM 2"] == 92
    cache, state = k3.traffic
    assert cache.step_bytes(1) == 24 * (512 + 64) * 2
    assert state.step_bytes(10**6) == 69 * 12 * 128 * 128 * 4 * 2


def test_kimi_linear_has_27_layers() -> None:
    layers = load_blocks("kimi-linear").layers()
    assert layers["kda"] + layers["full_attn"] == 27


@pytest.mark.parametrize(
    ("module", "block"),
    [
        ("Qwen3Attention", "attention"),
        ("LlamaAttention", "attention"),
        ("DeepseekV2AttentionMLA", "attention"),
        ("RadixAttention", None),
        ("Qwen2MLP", "mlp"),
        ("DeepseekV2MoE", "moe"),
        ("Qwen3MoeSparseMoeBlock", "moe"),
        ("Qwen3DecoderLayer", "norm"),
        ("RMSNorm", None),
        ("Qwen3ForCausalLM", None),
    ],
)
def test_the_generic_decoder_knows_modules_by_their_class(module: str, block: str | None) -> None:
    assert load_blocks("generic-decoder").block_of_range(module, module=True) == block


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name = 3", "name must be text"),
        ('name = "x"', "no [blocks.NAME] table"),
        ('name = "x"\n[blocks.a]\nrange = ["a"]', "unknown key 'range'"),
        ('name = "x"\nblok = 1\n[blocks.a]', "unknown key 'blok'"),
        ('name = "x"\n[blocks.a]\nkernels = ["("]', "no regular expression"),
        ('name = "x"\n[blocks.a]\nkernels = "a"', "list of texts"),
        ('name = "x"\n[blocks.a]\nlayers = -1', "whole number"),
        ('name = "x"\n[blocks.a]\nlayers = true', "whole number"),
        ('name = "x"\n[blocks.a]\nnot_within = ["b"]', "names no block 'b'"),
        ('name = "x"\n[blocks.a]\ncounted_in = {decode = "b"}', "names no block 'b'"),
        ('name = "x"\n[blocks.a]\n[total]\ndecode = [2, 1]', "[low, high]"),
        ('name = "x"\n[blocks.a]\n[[counts]]\nlabel = "n"\nper_step = 1', "kernels is missing"),
        ('name = "x"\n[blocks.a]\n[counts]\nper_step = 1', "write it as [[counts]]"),
        ("name = ", "not TOML"),
    ],
)
def test_what_is_wrong_in_a_definition_is_named(text: str, reason: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_blocks(text, "own.toml")
    assert reason in str(caught.value)
    assert str(caught.value).startswith("own.toml")


def test_an_unknown_definition_lists_the_known_ones() -> None:
    with pytest.raises(RequestError, match="generic-decoder, kimi-k3, kimi-linear"):
        load_blocks("kimi-k9")


def host(name: str, start: float, end: float, tid: int = 1) -> str:
    module = name.startswith("nn.Module")
    category = "python_function" if module else "user_annotation"
    return (
        f'{{"ph":"X","cat":"{category}","name":"{name}","pid":7,"tid":{tid},"ts":{start},'
        f'"dur":{end - start}}}'
    )


def launched(number: int, at: float, kernel: str = "gemm", tid: int = 1) -> str:
    return (
        f'{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":{tid},"ts":{at},'
        f'"dur":1,"args":{{"correlation":{number}}}}},'
        f'{{"ph":"X","cat":"kernel","name":"{kernel}","pid":0,"tid":3,"ts":{1000 + number},'
        f'"dur":1.5,"args":{{"device":0,"correlation":{number}}}}}'
    )


DEFINITION = """
name = "own"
[blocks.a]
ranges = ["A"]
[blocks.b]
ranges = ["B"]
[blocks.mlp]
modules = ["Mlp"]
not_within = ["a"]
[blocks.rule]
kernels = ["^score$"]
"""


@pytest.mark.parametrize(
    ("events", "block"),
    [
        ([host("A", 0, 10)], "a"),
        ([host("A", 0, 10), host("B", 4, 6)], "b"),
        ([host("A", 0, 10), host("B", 6, 8)], "a"),
        ([host("A", 0, 10), host("B", 1, 4)], "a"),
        ([host("A", 0, 3), host("B", 2, 8)], "b"),
        ([host("A", 0, 10, tid=2)], "other"),
        ([host("A", 0, 10), host("unknown", 4, 6)], "a"),
        ([host("nn.Module: Mlp_3", 0, 10)], "mlp"),
        ([host("A", 0, 10), host("nn.Module: Mlp_3", 4, 6)], "a"),
        ([host("B", 0, 10), host("nn.Module: Mlp_3", 4, 6)], "mlp"),
        ([host("A", 5, 10), host("B", 5, 7)], "b"),
        ([], "other"),
    ],
    ids=[
        *("in_one", "innermost", "before_the_inner", "after_the_inner", "overlapping"),
        *("other_thread", "unnamed_inner", "module", "hidden_module", "module_in_another"),
        *("same_start", "outside"),
    ],
)
def test_a_kernel_belongs_to_the_innermost_range_around_its_launch(
    events: list[str], block: str, tmp_path: Path
) -> None:
    definition = parse_blocks(DEFINITION, "own")
    trace = read_trace(write_trace(tmp_path / "t.json", [*events, launched(1, 5)]))
    column = blocks_of_dispatches(trace, definition)
    assert column.names[column.index[0]] == block


def test_name_rules_decide_only_outside_of_every_range(tmp_path: Path) -> None:
    definition = parse_blocks(DEFINITION, "own")
    events = [host("A", 0, 10), launched(1, 5, "score"), launched(2, 50, "score")]
    events.append(launched(3, 60, "scores"))
    trace = read_trace(write_trace(tmp_path / "t.json", events))
    column = blocks_of_dispatches(trace, definition)
    assert [column.names[n] for n in column.index] == ["a", "rule", "other"]


def test_a_kernel_without_a_launch_is_outside(tmp_path: Path) -> None:
    kernel = '{"cat":"kernel","name":"k","pid":0,"ts":5,"dur":1.5,"args":{"device":0}}'
    events = [host("A", 0, 10), launched(1, 5), kernel]
    trace = read_trace(write_trace(tmp_path / "t.json", events))
    column = blocks_of_dispatches(trace, parse_blocks(DEFINITION, "own"))
    assert [column.names[n] for n in column.index] == ["other", "a"]
