"""The surrogate: meets every published statistic, never changes, and refuses the impossible."""

import json
import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_data import shared_file

import workloads
from workloads import committed, pins, surrogate
from workloads.identity import recognise, sorted_sha256
from workloads.statistics import compare, summarise


def test_it_meets_every_published_statistic() -> None:
    found = summarise(surrogate.build())
    assert compare(found) == []
    assert found.buckets == pins.STATISTICS.buckets
    assert found.percentiles == pins.STATISTICS.percentiles
    assert (found.count, found.minimum, found.maximum) == (52_229, 4, 1024)
    assert (round(found.mean, 2), round(found.std, 2)) == (108.20, 189.81)


def test_it_is_built_anew_to_the_committed_lengths_in_under_a_second() -> None:
    start = time.process_time()
    built = surrogate.build_pinned()
    assert time.process_time() - start < 1
    assert built == surrogate.load_committed()
    assert surrogate.render(built) == committed.committed_bytes(surrogate.DATA_FILE)
    assert recognise(built) == "surrogate"


def test_every_length_between_the_extremes_occurs() -> None:
    # A surrogate with holes would never exercise the lengths in them.
    assert set(surrogate.build()) == set(range(4, 1025))


def test_it_says_what_it_is() -> None:
    assert "surrogate" in surrogate.LABEL
    assert committed.committed_bytes(surrogate.DATA_FILE).startswith(b"surrogate_prompt_tokens,")


def test_another_outcome_than_the_pinned_one_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(pins, "SURROGATE_SORTED_SHA256", "0" * 64)
    with pytest.raises(workloads.PinMismatchError, match="surrogate came out"):
        surrogate.build_pinned()


def test_it_lies_close_to_the_real_distribution_and_is_not_it() -> None:
    real = sorted(
        json.loads(shared_file("lengths/sharegpt_k3_lengths.json").read_text())["lengths"]
    )
    built = surrogate.build()
    assert sorted_sha256(real) != sorted_sha256(built)
    counts = [0] * 1025
    for length in built:
        counts[length] += 1
    for length in real:
        counts[length] -= 1
    gap = worst = 0
    for count in counts:
        gap += count
        worst = max(worst, abs(gap))
    # The largest gap between the two cumulative distributions lies among the shortest prompts.
    assert worst / len(real) < 0.02


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": 52_230}, "the buckets hold 52,229"),
        ({"maximum": 2048}, "the buckets end at 1024"),
        ({"minimum": 5}, "buckets must tile"),
        ({"buckets": ((4, 8, 0), *pins.STATISTICS.buckets[1:])}, "buckets must tile"),
        ({"percentiles": ((50.0, 28.5),)}, "whole tokens"),
        ({"percentiles": ((50.0, 2000.0),)}, "between minimum"),
        ({"percentiles": ((10.0, 28.0), (50.0, 8.0))}, "contradict"),
        ({"percentiles": ((10.0, 600.0),)}, "contradict"),
        ({"mean": 5.0}, "meets"),
        ({"std": 1000.0}, "meets"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_statistics_that_nothing_can_meet_are_refused(change, says: str) -> None:
    with pytest.raises(workloads.WorkloadError, match=says):
        surrogate.build(replace(pins.STATISTICS, **change))


def test_it_is_built_for_another_large_distribution_too() -> None:
    source = random.Random(1)
    lengths = [min(2048, max(1, int(source.lognormvariate(4.5, 1.2)))) for _ in range(20_000)]
    edges = ((1, 16, 0), (17, 64, 0), (65, 256, 0), (257, 1024, 0), (1025, 2048, 0))
    percentiles = ((10.0, 0.0), (50.0, 0.0), (90.0, 0.0))
    wanted = summarise(lengths, replace(pins.STATISTICS, buckets=edges, percentiles=percentiles))
    wanted = replace(wanted, mean=round(wanted.mean, 2), std=round(wanted.std, 2))
    built = surrogate.build(wanted)
    assert compare(summarise(built, wanted), wanted) == []
    assert built != tuple(sorted(lengths))


def test_one_bucket_and_no_percentile_are_enough_to_build_from() -> None:
    wanted = pins.Statistics(
        count=4000,
        minimum=2,
        maximum=60,
        mean=20.0,
        std=12.0,
        percentiles=(),
        buckets=((2, 60, 4000),),
    )
    assert compare(summarise(surrogate.build(wanted), wanted), wanted) == []


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(2, 60), min_size=200, max_size=600),
    st.sampled_from([(), (50.0,), (25.0, 75.0)]),
)
def test_what_it_builds_for_other_statistics_meets_them(lengths, percents) -> None:
    lengths = [*lengths, *range(2, 61)]
    edges = ((2, 8, 0), (9, 30, 0), (31, 60, 0))
    wanted = summarise(
        lengths,
        replace(pins.STATISTICS, buckets=edges, percentiles=tuple((p, 0.0) for p in percents)),
    )
    wanted = replace(wanted, mean=round(wanted.mean, 2), std=round(wanted.std, 2))
    try:
        built = surrogate.build(wanted)
    except workloads.WorkloadError:
        return  # Refusing is allowed; a wrong multiset is not.
    assert compare(summarise(built, wanted), wanted) == []
