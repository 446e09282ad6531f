"""The compiled MLA benchmarks for gfx950: a CPX partition, and the prefix forms side by side."""

import pytest

pytest.importorskip("triton", reason="triton is the compiler under test")

from benchmarks import compiled_mla
from k3bench.compiled.amdgpu import compile_gpu_points, get_gpu_target
from mla_rocm.cost import prefill_attention_flops
from mla_rocm.decode_plan import choose_splits
from mla_rocm.geometry import CPX_COMPUTE_UNITS, MlaGeometry


def _compiled(benchmark, *parameters):
    case = benchmark()._case(*parameters)
    [result] = compile_gpu_points([case.point], get_gpu_target(case.target))
    assert result.status == "ok", result.detail
    return case, result


def test_a_partition_holds_an_eighth_of_the_workgroups_and_is_planned_for_them():
    case, part = _compiled(compiled_mla.DecodeOnPartition, "64K", 1, "triton")
    assert case.point.compute_units == CPX_COMPUTE_UNITS == 32
    assert case.workload == compiled_mla.Decode()._case("64K", 1, "triton").workload
    assert part.resident_workgroups == 64, "a whole device holds 512"
    stage1, stage2 = part.kernels
    assert stage1["workgroups"] == choose_splits(65_536, 1, 12, CPX_COMPUTE_UNITS) == 64
    assert part.rounds == 1 and part.round_trips == 1
    # An eighth of 8 TB/s.
    assert part.lower_bound_us == pytest.approx(part.hbm_bytes / 1e12 * 1e6)
    assert part.modelled_us > part.lower_bound_us
    assert stage2["workgroups"] >= 12


@pytest.mark.slow
def test_16k_and_16k_compiled_shows_the_trap():
    _, decompressed = _compiled(compiled_mla.LastChunk, "32K", "triton_chunked_decompressed")
    _, absorbed = _compiled(compiled_mla.LastChunk, "32K", "triton_absorbed")
    _, first = _compiled(compiled_mla.Prefill, "16K", 1, "triton_decompressed")
    chunk, geometry = 16_384, MlaGeometry()
    assert first.flops == prefill_attention_flops(geometry, chunk, new_form="decompressed")
    assert f"{first.flops:.2e}" == "1.03e+12" and f"{absorbed.flops:.2e}" == "1.05e+13"
    assert absorbed.flops / first.flops == pytest.approx(10.2, abs=0.05)
    assert decompressed.flops / first.flops == pytest.approx(3.0, abs=5e-3)
    for result in (decompressed, absorbed, first):
        assert result.scratch_bytes == 0 and result.scratch_operations_in_loops == 0
        assert result.lds_bytes <= 160 << 10 and result.mfma > 0 and result.rounds >= 1
    assert absorbed.modelled_us > 2 * decompressed.modelled_us > 2 * first.modelled_us


def test_a_compiled_kda_point_names_the_measured_ones_workload():
    case = compiled_mla.KdaDecode()._case(8, "triton")
    from benchmarks import kda_decode

    measured = kda_decode.Decode().device_decode(8, "torch_batched")
    assert case.workload == measured.workload
    assert case.tokens == measured.tokens == 8
