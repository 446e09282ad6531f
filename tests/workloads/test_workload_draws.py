"""The drawn lists: reproducible, different from each other, guarded by their hashes."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import shared_file

import workloads
from workloads import building, committed, draws, pins, surrogate
from workloads.padding import padded_length

FILES = (draws.REAL_FILE, draws.SURROGATE_FILE)


@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_seven_different_lists_of_100(name: str) -> None:
    drawn = draws.load_committed(name)
    assert tuple(drawn.lists) == (1, 2, 4, 8, 16, 32, 64)
    assert {len(sampled) for sampled in drawn.lists.values()} == {100}
    assert len(set(drawn.lists.values())) == 7
    assert all(4 <= n <= 1024 for sampled in drawn.lists.values() for n in sampled)


@pytest.mark.parametrize("name", FILES)
def test_a_file_records_executed_lengths_beside_sampled_ones(name: str) -> None:
    document = json.loads(committed.committed_bytes(name))
    for entry in document["lists"].values():
        for multiple in (16, 64):
            assert entry[f"executed_{multiple}"] == [
                padded_length(length, multiple) for length in entry["sampled"]
            ]


def test_the_surrogate_lists_are_drawn_again_byte_for_byte() -> None:
    files = building.surrogate_files()
    assert set(files) == {surrogate.DATA_FILE, draws.SURROGATE_FILE}
    for name, content in files.items():
        assert content == (committed.DIRECTORY / name).read_bytes()


def test_the_real_lists_are_drawn_again_byte_for_byte() -> None:
    document = json.loads(shared_file("lengths/sharegpt_k3_lengths.json").read_text())
    files = building.real_files(tuple(document["lengths"]))
    assert files[draws.REAL_FILE] == (committed.DIRECTORY / draws.REAL_FILE).read_bytes()


def test_the_real_lists_are_those_of_the_published_replay() -> None:
    published = json.loads(shared_file("published/kda_sharegpt.json").read_text())
    lists = draws.load_committed(draws.REAL_FILE).lists
    assert {str(b): list(sampled) for b, sampled in lists.items()} == (
        published["protocol"]["sampled_lengths"]
    )


def test_the_published_padded_throughput_is_that_of_power_of_two_buckets() -> None:
    from workloads.padding import serving_bucket

    published = json.loads(shared_file("published/kda_sharegpt.json").read_text())["configs"]
    for batch, sampled in draws.load_committed(draws.REAL_FILE).lists.items():
        row = published[str(batch)]["optimized"]
        padded = sum(serving_bucket(batch * length) for length in sampled)
        assert padded / (batch * sum(sampled)) == pytest.approx(
            row["tok_weighted_padded_tok_per_s"] / row["tok_weighted_actual_tok_per_s"]
        )


def test_the_surrogates_file_says_so() -> None:
    assert "surrogate" in draws.load_committed(draws.SURROGATE_FILE).label
    assert draws.load_committed(draws.REAL_FILE).label == "ShareGPT-derived"


@pytest.mark.parametrize("family", ["sharegpt-k3", "sharegpt-k3-surrogate"])
def test_a_replay_has_one_length_a_batch(family: str) -> None:
    for batch in pins.DRAW_BATCH_SIZES:
        replay = workloads.get(f"{family}/B{batch}")
        assert len(replay.calls) == 100
        assert {call.batch for call in replay.calls} == {batch}
        assert all(len(set(call.new_tokens)) == 1 for call in replay.calls)


@given(st.integers(2, 2**32 - 1), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_indices_stay_in_bounds(bound: int, halves: list[int]) -> None:
    assert all(0 <= index < bound for index in draws._indices(iter(halves), bound))


def test_indices_are_unbiased() -> None:
    # A 2-bit version of the same rule would give 0 twice as often without the rejection; here the
    # rejected half is the one whose product falls below 2**32 % bound.
    bound = 3
    rejected = 2**32 % bound
    assert rejected == 1
    assert list(draws._indices(iter([0]), bound)) == []
    assert list(draws._indices(iter([1, 2**31, 2**32 - 1]), bound)) == [0, 1, 2]


@pytest.mark.parametrize("lengths", [[], [7]])
def test_a_draw_from_fewer_than_two_lengths_is_refused(lengths: list[int]) -> None:
    with pytest.raises(workloads.WorkloadError, match="cannot draw"):
        draws.draw(lengths, "x")


def test_a_draw_depends_on_the_order_and_says_which_it_had() -> None:
    lengths = list(range(1, 500))
    forward, backward = draws.draw(lengths, "x"), draws.draw(lengths[::-1], "x")
    assert forward.lists != backward.lists
    assert forward.population_sha256 != backward.population_sha256


def test_the_stream_is_the_documented_one() -> None:
    # First raw words of PCG64 seeded with 0, as NumPy's compatibility policy keeps them.
    words = list(itertools.islice(draws._halves(0), 4))
    assert words[0] | words[1] << 32 == 11749869230777074271
    assert words[2] | words[3] << 32 == 4976686463289251617


@pytest.mark.parametrize("name", FILES)
def test_what_is_rendered_parses_to_the_same_lists(name: str) -> None:
    drawn = draws.load_committed(name)
    assert draws.parse(draws.render(drawn), name) == drawn


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-20],
        lambda content: content.replace(b'"executed_64": [64', b'"executed_64": [128'),
        lambda content: content.replace(b'"sampled"', b'"drawn"'),
        lambda content: b"[]",
    ],
    ids=["truncated", "executed-lengths-changed", "key-renamed", "not-an-object"],
)
def test_a_damaged_file_is_refused(damage) -> None:
    content = damage((committed.DIRECTORY / draws.REAL_FILE).read_bytes())
    with pytest.raises(workloads.MalformedInputError, match="rebuild it"):
        draws.parse(content, "the file")


def test_one_changed_digit_in_a_committed_file_is_refused(tmp_path, monkeypatch) -> None:
    content = (committed.DIRECTORY / draws.REAL_FILE).read_bytes()
    (tmp_path / draws.REAL_FILE).write_bytes(content.replace(b"[10,16,16,", b"[10,16,17,"))
    monkeypatch.setattr(committed, "DIRECTORY", tmp_path)
    with pytest.raises(workloads.PinMismatchError, match="restore it from version control"):
        draws.load_committed(draws.REAL_FILE)
    with pytest.raises(workloads.MissingInputError, match="is missing"):
        draws.load_committed(draws.SURROGATE_FILE)
