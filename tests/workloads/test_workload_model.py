"""Workload and Call: what they hold, what they hash, what they refuse."""

from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads
from workloads.model import Call, KdaGeometry, Workload, canonical_json, prefill
from workloads.padding import padded_length, serving_bucket

LENGTHS = st.lists(st.integers(0, 5000), min_size=1, max_size=20)


def a_workload(**changes: object) -> Workload:
    plain = Workload(
        id="some/thing",
        kind="kda-prefill",
        provenance="fixed",
        geometry=KdaGeometry(heads=2),
        calls=(prefill(3, 0, 70),),
        label="fixed shape",
        description="three sequences",
    )
    return replace(plain, **changes)


@given(LENGTHS)
def test_cu_seqlens_are_the_offsets_of_the_packed_sequences(lengths: list[int]) -> None:
    offsets = prefill(*lengths).cu_seqlens
    assert offsets[0] == 0
    assert [b - a for a, b in pairwise(offsets)] == lengths
    assert offsets[-1] == prefill(*lengths).tokens


def test_kv_lengths_are_cached_and_new_tokens_together() -> None:
    assert Call(new_tokens=(1, 5), cached_tokens=(4095, 0)).kv_lengths == (4096, 5)


@pytest.mark.parametrize(
    ("new", "cached", "message"),
    [
        ((), (), "at least one sequence"),
        ((1, 2), (0,), "one of each per sequence"),
        ((-1,), (0,), "negative"),
        ((1,), (-1,), "negative"),
    ],
)
def test_a_call_refuses_lengths_that_cannot_be(new, cached, message) -> None:
    with pytest.raises(workloads.WorkloadError, match=message):
        Call(new_tokens=new, cached_tokens=cached)


def test_the_hash_covers_lengths_kind_and_geometry_and_no_prose() -> None:
    plain = a_workload()
    assert a_workload(id="other", label="l", description="d").sha256 == plain.sha256
    assert a_workload(calls=(prefill(3, 0, 71),)).sha256 != plain.sha256
    assert a_workload(calls=(prefill(0, 3, 70),)).sha256 != plain.sha256
    assert a_workload(geometry=KdaGeometry(heads=3)).sha256 != plain.sha256
    assert a_workload(kind="mla-prefill").sha256 != plain.sha256


def test_the_hash_of_a_known_workload_does_not_change() -> None:
    # The canonical form is what other programs rehash: spell it out once.
    content = (
        b'{"calls":[{"cached_tokens":[0,0,0,0],"new_tokens":[2048,2048,2048,2048]}],'
        b'"geometry":{"chunk":64,"dtype":"bfloat16","heads":16,"key_dim":128,"value_dim":128},'
        b'"kind":"kda-prefill"}'
    )
    headline = workloads.get("kda-headline")
    assert canonical_json(headline.content()) == content
    assert headline.sha256 == "eb6ebb700785" + headline.sha256[12:]


def test_a_workload_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        a_workload().id = "else"


@pytest.mark.parametrize("field", ["id", "label", "description"])
def test_a_surrogate_must_say_so_everywhere(field: str) -> None:
    texts = dict.fromkeys(("id", "label", "description"), "of a surrogate")
    a_workload(provenance="surrogate", **texts)
    with pytest.raises(workloads.WorkloadError, match=f"its {field} does not say so"):
        a_workload(provenance="surrogate", **{**texts, field: "nothing"})


def test_a_replay_has_no_single_call() -> None:
    replay = a_workload(calls=(prefill(1), prefill(2)))
    assert replay.is_replay
    with pytest.raises(workloads.WorkloadError, match="replays 2 calls"):
        replay.call  # noqa: B018 - the property raises
    assert a_workload().call.tokens == 73


def test_executed_lengths_stand_beside_sampled_ones() -> None:
    workload = a_workload(calls=(prefill(3, 0, 70), prefill(64)))
    assert workload.executed_lengths(64) == ((64, 0, 128), (64,))
    assert workload.executed_tokens(16) == 16 + 80 + 64
    assert workload.tokens == 73 + 64


@given(st.integers(0, 100_000), st.integers(1, 512))
def test_padding_adds_less_than_one_multiple(length: int, multiple: int) -> None:
    executed = padded_length(length, multiple)
    assert executed % multiple == 0
    assert 0 <= executed - length < multiple


@pytest.mark.parametrize(
    ("tokens", "bucket"), [(1, 128), (128, 128), (129, 256), (8087, 8192), (65536, 65536)]
)
def test_serving_buckets_are_powers_of_two_from_128(tokens: int, bucket: int) -> None:
    assert serving_bucket(tokens) == bucket


@pytest.mark.parametrize("bad", [(-1, 16), (5, 0)])
def test_padding_refuses_nonsense(bad: tuple[int, int]) -> None:
    with pytest.raises(workloads.WorkloadError):
        padded_length(*bad)
