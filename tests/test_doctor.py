"""The doctor: every finding has a status and a mend, and nothing that hangs can hang it."""

import copy
import dataclasses
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from k3bench.doctor import Report, capabilities, data, diagnose, hardware, software
from k3bench.doctor.children import ask
from k3bench.doctor.report import Capability, Check
from manifests import capture

PROJECT = Path(__file__).resolve().parents[1]

JAX = {
    "version": "0.10.2",
    "device": "cpu",
    "platform": "cpu",
    "count": 1,
    "families": {"kda_prefill": {"chunked_xla": None, "original": "needs a TPU"}},
    "kernels_problem": None,
}
TORCH = {
    "version": "2.13.0+cpu",
    "cuda": None,
    "hip": None,
    "device": "cpu",
    "platform": "cpu",
    "count": 1,
    "families": {"mla_decode": {"torch_dense": None}, "mla_prefill": {"torch_absorbed": None}},
    "kernels_problem": None,
}


@pytest.fixture(scope="module")
def report() -> Report:
    # A long deadline: the machine that runs the tests may be busy with others.
    return diagnose(deadline_s=60.0)


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    environment: dict[str, Any] = capture(PROJECT)["environment"]
    return environment


def changed(environment: dict[str, Any], **paths: Any) -> dict[str, Any]:
    """A copy of the environment; `cpu__threads=8` sets environment["cpu"]["threads"]."""
    copied = copy.deepcopy(environment)
    for path, value in paths.items():
        *parents, last = path.split("__")
        inner = copied
        for step in parents:
            inner = inner[step]
        inner[last] = value
    return copied


# This machine


def test_every_finding_has_a_known_status_and_everything_to_mend_has_a_mend(report: Report) -> None:
    names = [check.name for check in report.checks]
    assert len(names) == len(set(names))
    for check in report.checks:
        assert check.status in ("ok", "warning", "missing", "broken")
        assert check.found
        assert (check.mend is None) == (check.status == "ok"), check
        assert "\n" not in f"{check.found}{check.mend}"


def test_this_machine_measures_on_its_cpu_whatever_it_also_has(report: Report) -> None:
    families = {family for device in report.can_measure for family in device.implementations}
    assert {"kda_prefill", "mla_decode", "mla_prefill"} <= families
    by_name = {check.name: check for check in report.checks}
    for name in ("python", "git", "jax", "torch", "project", "kda_tpu kernels", "mla_rocm kernels"):
        assert by_name[name].status == "ok", by_name[name]


def test_the_compilers_are_really_asked(report: Report) -> None:
    by_name = {check.name: check for check in report.checks}
    for name, target in (("triton", "gfx950"), ("libtpu", "tpu-v6e")):
        if importlib.util.find_spec(name) is None:
            assert by_name[name].status == "missing", by_name[name]
            assert target not in report.can_compile
        else:
            assert by_name[name].status == "ok", by_name[name]
            assert target in report.can_compile


def test_the_json_form_is_what_the_exit_code_says(report: Report) -> None:
    document = json.loads(json.dumps(report.to_json()))
    assert set(document) == {"ok", "checks", "can_measure", "can_compile"}
    assert document["ok"] is not any(
        check["needed"] and check["status"] in ("missing", "broken") for check in document["checks"]
    )
    assert set(document["checks"][0]) == {"name", "status", "needed", "found", "mend"}
    for device in document["can_measure"]:
        assert device["families"] == list(device["implementations"])
        assert all(device["implementations"].values())


def test_a_diagnosis_makes_nothing_and_outlasts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K3BENCH_DB", str(tmp_path / "absent.sqlite"))
    start = time.monotonic()
    quick = diagnose(deadline_s=0.0)
    assert time.monotonic() - start < 5
    by_name = {check.name: check for check in quick.checks}
    assert by_name["jax"].status == by_name["torch"].status == "broken"
    assert "no answer in time" in by_name["jax"].found
    assert quick.can_measure == () == quick.can_compile
    assert {"jax", "torch"} <= {check.name for check in quick.failed}
    assert list(tmp_path.iterdir()) == []


# Probes


def asked(script: str, tmp_path: Path, deadline_s: float = 10.0) -> dict[str, Any]:
    answers = ask(
        {"x": dict(os.environ)}, tmp_path, deadline_s, command=(sys.executable, "-c", script)
    )
    return answers["x"]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("import os; os.abort()", "ended by SIGABRT"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print('log only')", "no answer"),
        ("print('[1]')", "no answer"),
        ("", "no answer"),
    ],
)
def test_a_probe_that_dies_is_an_answer(script: str, problem: str, tmp_path: Path) -> None:
    assert problem in asked(script, tmp_path)["problem"]


def test_an_answer_stands_on_the_last_line_after_whatever_a_library_prints(tmp_path: Path) -> None:
    script = "print('x' * 500_000); print('{\"version\": \"1\"}')"
    assert asked(script, tmp_path) == {"version": "1"}


def test_a_probe_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    start = time.monotonic()
    assert "no answer in time" in asked(script, tmp_path, deadline_s=1.5)["problem"]
    assert time.monotonic() - start < 5
    pid = int((tmp_path / "pid").read_text())
    for _ in range(50):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail("the grandchild still runs")


# Software


def test_a_library_in_another_version_than_pinned_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {"jax": "0.9.1", "torch": "2.13.0+cpu"}
    monkeypatch.setattr(software.importlib.metadata, "version", versions.__getitem__)
    check = software.check_jax({**JAX, "version": "0.9.1"})
    assert (check.status, check.fails) == ("broken", True)
    assert check.found == "jax 0.9.1 is installed, ==0.10.2 is wanted"
    assert "constraints.txt" in str(check.mend)
    # A local build label such as +cpu or +rocm7.1 is the pinned version.
    assert software.check_torch(TORCH).status == "ok"


def test_a_library_that_is_absent_is_to_be_installed_and_one_that_fails_is_to_be_looked_at() -> (
    None
):
    absent = {"problem": "ModuleNotFoundError: No module named 'jax'", "absent": "jax"}
    assert "make bench" in str(software.check_jax(absent).mend)
    hanging = {"problem": "no answer in time; the process was ended"}
    assert "JAX_PLATFORMS" in str(software.check_jax(hanging).mend)


def test_kernels_that_do_not_import_do_not_make_their_library_broken() -> None:
    answer = {**JAX, "families": {}, "kernels_problem": "SyntaxError: x"}
    assert software.check_jax(answer).status == "ok"
    check = software.check_kernels("kda_tpu", answer)
    assert (check.status, check.found, check.fails) == ("broken", "SyntaxError: x", True)


def test_kernels_that_all_refuse_the_device_are_broken() -> None:
    answer = {**JAX, "families": {"kda_prefill": {"original": "needs a TPU"}}}
    check = software.check_kernels("kda_tpu", answer)
    assert check.fails
    assert "0 for kda_prefill on cpu" in check.found


@pytest.mark.parametrize("check", [software.check_triton, software.check_libtpu])
def test_a_compiler_is_not_needed_to_measure(check: Any) -> None:
    found = check({"problem": "RuntimeError: x", "absent": None})
    assert found.status in ("broken", "missing")
    assert not found.fails
    assert found.mend


def test_a_project_is_checked_by_what_asv_would_read(tmp_path: Path) -> None:
    assert software.check_project(None).fails
    (tmp_path / "asv.conf.json").write_text("{ not json")
    assert software.check_project(tmp_path).fails
    (tmp_path / "asv.conf.json").write_text(
        '{"version": 1, "repo": ".", "benchmark_dir": "benchmarks"}'
    )
    assert "no directory benchmarks" in software.check_project(tmp_path).found
    (tmp_path / "benchmarks").mkdir()
    assert software.check_project(tmp_path).status == "ok"


def test_a_machine_without_git_cannot_measure_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    check = software.check_git()
    assert check.fails
    assert "install git" in str(check.mend)


# Hardware


def test_an_accelerator_that_is_there_but_not_reached_is_broken_and_needed(
    environment: dict[str, Any], tmp_path: Path
) -> None:
    chips = [{"generation": "tpu-v6e"}] * 4
    with_tpu = changed(environment, accelerators__tpu__devices=chips)
    with_tpu["variables"]["JAX_PLATFORMS"] = "cpu"
    check = hardware.check_tpu(with_tpu, JAX)
    assert check.fails
    assert "JAX_PLATFORMS=cpu leaves the TPU out" in str(check.mend)
    assert hardware.check_tpu(with_tpu, {**JAX, "platform": "tpu"}).status == "ok"

    with_amd = changed(
        environment,
        accelerators__amd__devices=[{"compute_partition": "CPX"}],
        accelerators__amd__compute_nodes=[{"target": "gfx950"}] * 8,
    )
    kfd = tmp_path / "kfd"
    assert "--device=/dev/kfd" in str(hardware.check_amd(with_amd, TORCH, kfd).mend)
    kfd.touch()
    check = hardware.check_amd(with_amd, TORCH, kfd)
    assert check.fails
    assert check.found.startswith("1 devices, 8 compute nodes (gfx950) in CPX")
    assert "ROCm build" in str(check.mend)
    assert "HIP_VISIBLE_DEVICES" in str(
        hardware.check_amd(with_amd, {**TORCH, "hip": "7.1"}, kfd).mend
    )
    assert hardware.check_amd(with_amd, {**TORCH, "platform": "rocm"}, kfd).status == "ok"


def test_an_nvidia_device_is_no_target_but_is_named(environment: dict[str, Any]) -> None:
    with_gpu = changed(
        environment,
        accelerators__nvidia__devices=[{"name": "NVIDIA H200"}],
        accelerators__nvidia__pci_count=1,
    )
    assert hardware.check_nvidia(with_gpu, TORCH).status == "warning"
    assert hardware.check_nvidia(with_gpu, {**TORCH, "platform": "cuda"}).status == "ok"
    broken = changed(with_gpu, accelerators__nvidia__devices=[])
    assert "does not answer" in hardware.check_nvidia(broken, TORCH).found


def policy(environment: dict[str, Any], **fields: Any) -> dict[str, Any]:
    none = dict.fromkeys(environment["cpu"]["clock_policy"])
    return changed(environment, cpu__clock_policy={**none, **fields})


def test_a_clock_that_moves_is_warned_about_with_the_command_that_holds_it(
    environment: dict[str, Any],
) -> None:
    intel = policy(environment, governor="powersave", turbo=True, driver="intel_pstate")
    check = hardware.check_clock(intel)
    assert check.status == "warning"
    assert "cpupower frequency-set -g performance" in str(check.mend)
    assert "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo" in str(check.mend)
    amd = policy(environment, governor="performance", turbo=True, driver="amd-pstate-epp")
    assert "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost" in str(
        hardware.check_clock(amd).mend
    )
    held = policy(environment, governor="performance", turbo=False)
    assert hardware.check_clock(held).status == "ok"
    virtual = changed(policy(environment), cpu__hypervisor=True)
    assert "virtual machine" in hardware.check_clock(virtual).found


def test_a_quota_below_the_usable_cpus_is_warned_about(environment: dict[str, Any]) -> None:
    affinity = {"cpus": "0-3", "count": 4}
    limited = changed(environment, affinity=affinity, limits__cpu_cores=1.5)
    assert "quota of 1.5 cores" in hardware.check_cpus(limited).found
    assert hardware.check_cpus(limited).status == "warning"
    for unlimited in ("max", None, 4.0):
        environment = changed(environment, affinity=affinity, limits__cpu_cores=unlimited)
        assert hardware.check_cpus(environment).status == "ok"


@pytest.mark.parametrize(
    ("load", "status"), [(0.1, "ok"), (0.5, "ok"), (0.6, "warning"), (None, "warning")]
)
def test_a_busy_machine_is_warned_about(load: float | None, status: str) -> None:
    assert hardware.check_load({"load": {"load_1min": load}}, 2).status == status


@pytest.mark.parametrize(
    ("free_gib", "status", "fails"),
    [(0.5, "broken", True), (3, "warning", False), (9, "ok", False)],
)
def test_a_full_disk_stops_and_a_small_one_warns(
    free_gib: float, status: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=int(free_gib * (1 << 30)))
    monkeypatch.setattr(hardware.psutil, "disk_usage", lambda path: usage)
    check = hardware.check_disk(PROJECT)
    assert (check.status, check.fails) == (status, fails)


# What is kept


def test_a_ledger_that_is_not_there_yet_is_no_failure_and_a_damaged_one_is() -> None:
    assert not data.check_ledger({"problem": "no ledger at x", "reason": "missing"}).fails
    assert data.check_ledger({"problem": "x is not a SQLite database", "reason": "data"}).fails
    assert data.check_ledger({"problem": "no answer in time; the process was ended"}).fails
    good = data.check_ledger({"database": "postgresql", "schema": "0001", "head": "0001"})
    assert (good.status, good.found) == ("ok", "postgresql, schema 0001")


def test_a_dataset_that_is_not_cached_is_missing_and_a_short_one_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workloads import download

    monkeypatch.setattr(download, "cached", lambda pin: None)
    assert data.check_dataset().status == "missing"
    assert "needs no network" in data.check_dataset().found
    short = tmp_path / "short.json"
    short.write_text("[]")
    monkeypatch.setattr(download, "cached", lambda pin: short)
    check = data.check_dataset()
    assert (check.status, check.fails) == ("broken", False)


# The summary


def test_devices_of_jax_and_torch_are_one_where_they_are_the_same() -> None:
    assert capabilities([JAX, TORCH]) == (
        Capability(
            "cpu",
            {
                "kda_prefill": ("chunked_xla",),
                "mla_decode": ("torch_dense",),
                "mla_prefill": ("torch_absorbed",),
            },
            {"kda_prefill": {"original": "needs a TPU"}},
        ),
    )
    on_tpu = {**JAX, "device": "tpu-v6e"}
    assert [device.device for device in capabilities([on_tpu, TORCH])] == ["tpu-v6e", "cpu"]


def test_only_what_is_needed_and_not_there_fails() -> None:
    check = Check("x", "broken", "found", "mend", needed=True)
    assert check.fails
    assert not dataclasses.replace(check, needed=False).fails
    assert not dataclasses.replace(check, status="warning").fails
    assert dataclasses.replace(check, status="missing").fails
