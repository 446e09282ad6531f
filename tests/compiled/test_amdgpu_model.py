"""The latency model: what it states of itself, and how it turns rounds and bytes into time."""

import pytest
from amdgpu_text import CARRIED, DEPENDENT, assembly

from k3bench.compiled.amdgpu.figures import code_figures
from k3bench.compiled.amdgpu.isa import parse
from k3bench.compiled.amdgpu.model import (
    Work,
    fit_document,
    judged_error,
    kernel_profile,
    kernel_seconds,
    latency_model,
    path_profile,
)
from k3bench.compiled.amdgpu.residency import residency
from k3bench.compiled.amdgpu.targets import GFX950

MODEL = latency_model()
WORK = {"iterations": 100, "mean_iterations": 100.0, "iteration_bytes": None,
        "merge_iterations": 0, "hbm_bytes": 1 << 20}  # fmt: skip


def seconds(lines, grid, registers=256, *, near=False, units=256, **work):
    figures = code_figures(parse(assembly(*lines)), waves=4, wave_threads=64)
    fit = residency(
        vector_registers=registers, lds_bytes=0, waves=4, grid=grid, target=GFX950,
        compute_units=units,
    )  # fmt: skip
    profile = kernel_profile(figures, GFX950, waves=4, all_near=near)
    return kernel_seconds(
        profile, fit, MODEL, waves=4, work=Work(**{**WORK, **work}), target=GFX950,
        compute_units=units,
    )  # fmt: skip


def test_the_stated_error_is_that_of_its_points():
    errors = [abs(error) for error in fit_document()["errors"].values()]
    stated = judged_error("gfx950")
    assert stated["mean"] == pytest.approx(sum(errors) / len(errors), abs=1e-3)
    assert stated["worst"] == max(errors)
    assert judged_error("gfx942") is None


def test_each_round_trip_of_an_iteration_costs_a_latency():
    carried = seconds(CARRIED, grid=1)
    dependent = seconds(DEPENDENT, grid=1)
    # 32 indices of 4 bytes lie in a line: one of 32 index loads goes to memory, the others to L1.
    l1_s = GFX950.l1_latency_cycles / GFX950.clock_hz
    assert dependent - carried > 100 * l1_s
    assert dependent - carried < 100 * MODEL.latency_s
    assert seconds(DEPENDENT, grid=1, near=True) < dependent


def test_one_workgroup_too_many_costs_a_round():
    one, two = seconds(DEPENDENT, grid=512), seconds(DEPENDENT, grid=513)
    assert two - MODEL.launch_s == pytest.approx(2 * (one - MODEL.launch_s), rel=1e-6)
    assert seconds(DEPENDENT, grid=1024) == pytest.approx(two)


def test_rounds_take_their_mean_workgroup_and_the_longest_is_a_tail():
    uniform = seconds(DEPENDENT, grid=1024)
    half = seconds(DEPENDENT, grid=1024, mean_iterations=50.0)
    iteration = (uniform - seconds(DEPENDENT, grid=1024, iterations=99, mean_iterations=99.0)) / 2
    assert uniform - half == pytest.approx(50 * iteration, rel=1e-6)


def test_an_unrolled_loop_has_as_many_fewer_iterations_as_its_bytes_say():
    # The loop loads 16 bytes a lane, 4 KiB a workgroup; the source said 2 KiB an iteration.
    unrolled = seconds(CARRIED, grid=1, iteration_bytes=2048)
    assert unrolled == pytest.approx(seconds(CARRIED, grid=1, iterations=50, mean_iterations=50.0))


def test_what_one_workgroup_merges_comes_after_all_rounds():
    lines = (*CARRIED[:-1], *(".LBB0_2:" if "LBB0_1:" in line else line.replace("BB0_1", "BB0_2")
                              for line in DEPENDENT))  # fmt: skip
    alone = seconds(lines, grid=512)
    assert seconds(lines, grid=512, merge_iterations=1) == alone
    merged = [seconds(lines, grid=512, merge_iterations=n) - alone for n in (11, 21)]
    assert 0 < merged[0] == pytest.approx(merged[1] / 2)


def test_a_stream_is_bound_by_its_bytes_and_a_partition_by_its_share():
    streamed = seconds(CARRIED, grid=512, hbm_bytes=68 * 10**9)
    assert streamed == pytest.approx(0.01 + MODEL.launch_s)
    fewer = seconds(CARRIED, grid=32, hbm_bytes=68 * 10**9, units=32)
    assert fewer == pytest.approx(0.08 + MODEL.launch_s)


def test_a_wave_alone_takes_at_least_its_issue_cycles():
    figures = code_figures(parse(assembly(*CARRIED)), waves=4, wave_threads=64)
    cost = path_profile(figures.loops[0][0].iteration, GFX950, waves=4, once=False).cost(MODEL)
    assert cost.wave_s > cost.simd_s > 0
    assert cost.lds_s == 0


def test_data_comes_in_at_the_rate_of_the_l1():
    load = "global_load_dwordx4 v[{}:{}], v[2:3], off offset:{}"
    loads = [load.format(8 + 4 * n, 11 + 4 * n, 256 * n) for n in range(8)]

    def wave_s(lines, waves):
        instructions = parse(assembly(*lines, "s_waitcnt vmcnt(0)", "s_endpgm"))
        path = [i for block in instructions.blocks.values() for i in block.instructions]
        return path_profile(path, GFX950, waves=waves, once=True).cost(MODEL).wave_s

    # Seven more loads of 16 bytes a lane; four waves take four times as long for theirs.
    more = [wave_s(loads, waves) - wave_s(loads[:1], waves) for waves in (1, 4)]
    rate = GFX950.l1_bytes_per_cycle * GFX950.clock_hz
    assert more[1] == pytest.approx(7 * 16 * 64 * 4 / rate, rel=1e-6)
    assert more[0] < more[1]
