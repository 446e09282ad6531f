"""Devices: every figure says where it comes from, and other rooms state no other rate."""

import pytest

from k3bench.compiled.amdgpu.targets import GPU_TARGETS
from k3bench.compiled.tpu.targets import TARGETS
from k3bench.measure.work import device_peaks
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.hardware import get_hardware, hardware_names

DEVICE = """
name = "toy"
title = "Toy"
vector = { value = 1e12, source = "a sheet" }
hbm = { value = 1e12, source = "a sheet" }
streamed = { value = 8e11, assumed = "a guess" }
capacity = { value = 1e9, source = "a sheet" }
link = { value = 1e11, source = "a sheet" }
[matrix]
bf16 = { value = 1e14, source = "a sheet" }
[on_chip]
sram = { value = 1e6, source = "a sheet" }
"""


def test_the_devices_that_the_survey_asks_for_are_there():
    asked = {"tpu-v6e", "tpu7x", "mi355x", "mi300x", "h200", "ascend-910c"}
    assert asked < set(hardware_names())
    assert any(name.startswith("cpu") for name in hardware_names())


@pytest.mark.parametrize("name", hardware_names())
def test_every_figure_has_a_source_and_streaming_is_below_the_peak(name):
    device = get_hardware(name)
    assert device.name == name
    figures = [device.vector, device.hbm, device.streamed, device.capacity, device.link]
    for figure in (*figures, *device.matrix.values(), *device.on_chip.values()):
        assert len(figure.source) > 10
    assert device.streamed.value < device.hbm.value
    assert device.link.value < device.hbm.value
    assert set(device.assumptions()) <= {
        *(f"matrix.{dtype}" for dtype in device.matrix),
        *(f"on_chip.{memory}" for memory in device.on_chip),
        *("vector", "hbm", "streamed", "capacity", "link"),
    }


def test_cube_and_vector_cores_are_apart_on_ascend_alone():
    apart = [name for name in hardware_names() if get_hardware(name).separate_units]
    assert apart == ["ascend-910c"]
    assert {"cube_l1", "vector_ub"} <= set(get_hardware("ascend-910c").on_chip)


@pytest.mark.parametrize("name", GPU_TARGETS)
def test_compiled_gpu_targets_have_the_rates_of_the_table(name):
    target = GPU_TARGETS[name]
    device = get_hardware(target.device)
    assert target.hbm_bytes_per_s == device.hbm.value
    assert target.streamed_hbm_bytes_per_s == device.streamed.value
    assert target.flops_per_s == device.matrix_flops_per_s("bf16")


@pytest.mark.parametrize("name", TARGETS)
def test_compiled_tpu_targets_have_the_rates_of_the_table(name):
    device = get_hardware(TARGETS[name].device)
    assert TARGETS[name].hbm_bytes_per_s == device.hbm.value / device.devices


def test_shares_of_measured_records_are_of_the_same_peaks():
    peaks = device_peaks("mi355x")
    device = get_hardware("mi355x")
    assert peaks is not None
    assert (peaks.hbm_bytes_per_s, peaks.flops_per_s) == (
        device.hbm.value,
        device.matrix_flops_per_s(),
    )


def test_a_device_of_the_users_own_is_read_from_its_path(tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(DEVICE)
    device = get_hardware(str(path))
    assert device.assumptions() == {"streamed": "8e+11: a guess"}
    with pytest.raises(RooflineError, match="toy states no matrix peak for 'fp8': use bf16"):
        device.matrix_flops_per_s("fp8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "Toy"\n', "", "title is missing"),
        ("value = 1e14", "value = 0", "bf16: value is 0: give a positive number"),
        (
            'link = { value = 1e11, source = "a sheet" }',
            "link = { value = 1e11 }",
            "source is miss",
        ),
        ('name = "toy"', 'name = "toy"\ncolour = "red"', "unknown key colour"),
        ("bf16", "bf61", "matrix: bf16 is missing"),
        ('title = "Toy"', "title = ", "cannot be read"),
        ('title = "Toy"', "title = 3", "title is 3: give a str"),
    ],
)
def test_a_definition_that_is_wrong_says_where(tmp_path, old, new, message):
    path = tmp_path / "wrong.toml"
    path.write_text(DEVICE.replace(old, new))
    with pytest.raises(RooflineError, match=message):
        get_hardware(str(path))


def test_an_unknown_device_names_the_known_ones():
    with pytest.raises(RooflineError, match=r"device 'mi400x': use one of .*mi355x"):
        get_hardware("mi400x")
    with pytest.raises(RooflineError, match="cannot be read"):
        get_hardware("no/such.toml")
