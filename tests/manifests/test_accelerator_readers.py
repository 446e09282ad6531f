"""TPU, AMD and NVIDIA readers against fake trees and fake vendor programs."""

import json
import shutil
import time
from pathlib import Path

import pytest
from fake_machines import FakeMachine

from manifests import accelerators
from manifests.accelerators import read_accelerators, read_tpu
from manifests.amd import read_amd
from manifests.nvidia import read_nvidia


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def mi355x(fake: FakeMachine, card: int = 0, address: str = "0000:75:00.0") -> str:
    device = f"/sys/class/drm/card{card}/device"
    fake.write(
        device,
        vendor="0x1002",
        device="0x75a3",
        revision="0x00",
        subsystem_device="0x75a3",
        uevent=f"DRIVER=amdgpu\nPCI_CLASS=120000\nPCI_SLOT_NAME={address}",
        mem_info_vram_total=309220868096,
        mem_info_vram_used=297500672,
        vbios_version="113-M355-01-1K1-012",
        unique_id="8f3b2c1d0e4f5a6b",
        current_compute_partition="CPX",
        current_memory_partition="NPS1",
        power_dpm_force_performance_level="auto",
        pp_dpm_sclk="S: 90Mhz *\n0: 132Mhz\n1: 2400Mhz",
        pp_dpm_mclk="0: 900Mhz\n1: 1900Mhz *",
        gpu_busy_percent=3,
    )
    fake.write(f"{device}/fw_version", mec_fw_version="0x0000002e", sdma_fw_version="0x00000011")
    fake.write(
        f"{device}/hwmon/hwmon4",
        power1_cap=1400000000,
        power1_average=251000000,
        freq1_input=132000000,
        freq2_input=1900000000,
        temp2_input=41000,
        temp2_label="junction",
        temp3_input=38500,
        temp3_label="mem",
    )
    return device


def test_no_device_is_an_empty_list_and_asks_no_tool(fake: FakeMachine) -> None:
    marker = fake.root / "asked"
    for tool in ("amd-smi", "rocm-smi"):
        fake.tool(tool, f"echo x > '{marker}'")
    found, now = read_accelerators(fake.machine())
    assert found["amd"]["devices"] == found["nvidia"]["devices"] == found["tpu"]["devices"] == []
    assert found["tpu"]["device_kind"] is None
    assert now == {"amd": [], "nvidia": []}
    assert not marker.exists()


def test_an_mi355x_is_read_from_sysfs_alone(fake: FakeMachine) -> None:
    mi355x(fake)
    fake.file("/sys/class/drm/card0-DP-1/device/vendor", "0x1002")
    fake.file("/sys/class/drm/card9/device/vendor", "0x1a03")
    fake.file("/sys/module/amdgpu/version", "6.14.14")
    fake.file("/sys/module/amdgpu/srcversion", "6CCB5408246071AC9F63359")
    found, now = read_amd(fake.machine())
    assert found["driver_version"] == "6.14.14"
    assert found["driver_source"] == "6CCB5408246071AC9F63359"
    assert found["devices"] == [
        {
            "name": None,
            "pci_device": "0x75a3",
            "pci_revision": "0x00",
            "pci_subsystem": "0x75a3",
            "vram_bytes": 309220868096,
            "vbios": "113-M355-01-1K1-012",
            "firmware": {"mec": "0x0000002e", "sdma": "0x00000011"},
            "compute_partition": "CPX",
            "memory_partition": "NPS1",
            "performance_level": "auto",
            "core_clocks": "132 2400",
            "memory_clocks": "900 1900",
            "power_cap_w": 1400.0,
            "unique_id": "8f3b2c1d0e4f5a6b",
            "pci_address": "0000:75:00.0",
        }
    ]
    assert now == [
        {
            "core_clock_hz": 132_000_000,
            "memory_clock_hz": 1_900_000_000,
            "power_w": 251.0,
            "temperatures_c": {"junction": 41.0, "mem": 38.5},
            "busy_percent": 3,
            "vram_used_bytes": 297500672,
        }
    ]


def test_the_current_level_of_a_clock_is_not_a_lasting_fact(fake: FakeMachine) -> None:
    device = mi355x(fake)
    before = read_amd(fake.machine())[0]
    fake.file(f"{device}/pp_dpm_sclk", "S: 700Mhz *\n0: 132Mhz\n1: 2400Mhz")
    fake.file(f"{device}/pp_dpm_mclk", "0: 900Mhz *\n1: 1900Mhz")
    assert read_amd(fake.machine())[0] == before


def test_a_partitioned_board_is_one_device_with_eight_compute_nodes(fake: FakeMachine) -> None:
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    fake.file(f"{nodes}/0/properties", "cpu_cores_count 96\nsimd_count 0")
    for node in range(1, 9):
        fake.file(
            f"{nodes}/{node}/properties",
            "cpu_cores_count 0\nsimd_count 128\nsimd_per_cu 4\nnum_xcc 1\nwave_front_size 64\n"
            "lds_size_in_kb 160\ngfx_target_version 90500\nmax_engine_clk_fcompute 2400\n"
            "unique_id 10325476981203945",
        )
    mi355x(fake)
    found, _ = read_amd(fake.machine())
    assert len(found["devices"]) == 1
    assert (
        found["compute_nodes"]
        == [
            {
                "target": "gfx950",
                "compute_units": 32,
                "xccs": 1,
                "wavefront_size": 64,
                "lds_bytes": 160 * 1024,
                "max_engine_clock_hz": 2_400_000_000,
            }
        ]
        * 8
    )


@pytest.mark.parametrize(
    ("version", "target"),
    [(90500, "gfx950"), (90010, "gfx90a"), (90402, "gfx942"), (110001, "gfx1101")],
)
def test_a_target_is_named_as_the_compiler_names_it(
    fake: FakeMachine, version: int, target: str
) -> None:
    fake.file(
        "/sys/class/kfd/kfd/topology/nodes/1/properties",
        f"simd_count 4\ngfx_target_version {version}",
    )
    found, _ = read_amd(fake.machine())
    assert found["compute_nodes"][0]["target"] == target
    assert found["compute_nodes"][0]["compute_units"] is None


AMD_SMI = [
    {
        "gpu": 0,
        "asic": {"market_name": "AMD Instinct MI355X", "vendor_id": "0x1002"},
        "bus": {"bdf": "0000:75:00.0"},
        "driver": {"name": "amdgpu", "version": "6.16.13"},
    }
]


@pytest.mark.parametrize("document", [AMD_SMI, {"gpu_data": AMD_SMI}], ids=["rocm6", "rocm7"])
def test_amd_smi_gives_the_name_and_the_driver_that_sysfs_lacks(
    fake: FakeMachine, document: object
) -> None:
    mi355x(fake)
    fake.prints("amd-smi", json.dumps(document))
    found, _ = read_amd(fake.machine())
    assert found["devices"][0]["name"] == "AMD Instinct MI355X"
    assert found["driver_version"] == "6.16.13"


@pytest.mark.parametrize("amd_smi", [None, "exit 1", "echo not json", "echo '\"text\"'"])
def test_rocm_smi_is_asked_where_amd_smi_does_not_answer(
    fake: FakeMachine, amd_smi: str | None
) -> None:
    mi355x(fake)
    if amd_smi:
        fake.tool("amd-smi", amd_smi)
    fake.prints(
        "rocm-smi",
        json.dumps(
            {
                "card0": {"Card Series": "AMD Instinct MI355X", "PCI Bus": "0000:75:00.0"},
                "card1": {"Card Series": "N/A", "PCI Bus": "N/A"},
                "system": {"Driver version": "6.10.5"},
            }
        ),
    )
    found, _ = read_amd(fake.machine())
    assert found["devices"][0]["name"] == "AMD Instinct MI355X"
    assert found["driver_version"] == "6.10.5"


def test_a_tool_that_hangs_is_ended_with_its_children(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = shutil.which("sleep")
    fake.tool("slow", f"{sleep} 60 & {sleep} 60")
    start = time.monotonic()
    assert fake.machine().run(["slow"], timeout_s=0.3) is None
    assert time.monotonic() - start < 5


def test_a_tool_that_cannot_be_run_is_a_tool_that_is_not_there(fake: FakeMachine) -> None:
    program = fake.bin / "broken"
    program.write_text("no interpreter line, no format")
    program.chmod(0o755)
    assert fake.machine().run(["broken"]) is None


NVIDIA_SMI = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>570.124.06</driver_version>
  <cuda_version>12.8</cuda_version>
  <gpu id="00000000:19:00.0">
    <product_name>NVIDIA H200</product_name>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <uuid>GPU-8f6c0d3e-1b2c-4d5e-8f90-0a1b2c3d4e5f</uuid>
    <vbios_version>96.00.BC.00.01</vbios_version>
    <compute_mode>Default</compute_mode>
    <pci><pci_bus_id>00000000:19:00.0</pci_bus_id></pci>
    <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
    <fb_memory_usage><total>143771 MiB</total><used>1 MiB</used></fb_memory_usage>
    <utilization><gpu_util>0 %</gpu_util></utilization>
    <temperature><gpu_temp>31 C</gpu_temp></temperature>
    <gpu_power_readings>
      <instant_power_draw>76.42 W</instant_power_draw>
      <current_power_limit>700.00 W</current_power_limit>
    </gpu_power_readings>
    <clocks><sm_clock>345 MHz</sm_clock><mem_clock>3201 MHz</mem_clock></clocks>
    <applications_clocks>
      <graphics_clock>Requested functionality has been deprecated</graphics_clock>
      <mem_clock>N/A</mem_clock>
    </applications_clocks>
    <max_clocks><sm_clock>1980 MHz</sm_clock><mem_clock>3201 MHz</mem_clock></max_clocks>
  </gpu>
</nvidia_smi_log>
"""


def test_nvidia_smi_is_read_with_units(fake: FakeMachine) -> None:
    fake.prints("nvidia-smi", NVIDIA_SMI)
    fake.write("/sys/bus/pci/devices/0000:19:00.0", vendor="0x10de")
    fake.file("/sys/bus/pci/devices/0000:19:00.0/class", "0x030200")
    found, now = read_nvidia(fake.machine())
    assert found["driver_version"] == "570.124.06"
    assert found["pci_count"] == 1
    (device,) = found["devices"]
    assert device["name"] == "NVIDIA H200"
    assert device["memory_bytes"] == 143771 << 20
    assert device["power_limit_w"] == 700.0
    assert device["max_core_clock_hz"] == 1_980_000_000
    assert device["application_core_clock_hz"] is None
    assert device["application_memory_clock_hz"] is None
    assert device["mig_mode"] == "Disabled"
    assert now == [
        {
            "core_clock_hz": 345_000_000,
            "memory_clock_hz": 3_201_000_000,
            "power_w": 76.42,
            "temperature_c": 31,
            "busy_percent": 0,
            "memory_used_bytes": 1 << 20,
        }
    ]


@pytest.mark.parametrize("script", ["exit 9", "echo '<half'"], ids=["fails", "no-xml"])
def test_a_broken_nvidia_driver_still_shows_the_device_on_the_bus(
    fake: FakeMachine, script: str
) -> None:
    fake.tool("nvidia-smi", script)
    fake.write("/sys/bus/pci/devices/0000:19:00.0", vendor="0x10de")
    fake.file("/sys/bus/pci/devices/0000:19:00.0/class", "0x030200")
    # An NVIDIA bridge is no accelerator.
    fake.write("/sys/bus/pci/devices/0000:20:00.0", vendor="0x10de")
    fake.file("/sys/bus/pci/devices/0000:20:00.0/class", "0x068000")
    fake.file(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build",
    )
    found, now = read_nvidia(fake.machine())
    assert (found["devices"], now, found["pci_count"]) == ([], [], 1)
    assert found["driver_version"] == "570.124.06"


def v6e(fake: FakeMachine, address: str = "0000:00:05.0") -> None:
    device = f"/sys/bus/pci/devices/{address}"
    fake.write(device, vendor="0x1ae0", device="0x006f", revision="0x01")
    fake.link(f"{device}/driver", "../../../bus/pci/drivers/vfio-pci")


def test_tpu_chips_are_counted_on_the_bus(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slot in range(4):
        v6e(fake, f"0000:00:0{slot + 4}.0")
        fake.file(f"/dev/vfio/{slot}", "")
    fake.file("/dev/vfio/vfio", "")
    # Google's network card is no TPU.
    fake.write("/sys/bus/pci/devices/0000:00:03.0", vendor="0x1ae0", device="0x0042")
    monkeypatch.setattr(accelerators.sys, "executable", "runtime")
    fake.tool("runtime", "echo some log line; echo 'k3bench-kinds:TPU v6 lite'")
    found = read_tpu(fake.machine())
    assert [chip["generation"] for chip in found["devices"]] == ["tpu-v6e"] * 4
    assert found["devices"][0]["pci_device"] == "0x006f"
    assert found["devices"][0]["driver"] == "vfio-pci"
    assert found["vfio_groups"] == 4
    assert found["device_kind"] == "TPU v6 lite"


def test_a_tpu_runtime_that_does_not_answer_leaves_the_kind_unknown(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    v6e(fake)
    monkeypatch.setattr(accelerators.sys, "executable", "runtime")
    monkeypatch.setattr(accelerators, "_TPU_RUNTIME_TIMEOUT_S", 0.2)
    fake.tool("runtime", f"{shutil.which('sleep')} 60")
    assert read_tpu(fake.machine())["device_kind"] is None


def test_the_tpu_runtime_is_not_asked_where_the_caller_says_so(
    fake: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    v6e(fake)
    monkeypatch.setattr(accelerators.sys, "executable", "runtime")
    fake.tool("runtime", "echo 'k3bench-kinds:TPU v6 lite'")
    assert read_tpu(fake.machine(), ask_tpu_runtime=False)["device_kind"] is None


def test_older_tpus_show_as_accel_nodes(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators.sys, "executable", "absent")
    for node in range(4):
        fake.file(f"/dev/accel{node}", "")
    found = read_tpu(fake.machine())
    assert (found["accel_nodes"], found["devices"]) == (4, [])
