"""`k3bench forms`: what is printed where, and the exit codes."""

import json

import pytest
from click.testing import CliRunner

from k3bench.cli.errors import CliError
from k3bench.cli.forms import forms


def invoke(*arguments):
    return CliRunner().invoke(forms, list(arguments))


def document(*arguments):
    found = invoke(*arguments, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


K3_DECODE = (
    *("cost", "--model", "kimi-k3", "--phase", "decode", "--context", "4096", "--batch", "1"),
    *("--hardware", "mi355x", "--tp", "8"),
)


def test_the_cost_of_a_k3_decode_step_by_block():
    found = document(*K3_DECODE)
    assert set(found["blocks"]) == {
        *("kda", "full_attention", "moe", "dense_mlp", "attention_residual", "other")
    }
    for block in found["blocks"].values():
        assert set(block) == {"flops", "bytes", "bound_us", "layers"}
    assert {name: block["layers"] for name, block in found["blocks"].items()} == {
        "kda": 69,
        "full_attention": 24,
        "dense_mlp": 1,
        "moe": 92,
        "attention_residual": 93,
        "other": 1,
    }
    assert found["total_bound_us"] == pytest.approx(
        sum(block["bound_us"] for block in found["blocks"].values())
    )
    assert found["kind"] == "modelled"
    assert "expert_split" in found["assumed"]


def test_several_contexts_are_a_list_and_only_the_cache_grows():
    short, long = document(*K3_DECODE, "--context", "1047552")
    assert (short["context"], long["context"]) == (4096, 1047552)
    grown = {
        name
        for name in short["blocks"]
        if short["blocks"][name]["bytes"] != long["blocks"][name]["bytes"]
    }
    assert grown == {"full_attention"}
    assert 28.9e9 < long["blocks"]["full_attention"]["bytes"] < 31e9


def test_published_times_stand_beside_their_bounds():
    found = document(*K3_DECODE, "--published")["published"]
    assert found["kda"]["published_ms"] == pytest.approx(3.54)
    assert all(row["published_over_bound"] > 1 for row in found.values())
    table = invoke(*K3_DECODE, "--published")
    assert "published full_attention" in table.stdout
    assert "modelled" in table.stdout
    assert "assumed expert_split" in table.stderr


def test_published_times_of_another_setting_are_refused():
    found = invoke("cost", "--published", "--tp", "4")
    assert isinstance(found.exception, CliError | SystemExit)
    assert found.exit_code == 64
    assert "only kimi-k3, mi355x, decode" in found.output


def test_products_are_listed_with_their_sizes():
    rows = document(*K3_DECODE, "--gemms")["gemms"]
    scores = [row for row in rows if row["name"] == "scores"]
    assert [(row["M"], row["N"], row["K"], row["count"]) for row in scores] == [
        (1, 4096, 576, 24 * 12)
    ]
    assert "full_attention: scores" in invoke(*K3_DECODE, "--gemms").stdout


def test_a_chunked_prefill_with_its_prefix_absorbed_costs_more():
    prefill = ("cost", "--phase", "chunked-prefill", "--context", "32768", "--tp", "8")
    plain = document(*prefill, "--chunk", "16384")
    absorbed = document(*prefill, "--chunk", "16384", "--prefix-form", "absorbed")
    name = "full_attention"
    assert absorbed["blocks"][name]["flops"] > 1.5 * plain["blocks"][name]["flops"]
    assert absorbed["blocks"]["kda"] == plain["blocks"]["kda"]
    missing = invoke(*prefill)
    assert missing.exit_code == 64
    assert "--chunk" in missing.output


@pytest.mark.parametrize(
    ("phase", "low", "high"), [("decode", 20_000, 30_000), ("prefill", 7_000, 9_000)]
)
def test_a_kda_layer_beats_a_full_one_from_some_context_on(phase, low, high):
    found = document("crossover", "--model", "kimi-k3", "--tp", "8", "--phase", phase)
    assert low < found["from_context"] < high
    assert found["bound_us_there"]["kda"] < found["bound_us_there"]["full_attention"]
    said = invoke("crossover", "--model", "kimi-k3", "--tp", "8", "--phase", phase)
    assert f"{found['from_context']:,} tokens on" in said.stdout


def test_a_crossover_that_is_not_there_is_not_judged():
    found = invoke("crossover", "--between", "mha", "window", "--longest", "4096")
    assert found.exit_code == 2
    assert "never costs less" in found.stdout
    as_json = invoke("crossover", "--between", "mha", "window", "--longest", "4096", "--json")
    assert as_json.exit_code == 2
    assert json.loads(as_json.stdout)["from_context"] is None


def test_the_table_marks_the_cheapest_form_of_every_context():
    found = document("table", "--tp", "8", "--context", "4096", "--context", "1048576")
    names = {row["form"] for row in found["rows"]}
    assert {"mha", "gqa", "mla", "dsa", "window", "kda", "nsa", "yoco", "retnet"} <= names
    for context, cheapest in found["cheapest"].items():
        rows = [row for row in found["rows"] if row["context"] == int(context)]
        assert min(rows, key=lambda row: row["bound_us"])["form"] == cheapest
    four = ("gqa", "mla", "dsa", "kda")
    only = document("table", "--tp", "8", *(word for name in four for word in ("--form", name)))
    assert set(only["cheapest"].values()) == {"kda"}
    assert "*" in invoke("table", "--tp", "8").stdout


def test_the_list_names_forms_models_devices_and_what_was_assumed():
    found = document("list")
    assert found["models"]["kimi-k3"]["layers"] == {"kda": 69, "full_attention": 24}
    assert found["hardware"]["ascend-910c"]["separate_units"]
    assert found["hardware"]["mi355x"]["hbm_bytes_per_s"]["value"] == 8.0e12
    assert found["hardware"]["mi355x"]["streamed_bytes_per_s"]["assumed"]
    assert found["forms"]["kda"]["decode_flops"] == "7 H K V"
    shown = invoke("list").stdout
    assert "expert_split" in shown
    assert "gated delta rule" in shown


@pytest.mark.parametrize(
    "command",
    [
        (*K3_DECODE, "--context", "65536"),
        ("crossover", "--model", "kimi-k3", "--tp", "8"),
        ("table", "--form", "gqa", "--form", "kda"),
    ],
)
def test_a_drawing_is_an_svg_with_every_line_named(tmp_path, command):
    path = tmp_path / "drawing.svg"
    found = invoke(*command, "--svg", str(path))
    assert found.exit_code == 0
    text = path.read_text()
    assert text.startswith("<?xml")
    assert "kda" in text
    assert "modelled" in text
    assert str(path) in found.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("cost", "--model", "kimi-k4"), 64, "model 'kimi-k4': use one of"),
        (("cost", "--hardware", "mi455x"), 64, "device 'mi455x': use one of"),
        (("cost", "--model", "no/such.toml"), 66, "no such file"),
        (("cost", "--tp", "7"), 64, "do not divide over 7"),
        (("crossover", "--model", "kimi-k3", "--between", "kda", "mla"), 64, "no attention 'mla'"),
        (("crossover", "--phase", "chunked-prefill"), 64, "use decode or prefill"),
        (("table", "--form", "gpa"), 64, "form 'gpa': use one of"),
        (("table", "--phase", "chunked-prefill"), 64, "use decode or prefill"),
    ],
)
def test_what_cannot_be_answered_says_why(arguments, code, message):
    found = invoke(*arguments)
    assert found.exit_code == code
    assert message in found.output


@pytest.mark.parametrize(("given", "tokens"), [("4k", 4096), (" 64K ", 65536), ("1M", 1 << 20)])
def test_contexts_may_be_named_as_the_literature_does(given, tokens):
    assert document("cost", "--tp", "8", "--context", given)["context"] == tokens


@pytest.mark.parametrize("given", ["4096,8192", "-5", "0", "4.5K", "K", "1G", "17M", "x", ""])
def test_a_context_that_is_no_count_says_what_one_is(given):
    outcome = CliRunner().invoke(forms, ["cost", f"--context={given}"])
    assert outcome.exit_code == 2 and not outcome.stdout  # click's own; the entry point makes it 64
    assert "4096, 64K or 1M" in outcome.stderr or "give 1 to 16,777,216 tokens" in outcome.stderr


def test_names_are_known_in_any_case():
    found = document("cost", "--model", "Kimi-K3", "--hardware", "MI355X", "--tp", "8")
    assert (found["model"], found["hardware"]) == ("kimi-k3", "mi355x")


def test_what_is_named_twice_is_shown_once():
    found = document(
        "table", "--form", "kda", "--form", "kda", "--context", "1K", "--context", "1024"
    )
    assert len(found["rows"]) == 1
    assert document("cost", "--context", "4K", "--context", "4096", "--tp", "8")["context"] == 4096


def test_what_a_rank_does_not_hold_is_said():
    outcome = invoke("cost", "--tp", "1")
    assert "does not fit at 4,096 tokens: 1,559.9 GB of weights" in outcome.stderr
    fits = document("cost", "--tp", "8")["memory"]
    assert fits["fits"] and fits["capacity_bytes"] == 288e9
    many = document("cost", "--tp", "8", "--batch", "20000")["memory"]
    assert not many["fits"] and many["state_bytes"] == 20_000 * fits["state_bytes"]
    assert many["weight_bytes"] == fits["weight_bytes"]


def test_a_crossover_asked_the_wrong_way_round_names_the_right_one():
    for arguments, said in (
        (("--between", "mla", "kda"), "ask for --between kda mla"),
        (("--between", "kda", "kda"), "name two that differ"),
    ):
        outcome = invoke("crossover", *arguments)
        assert outcome.exit_code == 64 and said in outcome.stderr


def test_a_prefix_form_without_a_prefix_is_refused():
    outcome = invoke("cost", "--phase", "prefill", "--prefix-form", "absorbed")
    assert outcome.exit_code == 64 and "no cached tokens" in outcome.stderr


def test_a_definition_that_does_not_read_has_a_code_of_its_own(tmp_path):
    for content in ("name =", 'name = "x"\n', 'title = "x"\nname = 3\n'):
        path = tmp_path / "mine.toml"
        path.write_text(content)
        for option in ("--hardware", "--model"):
            outcome = invoke("cost", option, str(path))
            assert outcome.exit_code == 65 and str(path) in outcome.stderr
    assert invoke("cost", "--hardware", str(tmp_path / "absent.toml")).exit_code == 66


def test_small_times_keep_their_digits():
    lines = invoke("table", "--context", "1", "--form", "gqa").stdout
    assert "0.00717*" in lines
