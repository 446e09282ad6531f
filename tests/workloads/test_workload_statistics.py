"""Statistics: exact against numpy, and able to tell lists apart as far as statistics can."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import shared_file
from sharegpt_files import one_number_changed

import workloads
from workloads import pins
from workloads.identity import ordered_sha256, recognise, sorted_sha256
from workloads.statistics import compare, percentile, summarise

LENGTHS = st.lists(st.integers(1, 2000), min_size=1, max_size=200)


@pytest.fixture(scope="module")
def real_lengths() -> list[int]:
    return json.loads(shared_file("lengths/sharegpt_k3_lengths.json").read_text())["lengths"]


@given(LENGTHS, st.sampled_from([0.0, 10.0, 25.0, 50.0, 99.0, 99.9, 100.0]))
def test_percentiles_agree_with_numpys_linear_ones(lengths: list[int], percent: float) -> None:
    assert percentile(sorted(lengths), percent) == pytest.approx(np.percentile(lengths, percent))


@given(LENGTHS)
def test_mean_and_deviation_agree_with_numpys(lengths: list[int]) -> None:
    found = summarise(lengths)
    assert found.mean == pytest.approx(np.mean(lengths))
    assert found.std == pytest.approx(np.std(lengths), abs=1e-6)
    assert (found.count, found.minimum, found.maximum) == (len(lengths), min(lengths), max(lengths))


@given(LENGTHS)
def test_the_order_of_the_list_does_not_matter(lengths: list[int]) -> None:
    assert summarise(lengths) == summarise(lengths[::-1])
    assert sorted_sha256(lengths) == sorted_sha256(lengths[::-1])


def test_a_list_has_no_differences_from_itself() -> None:
    own = summarise([4, 5, 9, 1000])
    assert compare(own, own) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": 52_228}, "count is 52,228, pinned 52,229"),
        ({"minimum": 3}, "min is 3, pinned 4"),
        ({"maximum": 1025}, "max is 1,025, pinned 1,024"),
        ({"mean": 108.19}, "mean is 108.19, pinned 108.20"),
        ({"std": 189.82}, "std is 189.82, pinned 189.81"),
        ({"percentiles": ((10.0, 9.0), *pins.STATISTICS.percentiles[1:])}, "P10 is 9.00"),
        ({"percentiles": pins.STATISTICS.percentiles[:-1]}, "P99.9 is nan"),
        ({"buckets": ((4, 8, 5_719), *pins.STATISTICS.buckets[1:])}, "bucket 4-8 is 5,719"),
        ({"buckets": pins.STATISTICS.buckets[:-1]}, "bucket 513-1024 is 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_statistic_can_differ(change: dict[str, object], says: str) -> None:
    (difference,) = compare(replace(pins.STATISTICS, **change))
    assert says in difference


def test_agreement_is_to_the_two_published_decimals() -> None:
    assert compare(replace(pins.STATISTICS, mean=108.198, std=189.8068)) == []


@pytest.mark.parametrize("lengths", [[], ()])
def test_no_lengths_have_no_statistics(lengths) -> None:
    with pytest.raises(workloads.WorkloadError, match="no lengths"):
        summarise(lengths)
    with pytest.raises(workloads.WorkloadError, match="no values"):
        percentile(lengths, 50)


def test_percentages_end_at_100() -> None:
    with pytest.raises(workloads.WorkloadError, match=r"outside 0\.\.100"):
        percentile([1], 100.1)


def test_the_real_list_reproduces_every_published_statistic(real_lengths) -> None:
    found = summarise(real_lengths)
    assert compare(found) == []
    assert found.buckets == pins.STATISTICS.buckets
    assert found.percentiles == pins.STATISTICS.percentiles
    assert (round(found.mean, 2), round(found.std, 2)) == (108.20, 189.81)


def test_the_real_list_has_the_pinned_hashes(real_lengths) -> None:
    assert ordered_sha256(real_lengths) == pins.LENGTHS_IN_FILE_ORDER_SHA256
    assert recognise(real_lengths) == recognise(sorted(real_lengths)) == "pinned"


def test_one_number_changed_agrees_in_every_statistic_and_is_not_pinned(real_lengths) -> None:
    changed = one_number_changed(real_lengths)
    assert sum(a != b for a, b in zip(real_lengths, changed, strict=True)) == 1
    assert compare(summarise(changed)) == []
    assert recognise(changed) == "unpinned"
