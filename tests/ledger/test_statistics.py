"""The recomputed percentiles are numpy's, for any samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3bench.ledger.statistics import agrees, percentile, summarise


@given(st.lists(st.floats(min_value=1e-9, max_value=1e6), min_size=1, max_size=120))
def test_percentiles_agree_with_numpy(samples):
    summary = summarise(samples)
    p10, median, p90 = np.percentile(samples, [10, 50, 90])
    assert agrees(summary.p10, p10) and agrees(summary.median, median) and agrees(summary.p90, p90)
    assert min(samples) <= summary.p10 <= summary.median <= summary.p90 <= max(samples)


def test_percentiles_of_a_known_list():
    summary = summarise([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (summary.p10, summary.median, summary.p90) == (1.4, 3.0, 4.6)
    assert summarise([7.0]).p90 == 7.0


@pytest.mark.parametrize(("fraction", "expected"), [(0.0, 1.0), (1.0, 4.0), (0.5, 2.5)])
def test_the_ends_and_the_middle(fraction, expected):
    assert percentile([1.0, 2.0, 3.0, 4.0], fraction) == expected


def test_agreement_is_relative_and_tight():
    assert agrees(1e-6 * (1 + 1e-13), 1e-6)
    assert not agrees(1e-6 * (1 + 1e-11), 1e-6)
