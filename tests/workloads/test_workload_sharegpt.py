"""The ShareGPT recipe on small files: each stage counted, each fault named, nothing substituted."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from shared_data import shared_file
from sharegpt_files import (
    COUNTS,
    OUTPUTS,
    PROMPTS,
    RECORDS,
    byte_tokenizer,
    expectation,
    record,
    write,
)

import workloads
from workloads import pins, sharegpt
from workloads.pins import StageCounts


class NoTokenizer:
    """Stands where the tokenizer must not be needed again."""

    identity = "one token a byte"

    def count(self, text: str) -> int:
        raise AssertionError("the tokenizer was asked again")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write(tmp_path / "sharegpt.json")


def test_every_stage_is_counted(dataset: Path) -> None:
    result = sharegpt.run(dataset, byte_tokenizer(), expect=None)
    assert result.counts == COUNTS
    assert result.prompt_tokens == PROMPTS
    assert result.output_tokens == OUTPUTS


def test_a_file_that_meets_its_pins_passes(dataset: Path) -> None:
    result = sharegpt.run(dataset, byte_tokenizer(), expect=expectation(dataset))
    assert result.file_sha256 == expectation(dataset).file.sha256
    assert result.prompt_tokens == PROMPTS


@pytest.mark.parametrize("stage", list(StageCounts.__dataclass_fields__))
def test_a_stage_with_another_count_is_named(dataset: Path, stage: str) -> None:
    expect = expectation(dataset)
    counts = replace(expect.counts, **{stage: getattr(expect.counts, stage) + 1})
    with pytest.raises(workloads.PinMismatchError, match=f"stage {stage} .* pinned"):
        sharegpt.run(dataset, byte_tokenizer(), expect=replace(expect, counts=counts))


def test_other_statistics_are_named(dataset: Path) -> None:
    expect = expectation(dataset)
    expect = replace(expect, statistics=replace(expect.statistics, mean=1.0))
    with pytest.raises(workloads.PinMismatchError, match=r"mean is .*, pinned 1\.00"):
        sharegpt.run(dataset, byte_tokenizer(), expect=expect)


def test_lengths_that_agree_only_in_statistics_are_refused(dataset: Path) -> None:
    expect = replace(expectation(dataset), lengths_in_file_order_sha256="0" * 64)
    with pytest.raises(workloads.PinMismatchError, match="agree in every statistic"):
        sharegpt.run(dataset, byte_tokenizer(), expect=expect)


def test_by_default_only_the_pinned_file_is_accepted(dataset: Path) -> None:
    with pytest.raises(workloads.PinMismatchError, match="pinned 672,837,942"):
        sharegpt.run(dataset, byte_tokenizer())


def test_the_right_size_with_other_bytes_is_refused(dataset: Path) -> None:
    expect = expectation(dataset)
    content = dataset.read_bytes()
    dataset.write_bytes(content.replace(b'"x"', b'"y"', 1))
    with pytest.raises(workloads.PinMismatchError, match="SHA-256"):
        sharegpt.run(dataset, byte_tokenizer(), expect=expect)


def test_a_second_run_reads_the_cached_stages(dataset: Path) -> None:
    first = sharegpt.run(dataset, byte_tokenizer(), expect=None)
    assert sharegpt.run(dataset, NoTokenizer(), expect=None) == first


def test_a_changed_file_starts_anew(dataset: Path) -> None:
    sharegpt.run(dataset, byte_tokenizer(), expect=None)
    write(dataset, [*RECORDS, record(("human", 50), ("gpt", 60))])
    result = sharegpt.run(dataset, byte_tokenizer(), expect=None)
    assert result.counts.length_filtered == COUNTS.length_filtered + 1


def test_another_length_filter_is_not_served_from_the_cache(dataset: Path) -> None:
    sharegpt.run(dataset, byte_tokenizer(), expect=None)
    narrow = pins.LengthFilter(max_prompt_tokens=50)
    result = sharegpt.run(dataset, byte_tokenizer(), expect=None, length_filter=narrow)
    assert result.prompt_tokens == (10, 4)


def test_another_tokenizer_is_not_served_from_the_cache(dataset: Path) -> None:
    class HalfAsMany:
        identity = "one token for two bytes"

        def count(self, text: str) -> int:
            return len(text) // 2

    sharegpt.run(dataset, byte_tokenizer(), expect=None)
    result = sharegpt.run(dataset, HalfAsMany(), expect=None)
    assert result.prompt_tokens == (5, 512, 512, 512, 50)


def test_an_interrupted_run_goes_on_to_the_same_result(dataset: Path) -> None:
    class Interrupted:
        identity = "one token a byte"

        def count(self, text: str) -> int:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sharegpt.run(dataset, Interrupted(), expect=None)
    assert sharegpt.run(dataset, byte_tokenizer(), expect=None).prompt_tokens == PROMPTS


def test_progress_covers_every_stage(dataset: Path) -> None:
    steps = []
    sharegpt.run(
        dataset,
        byte_tokenizer(),
        expect=expectation(dataset),
        progress=lambda step, done, total: steps.append((step, done, total)),
    )
    last = {step: (done, total) for step, done, total in steps}
    assert list(last) == [
        "hash",
        "records",
        "two_turns",
        "gpt_first",
        "human_then_gpt",
        "tokenise",
        "length_filtered",
    ]
    assert all(done == total for done, total in last.values())


def test_nothing_left_is_an_empty_result_and_no_crash(tmp_path: Path) -> None:
    path = write(tmp_path / "none.json", [record(("gpt", 10), ("human", 10))])
    result = sharegpt.run(path, byte_tokenizer(), expect=None)
    assert result.counts == StageCounts(1, 1, 0, 0, 1)
    assert result.prompt_tokens == ()


GOOD = json.dumps(RECORDS[0])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "does not start with"),
        ('{"conversations": []}', "does not start with"),
        ("[]", "empty array"),
        (f"[{GOOD}, {GOOD}", "not whole JSON"),
        (f"[{GOOD}, {GOOD[:40]}", "not whole JSON"),
        (f"[{GOOD}] {GOOD}", "not whole JSON"),
        (f"[{GOOD}, 7]", "record 1 has no list 'conversations'"),
        (f'[{GOOD}, {{"id": "y"}}]', "record 1 has no list 'conversations'"),
        (f'[{GOOD}, {{"conversations": "text"}}]', "record 1 has no list 'conversations'"),
        ('[{"conversations": [{"value": "a"}, {"from": "gpt", "value": "b"}]}]',
         "record 0, turn 0 has no string 'from'"),
        ('[{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt"}]}]',
         "record 0, turn 1 has no string 'value'"),
        ('[{"conversations": [{"from": "human", "value": null}, {"from": "gpt", "value": "b"}]}]',
         "record 0, turn 0 has no string 'value'"),
        ('[{"conversations": ["a", "b"]}]', "record 0, turn 0 has no string 'from'"),
    ],
    ids=[
        "empty-file", "object", "empty-array", "cut-after-record", "cut-in-record", "trailing-data",
        "number-as-record", "no-conversations", "conversations-as-text", "no-from", "no-value",
        "null-value", "turns-as-text",
    ],
)  # fmt: skip
def test_a_broken_file_is_named_with_the_place(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(workloads.MalformedInputError, match=says) as caught:
        sharegpt.run(path, byte_tokenizer(), expect=None)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_file_leaves_nothing_that_a_mended_one_would_read(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(RECORDS)[:-1])
    with pytest.raises(workloads.MalformedInputError):
        sharegpt.run(path, byte_tokenizer(), expect=None)
    assert sharegpt.run(write(path), byte_tokenizer(), expect=None).counts == COUNTS


def test_bytes_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.json"
    path.write_bytes(GOOD.join("[]").encode().replace(b"aaaa", b"a\xff\xfea", 1))
    with pytest.raises(workloads.MalformedInputError, match="UTF8"):
        sharegpt.run(path, byte_tokenizer(), expect=None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(workloads.MissingInputError, match="is not there"):
        sharegpt.run(tmp_path / "nothing.json", byte_tokenizer())


def test_the_length_filter_turns_real_pairs_into_the_start_of_the_real_list() -> None:
    with shared_file("lengths/prefix_kimi_lengths.csv").open() as stream:
        pairs = [
            (int(row["prompt_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(stream)
        ]
    kept = [prompt for prompt, output in pairs if pins.LENGTH_FILTER.keeps(prompt, output)]
    real = json.loads(shared_file("lengths/sharegpt_k3_lengths.json").read_text())["lengths"]
    assert len(kept) == 9_879
    assert kept == real[:9_879]
