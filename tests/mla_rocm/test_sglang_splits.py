"""sglang's server defaults: pinned tables, and against sglang's own code where it is installed."""

import importlib.util

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mla_devices import INTERPRETED

from mla_rocm.providers.sglang_splits import scheduled_splits, server_max_splits

sglang_interpreted = pytest.mark.skipif(
    not INTERPRETED or importlib.util.find_spec("sglang") is None,
    reason="needs sglang and TRITON_INTERPRET=1: docs/mla.md",
)


@pytest.mark.parametrize(
    ("platform", "units", "expected"),
    [("cpu", 0, 8), ("rocm", 256, 256), ("rocm", 32, 32), ("rocm", 304, 256), ("cuda", 132, 256)],
    ids=["interpreter", "mi355x", "cpx", "mi300x", "h200"],
)
def test_the_servers_bound_on_splits(platform, units, expected):
    assert server_max_splits(platform, units) == expected


def test_a_release_that_does_not_raise_the_bound_keeps_its_option():
    assert server_max_splits("rocm", 256, raised_for_mla=False) == 16
    assert server_max_splits("cuda", 132, raised_for_mla=False) == 8


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((4096,), (256,)),
        ((65_536,) * 24, (107,) * 24),
        ((69_632,) * 136, (19,) * 136),
        ((1000, 100), (250, 25)),
        ((64,), (64,)),
    ],
    ids=["4K", "64K-B24", "68K-B136", "ragged", "a-page"],
)
def test_the_schedulers_counts_for_twelve_heads_on_mi355x(lengths, expected):
    assert scheduled_splits(lengths, 12, 256, 256) == expected


@sglang_interpreted
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 100_000), min_size=1, max_size=6),
    heads=st.sampled_from([2, 12, 16, 17, 64]),
    bound=st.sampled_from([8, 16, 256]),
)
def test_the_counts_are_those_of_sglangs_own_scheduler(lengths, heads, bound):
    from sglang.kernels.ops.attention.metadata import get_num_kv_splits_triton

    counts = torch.zeros(len(lengths), dtype=torch.int32)
    get_num_kv_splits_triton[(1,)](
        counts, torch.tensor(lengths), len(lengths), 1, heads, 1, bound, 256, MAX_NUM_SEQ=256
    )
    assert scheduled_splits(lengths, heads, bound, 256) == tuple(counts.tolist())
