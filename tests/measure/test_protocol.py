"""Presets, and what overrides them."""

import pytest

from k3bench.measure.protocol import PRESETS, Protocol, ProtocolError, preset_name, resolve_protocol


def test_the_published_presets_have_the_published_counts() -> None:
    assert (PRESETS["device"].warmup, PRESETS["device"].repeat) == (20, 100)
    assert (PRESETS["ladder"].warmup, PRESETS["ladder"].repeat) == (5, 20)


def test_an_unknown_preset_is_refused_with_the_choices() -> None:
    with pytest.raises(ProtocolError, match="smoke, ladder, device"):
        preset_name({"K3BENCH_PRESET": "fast"})


def test_no_variable_means_smoke() -> None:
    assert preset_name({}) == preset_name({"K3BENCH_PRESET": ""}) == "smoke"


def test_overrides_apply_and_quick_never_passes_as_a_preset() -> None:
    assert resolve_protocol("ladder", warmup=3, repeat=15) == Protocol("ladder", 3, 15)
    assert resolve_protocol("device", quick=True) == Protocol("quick", 0, 1)


@pytest.mark.parametrize(("warmup", "repeat"), [(-1, 5), (0, 0)])
def test_counts_that_measure_nothing_are_refused(warmup: int, repeat: int) -> None:
    with pytest.raises(ProtocolError, match="cannot be measured"):
        Protocol("t", warmup, repeat)
