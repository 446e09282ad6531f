"""The latency model: what it states of itself, and how it turns rounds and bytes into time."""

import pytest
from amdgpu_text import CARRIED, DEPENDENT, assembly

from k3bench.compiled.amdgpu.figures import code_figures
from k3bench.compiled.amdgpu.isa import parse
from k3bench.compiled.amdgpu.model import (
    _document,
    judged_error,
    kernel_seconds,
    latency_model,
    path_cost,
)
from k3bench.compiled.amdgpu.residency import residency
from k3bench.compiled.amdgpu.targets import GFX950

MODEL = latency_model()
LAUNCH = {"waves": 4, "iterations": 100, "hbm_bytes": 1 << 20, "target": GFX950,
          "compute_units": 256, "model": MODEL}  # fmt: skip


def seconds(lines, grid, registers=256, **changes):
    figures = code_figures(parse(assembly(*lines)), waves=4, wave_threads=64)
    fit = residency(vector_registers=registers, lds_bytes=0, waves=4, grid=grid, target=GFX950)
    return kernel_seconds(figures, fit, **{**LAUNCH, **changes})


def test_the_stated_error_is_that_of_its_points():
    errors = [abs(error) for error in _document()["errors"].values()]
    stated = judged_error("gfx950")
    assert stated["mean"] == pytest.approx(sum(errors) / len(errors), abs=1e-3)
    assert stated["worst"] == max(errors)
    assert judged_error("gfx942") is None


def test_each_round_trip_of_an_iteration_costs_a_latency():
    carried = seconds(CARRIED, grid=1)
    dependent = seconds(DEPENDENT, grid=1)
    assert dependent - carried == pytest.approx(100 * MODEL.latency_s, rel=0.05)
    assert seconds(DEPENDENT, grid=1, all_near=True) < seconds(DEPENDENT, grid=1)


def test_one_workgroup_too_many_costs_a_round():
    one, two = seconds(DEPENDENT, grid=512), seconds(DEPENDENT, grid=513)
    assert two - MODEL.launch_s == pytest.approx(2 * (one - MODEL.launch_s), rel=1e-6)
    assert seconds(DEPENDENT, grid=1024) == pytest.approx(two)


def test_a_stream_is_bound_by_its_bytes_and_a_partition_by_its_share():
    streamed = seconds(CARRIED, grid=512, hbm_bytes=68 * 10**9)
    assert streamed == pytest.approx(0.01 + MODEL.launch_s)
    fewer = seconds(CARRIED, grid=32, hbm_bytes=68 * 10**9, compute_units=32)
    assert fewer == pytest.approx(0.08 + MODEL.launch_s)


def test_a_wave_alone_takes_at_least_its_issue_cycles():
    figures = code_figures(parse(assembly(*CARRIED)), waves=4, wave_threads=64)
    cost = path_cost(figures.loops[0][0].iteration, MODEL, GFX950, once=False)
    assert cost.wave_s > cost.simd_s > 0
    assert cost.lds_s == 0
