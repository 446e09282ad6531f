"""Processor, limits, memory and load, read from fake /proc and /sys trees."""

from pathlib import Path

import pytest
from fake_machines import FakeMachine
from hypothesis import given
from hypothesis import strategies as st

from manifests.cpu import read_cpu, read_cpu_clocks
from manifests.host import read_host, read_limits, read_load, read_memory, read_temperatures
from manifests.machine import cpu_list, parse_cpu_list

CPUS = "/sys/devices/system/cpu"


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def two_socket_server(fake: FakeMachine) -> None:
    """Two sockets of two cores with two threads each: CPUs 0-7, siblings four apart."""
    fake.file(
        "/proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "model name\t: Intel(R) Xeon(R) Platinum 8480+\nstepping\t: 8\nmicrocode\t: 0x2b000603\n"
        "cpu MHz\t\t: 2000.000\nflags\t\t: fpu sse4_2 avx2 avx512f amx_bf16 amx_tile\n"
        "\nprocessor\t: 1\nmodel name\t: ignored\ncpu MHz\t\t: 3800.500\n",
    )
    fake.file(f"{CPUS}/online", "0-7")
    fake.file(f"{CPUS}/smt/active", "1")
    for cpu in range(8):
        first = cpu % 4
        fake.write(
            f"{CPUS}/cpu{cpu}/topology",
            physical_package_id=first // 2,
            core_id=0,
            thread_siblings_list=f"{first},{first + 4}",
        )
        fake.write(
            f"{CPUS}/cpu{cpu}/cpufreq",
            scaling_governor="powersave" if cpu == 5 else "performance",
            scaling_driver="intel_pstate",
            scaling_min_freq=800000,
            scaling_max_freq=3800000,
            scaling_cur_freq=1000000 + cpu,
        )
    fake.file(f"{CPUS}/intel_pstate/no_turbo", "0")
    caches = (
        (1, "Data", "48K", "0,4"),
        (1, "Instruction", "32K", "0,4"),
        (2, "Unified", "2048K", "0,4"),
    )
    for index, (level, kind, size, shared) in enumerate(
        (*caches, (3, "Unified", "105M", "0-1,4-5"))
    ):
        fake.write(
            f"{CPUS}/cpu0/cache/index{index}",
            level=level,
            type=kind,
            size=size,
            shared_cpu_list=shared,
        )


def test_the_topology_counts_sockets_cores_and_threads(fake: FakeMachine) -> None:
    two_socket_server(fake)
    cpu = read_cpu(fake.machine())
    assert (cpu["sockets"], cpu["cores"], cpu["threads"]) == (2, 4, 8)
    assert cpu["smt_active"] is True
    assert cpu["model"] == "Intel(R) Xeon(R) Platinum 8480+"
    assert cpu["microcode"] == "0x2b000603"
    assert cpu["isa"] == "amx_bf16 amx_tile avx2 avx512f sse4_2"


def test_caches_are_named_by_level_and_kind(fake: FakeMachine) -> None:
    two_socket_server(fake)
    assert read_cpu(fake.machine())["caches"] == {
        "L1d": {"size_bytes": 48 << 10, "shared_by_threads": 2},
        "L1i": {"size_bytes": 32 << 10, "shared_by_threads": 2},
        "L2": {"size_bytes": 2 << 20, "shared_by_threads": 2},
        "L3": {"size_bytes": 105 << 20, "shared_by_threads": 4},
    }


def test_one_core_with_another_governor_shows(fake: FakeMachine) -> None:
    two_socket_server(fake)
    policy = read_cpu(fake.machine())["clock_policy"]
    assert policy["governor"] == "performance powersave"
    assert policy["turbo"] is True
    assert (policy["min_hz"], policy["max_hz"]) == (800_000_000, 3_800_000_000)


@pytest.mark.parametrize(("content", "turbo"), [("1", True), ("0", False)])
def test_boost_is_read_where_there_is_no_intel_pstate(
    fake: FakeMachine, content: str, turbo: bool
) -> None:
    fake.file(f"{CPUS}/cpufreq/boost", content)
    assert read_cpu(fake.machine())["clock_policy"]["turbo"] is turbo


def test_package_power_limits_are_read_from_rapl(fake: FakeMachine) -> None:
    for package, limit in ((0, 350_000_000), (1, 225_500_000)):
        folder = f"/sys/class/powercap/intel-rapl:{package}"
        fake.write(folder, name=f"package-{package}", constraint_0_power_limit_uw=limit)
    fake.write("/sys/class/powercap/intel-rapl:0:0", name="dram", constraint_0_power_limit_uw=1)
    assert read_cpu(fake.machine())["clock_policy"]["package_power_limits_w"] == "350 225.5"


def test_current_clocks_come_from_cpufreq_and_else_from_cpuinfo(fake: FakeMachine) -> None:
    fake.file("/proc/cpuinfo", "cpu MHz\t\t: 2000.000\n\ncpu MHz\t\t: 3800.500")
    machine = fake.machine()
    assert read_cpu_clocks(machine) == {"min_hz": 2_000_000_000, "max_hz": 3_800_500_000}
    fake.file(f"{CPUS}/cpu0/cpufreq/scaling_cur_freq", "1500000")
    assert read_cpu_clocks(machine) == {"min_hz": 1_500_000_000, "max_hz": 1_500_000_000}


def test_an_unreadable_machine_gives_nulls_and_no_guesses(fake: FakeMachine) -> None:
    machine = fake.machine()
    cpu = read_cpu(machine)
    assert cpu.pop("caches") == {}
    assert cpu.pop("vulnerabilities") == {}
    assert set(cpu.pop("clock_policy").values()) == {None}
    assert set(cpu.values()) == {None}
    assert set(read_load(machine).values()) == {None}
    assert read_memory(machine)["total_gib"] is None
    assert read_limits(machine) == {"cgroup": None, "cpu_cores": None, "memory_bytes": None}


def test_an_arm_processor_is_named_by_its_registers(fake: FakeMachine) -> None:
    fake.file(
        "/proc/cpuinfo",
        "processor\t: 0\nFeatures\t: fp asimd sve bf16 i8mm\nCPU implementer\t: 0x41\n"
        "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 1",
    )
    cpu = read_cpu(fake.machine())
    assert (cpu["vendor"], cpu["model"], cpu["isa"]) == ("0x41", "0xd4f", "asimd bf16 i8mm sve")


def test_cgroup_2_takes_the_tightest_limit_on_the_way_up(fake: FakeMachine) -> None:
    fake.file("/proc/self/cgroup", "0::/slice/job")
    fake.file("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    fake.write("/sys/fs/cgroup/slice", cpu__max="150000 100000", memory__max="max")
    fake.write("/sys/fs/cgroup/slice/job", cpu__max="max 100000", memory__max=str(8 << 30))
    assert read_limits(fake.machine()) == {
        "cgroup": 2,
        "cpu_cores": 1.5,
        "memory_bytes": 8 << 30,
    }


def test_cgroup_2_of_a_container_shows_its_limit_at_the_root(fake: FakeMachine) -> None:
    fake.file("/proc/self/cgroup", "0::/")
    fake.write("/sys/fs/cgroup", cgroup__controllers="cpu", cpu__max="200000 100000")
    limits = read_limits(fake.machine())
    assert (limits["cpu_cores"], limits["memory_bytes"]) == (2.0, "max")


def test_cgroup_1_reads_quota_and_limit(fake: FakeMachine) -> None:
    fake.file("/proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/a\n0::/")
    cpu, memory = "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"
    fake.write(cpu, cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    fake.write(f"{cpu}/a", cpu__cfs_quota_us=50000, cpu__cfs_period_us=100000)
    fake.write(memory, memory__limit_in_bytes=9223372036854771712)
    assert read_limits(fake.machine()) == {"cgroup": 1, "cpu_cores": 0.5, "memory_bytes": "max"}


def test_memory_is_rounded_so_that_a_reboot_does_not_change_it(fake: FakeMachine) -> None:
    fake.file("/proc/meminfo", "MemTotal:       24644208 kB\nMemFree:  1024 kB")
    fake.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    fake.file("/sys/devices/system/node/node0/cpulist", "0-3")
    fake.file("/sys/devices/system/node/node1/cpulist", "4-7")
    fake.file("/sys/devices/system/node/online", "0-1")
    memory = read_memory(fake.machine())
    assert memory["total_gib"] == 24
    assert memory["transparent_hugepages"] == "madvise"
    assert memory["numa_nodes"] == {"node0": "0-3", "node1": "4-7"}


def test_load_is_read_in_bytes_and_seconds(fake: FakeMachine) -> None:
    fake.file("/proc/loadavg", "0.50 1.25 2.00 3/412 9999")
    fake.file("/proc/uptime", "1234.56 9999.99")
    fake.file(
        "/proc/meminfo",
        "MemFree: 10 kB\nMemAvailable: 20 kB\nSwapTotal: 8 kB\nSwapFree: 6 kB",
    )
    assert read_load(fake.machine()) == {
        "load_1min": 0.5,
        "load_5min": 1.25,
        "load_15min": 2.0,
        "runnable_tasks": 3,
        "tasks": 412,
        "uptime_s": 1234.56,
        "memory_free_bytes": 10240,
        "memory_available_bytes": 20480,
        "swap_used_bytes": 2048,
    }


def test_temperatures_are_named_by_zone(fake: FakeMachine) -> None:
    fake.write("/sys/class/thermal/thermal_zone0", type="x86_pkg_temp", temp=45500)
    fake.write("/sys/class/thermal/thermal_zone1", type="acpitz", temp="broken")
    assert read_temperatures(fake.machine()) == {"0 x86_pkg_temp": 45.5, "1 acpitz": None}


def test_the_host_may_be_named_by_the_user(fake: FakeMachine) -> None:
    fake.environ["K3BENCH_HOST"] = "lab-7"
    fake.file("/etc/os-release", 'PRETTY_NAME="Ubuntu 24.04.2 LTS"\nID=ubuntu\nVERSION_ID="24.04"')
    fake.file("/proc/sys/kernel/osrelease", "6.8.0-79-generic")
    host = read_host(fake.machine())
    assert host["name"] == "lab-7"
    assert (host["os"], host["os_version"], host["kernel"]) == (
        "ubuntu",
        "24.04",
        "6.8.0-79-generic",
    )
    assert host["container"] is None


@pytest.mark.parametrize(
    ("path", "content", "container"),
    [
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/proc/1/cgroup", "1:cpu:/kubepods/besteffort/pod0123456789abcdef", "kubepods"),
        ("/run/systemd/container", "systemd-nspawn", "systemd-nspawn"),
    ],
)
def test_a_container_is_known_by_its_mark_and_never_by_its_id(
    fake: FakeMachine, path: str, content: str, container: str
) -> None:
    fake.file(path, content)
    assert read_host(fake.machine())["container"] == container


@given(st.sets(st.integers(0, 600)))
def test_a_cpu_list_reads_back(cpus: set[int]) -> None:
    assert parse_cpu_list(cpu_list(cpus)) == cpus


def test_a_cpu_list_is_written_as_linux_writes_it() -> None:
    assert cpu_list({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11"
