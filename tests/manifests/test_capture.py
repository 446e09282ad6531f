"""The whole capture, on this machine and as the program that the harness runs."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from manifests import ManifestError, capture, fingerprint, manifest_id, validate
from manifests.machine import Machine
from manifests.software import read_distributions

PROJECT = Path(__file__).resolve().parents[2]


def run(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "manifests", *map(str, arguments)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environ},
    )


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    return [value] if isinstance(value, str) else []


def test_a_capture_of_this_machine_is_valid_and_says_what_it_runs() -> None:
    manifest = capture(PROJECT, {"kda-headline": "0" * 64})
    validate(manifest)
    environment = manifest["environment"]
    assert environment["affinity"]["count"] == len(os.sched_getaffinity(0))
    assert environment["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert environment["libraries"]["distributions"]["jax"] == environment["distributions"]["jax"]
    assert environment["libraries"]["torch_git"] is not None
    assert manifest["source"]["workload_pins"] == {"kda-headline": "0" * 64}


def test_no_path_of_this_machine_is_in_a_capture(tmp_path: Path) -> None:
    places = {
        str(place)
        for place in (PROJECT, Path.home(), tmp_path, Path(sys.prefix), Path(sys.executable).parent)
        if place != Path("/")
    }
    environ = {
        **os.environ,
        "XLA_FLAGS": f"--xla_dump_to={tmp_path}/dump --xla_other={PROJECT}/x",
        "LD_PRELOAD": "/usr/lib/libjemalloc.so.2",
        "K3BENCH_RUN": f"{sys.prefix}/run",
        "JAX_COMPILATION_CACHE_DIR": str(Path.home() / ".cache/jax"),
    }
    manifest = capture(PROJECT, machine=Machine(environ=environ))
    for text in texts(manifest):
        assert not text.startswith("/"), text
        assert not [place for place in places if place in text], text
    variables = manifest["environment"]["variables"]
    assert variables["XLA_FLAGS"] == "--xla_dump_to=<path>/dump --xla_other=<project>/x"
    assert variables["LD_PRELOAD"] == "<path>/libjemalloc.so.2"


def test_a_secret_in_the_environment_is_in_no_part_of_a_capture() -> None:
    secret = "hf_Zx81kQ0aPq37LmN4"
    environ = {
        **os.environ,
        "HF_TOKEN": secret,
        "JAX_TOKEN": secret,
        "TRITON_REMOTE": f"https://ada:{secret}@example.org",
        "K3BENCH_DB": f"postgresql+psycopg://ada:{secret}@db/k3",
        "XLA_FLAGS": f"--xla_key={secret}",
    }
    manifest = capture(PROJECT, machine=Machine(environ=environ))
    assert secret not in json.dumps(manifest)
    assert "ada" not in manifest["environment"]["variables"]["TRITON_REMOTE"]


def test_a_named_host_hides_the_real_name() -> None:
    machine = Machine(environ={**os.environ, "K3BENCH_HOST": "bench-1"})
    manifest = capture(PROJECT, machine=machine)
    assert manifest["environment"]["host"]["name"] == "bench-1"
    assert socket.gethostname() not in texts(manifest)


def test_every_distribution_that_imports_find_is_listed() -> None:
    found = read_distributions()
    assert list(found) == sorted(found)
    assert {"jax", "torch", "ml-dtypes", "k3bench"} <= set(found)


def test_capture_imports_neither_jax_nor_torch_and_is_quick() -> None:
    script = (
        "import sys, pathlib, manifests; manifests.capture(pathlib.Path());"
        "print({'jax', 'jaxlib', 'torch', 'triton', 'numpy', 'libtpu'} & set(sys.modules))"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert done.stdout.strip() == "set()"
    # About 0.5 s alone; the bound allows for a machine on which other tests run.
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("pins", [{"x": "short"}, {"x": 3}])
def test_a_malformed_pin_is_refused_by_name(pins: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match=r"source\.workload_pins\.x"):
        capture(PROJECT, pins)


def test_a_project_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="not a directory"):
        capture(tmp_path / "nowhere")


def test_the_program_writes_a_valid_manifest_whose_id_it_prints(tmp_path: Path) -> None:
    out, pins = tmp_path / "manifest.json", tmp_path / "pins.json"
    pins.write_text(json.dumps({"kda-headline": "1" * 64}))
    done = run("capture", "--out", out, "--project", PROJECT, "--workload-pins", pins)
    assert (done.returncode, done.stderr) == (0, "")
    manifest = json.loads(out.read_text())
    validate(manifest)
    assert manifest["source"]["workload_pins"] == {"kda-headline": "1" * 64}
    printed = json.loads(done.stdout)
    assert printed == {"id": manifest_id(manifest), "fingerprint": fingerprint(manifest)}
    assert run("id", out).stdout.strip() == manifest_id(manifest)
    assert [path.name for path in tmp_path.iterdir()].count("manifest.json") == 1
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["capture"], 64, "--out"),
        (["nonsense"], 64, "invalid choice"),
        (["id", "{tmp}/absent.json"], 66, "No such file"),
        (["id", "{tmp}/broken.json"], 65, "not JSON"),
        (["id", "{tmp}/list.json"], 65, "a JSON object is wanted, not list"),
        (["id", "{tmp}/empty.json"], 65, "schema_version"),
        (["capture", "--out", "{tmp}/no/where.json"], 73, "cannot write"),
        (["capture", "--out", "{tmp}/m.json", "--project", "{tmp}/no"], 65, "not a directory"),
    ],
)
def test_the_program_says_in_one_line_what_is_wrong(
    tmp_path: Path, arguments: list[str], exit_code: int, words: str
) -> None:
    (tmp_path / "broken.json").write_text('{"schema_version": 1, ')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "empty.json").write_text("{}")
    done = run(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.returncode == exit_code
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "m.json").exists()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "manifest.json"
    out.mkdir()
    done = run("capture", "--out", out)
    assert done.returncode == 73
    assert list(tmp_path.iterdir()) == [out]
