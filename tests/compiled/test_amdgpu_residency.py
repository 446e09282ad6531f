"""Workgroups per compute unit and rounds: the arithmetic behind the measured cliff."""

from dataclasses import replace

import pytest

from k3bench.compiled.amdgpu import get_gpu_target
from k3bench.compiled.amdgpu.residency import residency, waves_per_simd
from k3bench.compiled.errors import CompiledError

GFX950 = get_gpu_target("gfx950")

# sglang's stage 1 at batch 24 (2 warps, 32 keys) as Triton 3.7.1 compiles it for gfx950.
STAGE1 = {"vector_registers": 256 + 76, "lds_bytes": 36_864, "waves": 2}


@pytest.mark.parametrize(
    ("splits", "workgroups", "rounds"), [(21, 504, 1), (22, 528, 2)], ids=["21 fit", "22 do not"]
)
def test_the_measured_cliff_lies_between_21_and_22_splits_at_batch_24(splits, workgroups, rounds):
    fit = residency(grid=24 * splits, target=GFX950, **STAGE1)
    assert (fit.grid, fit.per_compute_unit, fit.resident_workgroups) == (workgroups, 2, 512)
    assert (fit.rounds, fit.limit) == (rounds, "registers")


@pytest.mark.parametrize("splits", [4, 7], ids=["4 splits", "7 splits"])
def test_batch_136_fits_one_round_of_single_wave_workgroups(splits):
    fit = residency(
        vector_registers=512, lds_bytes=32_768, waves=1, grid=136 * splits, target=GFX950
    )
    assert (fit.per_compute_unit, fit.rounds) == (4, 1)


@pytest.mark.parametrize(
    ("registers", "waves"),
    [(0, 8), (64, 8), (65, 7), (72, 7), (128, 4), (129, 3), (168, 3), (256, 2), (257, 1), (512, 1)],
)
def test_waves_per_simd_follow_from_512_registers_in_granules_of_8(registers, waves):
    assert waves_per_simd(registers, GFX950) == waves


@pytest.mark.parametrize(
    ("lds", "workgroups"),
    [(160 << 10, 1), (80 << 10, 2), ((80 << 10) + 1, 1), (36_864, 4), (0, 8)],
)
def test_lds_is_shared_out_in_granules(lds, workgroups):
    fit = residency(vector_registers=64, lds_bytes=lds, waves=4, grid=1, target=GFX950)
    assert fit.per_compute_unit == workgroups


def test_the_limit_names_the_resource_to_save():
    def limit(registers, lds):
        return residency(
            vector_registers=registers, lds_bytes=lds, waves=4, grid=1, target=GFX950
        ).limit

    assert limit(256, 1024) == "registers"
    assert limit(64, 60_000) == "lds"
    assert limit(32, 0) == "waves"


def test_multi_wave_workgroups_are_limited_by_barriers_and_single_waves_are_not():
    one = residency(vector_registers=32, lds_bytes=0, waves=1, grid=1, target=GFX950)
    two = residency(vector_registers=32, lds_bytes=0, waves=2, grid=1, target=GFX950)
    assert (one.per_compute_unit, two.per_compute_unit) == (32, 16)


def test_a_partition_holds_its_own_compute_units_only():
    fit = residency(grid=504, target=GFX950, compute_units=32, **STAGE1)
    assert (fit.resident_workgroups, fit.rounds) == (64, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lds_bytes": (160 << 10) + 1}, "does not fit gfx950"),
        ({"vector_registers": 512, "waves": 8}, "use fewer warps"),
        ({"grid": 0}, "grid is 0"),
        ({"waves": 0}, "waves is 0"),
        ({"compute_units": 0}, "compute_units is 0"),
    ],
    ids=["lds", "registers", "grid", "waves", "units"],
)
def test_what_cannot_be_is_refused_by_name(change, message):
    with pytest.raises(CompiledError, match=message):
        residency(**{"grid": 1, "target": GFX950, **STAGE1, **change})


def test_another_target_has_other_limits():
    small = replace(GFX950, lds_bytes=64 << 10, lds_limit_bytes=64 << 10)
    assert residency(grid=1, target=small, **STAGE1).per_compute_unit == 1
    with pytest.raises(CompiledError, match="use one of gfx950, gfx942, sm_90"):
        get_gpu_target("gfx90a")
