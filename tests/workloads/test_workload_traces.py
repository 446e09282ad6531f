"""Length traces in the public formats: detected, read in order, usable as workloads."""

from pathlib import Path

import pytest
from shared_data import shared_file

import workloads
from workloads import readers, store
from workloads.importing import import_file

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.68,374,44\r\n2023,396,0"
MOONCAKE = (
    '{"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1]}\n'
    "\n"
    '{"timestamp": 9, "input_length": 3, "output_length": 0, "hash_ids": []}\n'
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,1087,0,1087,API log\n"
)
EXAMPLES = {
    "azure": (AZURE, (374, 396), (44, 0)),
    "mooncake": (MOONCAKE, (6755, 3), (500, 0)),
    "burstgpt": (BURSTGPT, (472, 1087), (18, 0)),
}


@pytest.mark.parametrize("form", list(EXAMPLES))
@pytest.mark.parametrize("asked", ["auto", "by-name"])
def test_a_trace_is_read_in_order(tmp_path: Path, form: str, asked: str) -> None:
    content, prompts, outputs = EXAMPLES[form]
    path = tmp_path / "trace"
    path.write_text(content)
    read = readers.read(path, "auto" if asked == "auto" else form)
    assert (read.form, read.lengths, read.output_lengths) == (form, prompts, outputs)


@pytest.mark.parametrize("form", list(EXAMPLES))
def test_a_trace_needs_no_name_to_become_a_workload(tmp_path: Path, form: str) -> None:
    content, prompts, outputs = EXAMPLES[form]
    path = tmp_path / "My Trace (1).csv"
    path.write_text(content)
    report = import_file(path)
    assert report.name == "my-trace-1"
    assert store.load("my-trace-1").output_lengths == outputs
    workload = workloads.get("my-trace-1/all")
    assert workload.provenance == "trace"
    assert form in workload.label
    assert tuple(call.new_tokens[0] for call in workload.calls) == prompts


@pytest.mark.parametrize(
    ("form", "content", "says"),
    [
        ("azure", "TIMESTAMP,ContextTokens\n1,2\n", "no column 'GeneratedTokens'"),
        ("azure", AZURE + "\n2023,x,1", "line 4: 'x' is not a whole number"),
        ("azure", AZURE + "\n2023,5", "line 4: 2 fields"),
        ("azure", AZURE + "\n2023,0,5", "line 4: 0 tokens; at least 1"),
        ("azure", "", "no column 'ContextTokens'"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no lengths"),
        ("mooncake", MOONCAKE[:100], "line 3: not a JSON object"),
        ("mooncake", '{"input_length": 5}\n', "line 1: no whole number 'output_length'"),
        ("mooncake", '{"input_length": 5.5, "output_length": 1}', "no whole number 'input_length'"),
        ("mooncake", '{"input_length": true, "output_length": 1}', "not a whole number"),
        ("mooncake", "[5]\n", "line 1: no whole number 'input_length'"),
        ("burstgpt", AZURE, "no column 'Request tokens'; it has: TIMESTAMP"),
        ("burstgpt", BURSTGPT + "5,ChatGPT,-1,0,0,x\n", "line 4: '-1' is not a whole number"),
    ],
)
def test_a_broken_trace_is_named_with_the_place(tmp_path, form, content, says) -> None:
    path = tmp_path / "trace"
    path.write_text(content)
    with pytest.raises(workloads.MalformedInputError, match=says):
        import_file(path, form=form)
    assert store.saved_names() == []


@pytest.mark.parametrize(
    ("name", "requests", "first", "last_output"),
    [("code", 8_819, 4_808, None), ("conv", 19_366, 374, 183)],
)
def test_the_azure_traces_are_read_whole(name, requests, first, last_output) -> None:
    path = shared_file(f"lengths/AzureLLMInferenceTrace_{name}.csv")
    report = import_file(path, name=f"azure-{name}")
    saved = store.load(f"azure-{name}")
    assert report.form == "azure"
    assert len(saved.lengths) == len(saved.output_lengths) == requests
    assert saved.lengths[0] == first
    assert last_output is None or saved.output_lengths[-1] == last_output
    assert workloads.get(f"azure-{name}/all").tokens == sum(saved.lengths)
    assert len(workloads.get(f"azure-{name}/B8").calls) == 100
