"""Rates beside a time: from the work and the median alone, shares only of a peak with a source."""

from dataclasses import replace

import pytest
from measure.fakes import ScriptedBackend, experiment

from k3bench.compiled.amdgpu import GPU_TARGETS
from k3bench.measure import Protocol, Work, measure_group
from k3bench.measure.point import Provenance
from k3bench.measure.work import device_peaks, work_figures
from k3bench.roofline.calls import mla_decode_call
from k3bench.roofline.machine import machine_of

PROTOCOL = Protocol("smoke", warmup=0, repeat=3)
PROVENANCE = Provenance("b.device_x", {"S": 8}, "f" * 64, "c" * 40, "run-1")
WORK = Work(hbm_bytes=8_000, flops=1_000_000, notes={"form": "absorbed"})


def _with_work(point, work):
    """The same point whose candidates state their work."""
    return replace(
        point,
        candidates={
            name: (lambda make=make: replace(make(), work=work))
            for name, make in point.candidates.items()
        },
    )


def test_a_measured_record_holds_the_work_and_the_rates_of_its_median() -> None:
    point = _with_work(experiment(ScriptedBackend(), seconds={"a": 0.25}), lambda: WORK)
    (result,) = measure_group(point, ["a"], PROTOCOL, PROVENANCE)
    assert result.to_record()["figures"] == {
        "form": "absorbed", "hbm_bytes": 8_000, "flops": 1_000_000,
        "hbm_bytes_per_s": 32_000.0, "flops_per_s": 4_000_000.0,
    }  # fmt: skip


def test_a_benchmark_without_work_and_a_wrong_kernel_have_no_rates() -> None:
    plain = experiment(ScriptedBackend(), seconds={"a": 0.25})
    (result,) = measure_group(plain, ["a"], PROTOCOL, PROVENANCE)
    assert result.to_record()["figures"] is None

    def unasked() -> Work:
        raise AssertionError("a wrong kernel's work is of no interest")

    wrong = experiment(ScriptedBackend(), seconds={"a": 0.25}, wrong=frozenset({"a"}))
    (result,) = measure_group(_with_work(wrong, lambda: WORK), ["a"], PROTOCOL, PROVENANCE)
    assert result.correctness.status == "wrong" and result.to_record()["figures"] is None
    raising = experiment(ScriptedBackend(), seconds={"a": 0.25}, raising=frozenset({"a"}))
    (result,) = measure_group(_with_work(raising, unasked), ["a"], PROTOCOL, PROVENANCE)
    assert result.correctness.status == "failed" and result.to_record()["figures"] is None


def test_a_known_device_gives_shares_of_its_named_peaks() -> None:
    figures = work_figures(Work(4 * 10**9, 10**12), 1e-3, "mi355x")
    assert figures["hbm_share_of_peak"] == pytest.approx(0.5)  # 4 of 8 TB/s
    assert figures["flops_share_of_peak"] == pytest.approx(0.4)  # 1 of 2.5 PFLOP/s
    assert figures["peak_hbm_bytes_per_s"] == 8.0e12
    source = str(figures["peak_source"])
    assert "data sheet: 8 TB/s" in source and "bf16 matrix, as stated" in source
    assert not any(name.startswith("roofline.") for name in figures), "no call, no bound"


def test_shares_are_of_the_peak_of_the_operands_and_an_assumed_one_says_so() -> None:
    call = mla_decode_call((64,), heads=2, dtype="float32")
    figures = work_figures(Work(1, 10**9, call=call), 1e-3, "tpu-v6e")
    assert figures["peak_flops_per_s"] == 1.53e14
    assert "fp32 matrix, assumed: a sixth of bf16" in str(figures["peak_source"])


def test_a_partition_has_its_share_of_the_peaks_and_says_so() -> None:
    whole, partition = device_peaks("mi355x"), device_peaks("mi355x", 32)
    assert whole is not None and partition is not None
    assert partition.hbm_bytes_per_s == whole.hbm_bytes_per_s / 8
    assert partition.flops_per_s == whole.flops_per_s / 8
    assert "32 of 256 compute units" in partition.source
    assert device_peaks("mi355x", 256) == whole


@pytest.mark.parametrize("device", ["cpu", "some-gpu", "../devices/mi355x", "mi355x.toml"])
def test_a_device_without_known_peaks_has_rates_and_no_shares(device: str) -> None:
    assert device_peaks(device) is None
    call = mla_decode_call((64,), heads=2)
    figures = work_figures(replace(WORK, call=call), 1.0, device)
    assert figures["flops_per_s"] == 1_000_000.0
    assert not any("share" in name or "peak_" in name for name in figures)
    assert {name for name in figures if name.startswith("roofline")} == {"roofline.none"}
    assert device in str(figures["roofline.none"])


def test_every_compiled_gpu_is_a_device_with_peaks() -> None:
    for target in GPU_TARGETS.values():
        machine = machine_of(target.device, target.compute_units)
        assert machine is not None and machine.share == 1
        assert machine.hbm_bytes_per_s == target.hbm_bytes_per_s
        assert machine.matrix_flops_per_s() == target.flops_per_s


def test_a_device_of_a_chip_of_two_has_half_of_its_rates() -> None:
    machine = machine_of("tpu7x")
    assert machine is not None and machine.share == 0.5
    assert "one of its 2 devices" in machine.peaks()
