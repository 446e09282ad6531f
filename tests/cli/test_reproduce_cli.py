"""`k3bench reproduce`: commit, workload, point, environment are checked first."""

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner
from harness.asv_project import ToyProject

import workloads
from k3bench.canonical import canonical_json
from k3bench.cli.reproduce import reproduce
from k3bench.ledger import ingest, open_ledger
from k3bench.ledger.published import published_records
from k3bench.runner.suite import SuiteBenchmark


@dataclass(frozen=True)
class ToyWorkload:
    sha256: str = "0" * 64


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ToyProject:
    """One measured point pair, and the published figures."""
    project = ToyProject.create(tmp_path_factory.mktemp("reproduce"))
    project.asv("run", "--record-samples", "--bench", r"device_toy\(1", "HEAD^!")
    with open_ledger(str(project.root / "results.sqlite")) as ledger:
        ingest(ledger, published_records()[:1])
    return project


@pytest.fixture
def call(project: ToyProject, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`k3bench reproduce` in the toy project, whose workload is known by that name."""
    for name in list(os.environ):
        if name.startswith(("K3BENCH_", "ASV")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("HOME", str(project.root.parent))
    monkeypatch.setattr(workloads, "get", lambda name: ToyWorkload())
    return lambda *arguments: CliRunner().invoke(reproduce, list(arguments))


def fast(project: ToyProject) -> dict[str, Any]:
    (row,) = [r for r in project.results("--kind", "measured") if r["implementation"] == "fast"][:1]
    return row


def test_the_command_measures_exactly_that_point_in_a_comparable_environment(
    project: ToyProject, call: Any
) -> None:
    row = fast(project)
    result = call(row["id"][:12], "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["reproducible"] is True and report["result_id"] == row["id"]
    assert report["command"].endswith(f" '{row['commit']}^!'")
    assert "K3BENCH_PRESET=smoke" in report["command"]
    assert r"'^toy\.Toy\.device_toy\(1,\ '" in report["command"]
    checks = {check["name"]: check["ok"] for check in report["checks"]}
    assert checks["commit"] and checks["workload"] and checks["benchmark"]
    assert checks["environment"], report["checks"]


def test_running_it_measures_that_point_and_no_other(project: ToyProject, call: Any) -> None:
    row = fast(project)
    before = len(project.results("--kind", "measured"))
    result = call(row["id"], "--run", "--json")
    assert result.exit_code == 0, result.output
    again = json.loads(result.stdout)["again"]
    assert again["id"] != row["id"]
    for key in ("benchmark", "parameters", "implementation", "commit", "preset", "n", "clock"):
        assert again[key] == row[key]
    assert len(project.results("--kind", "measured")) == before + 1


def test_siblings_take_turns_again(project: ToyProject, call: Any) -> None:
    command = json.loads(call(fast(project)["id"], "--siblings", "--json").stdout)["command"]
    assert command.count("--bench") == 2 and "slow" in command


def test_another_environment_is_refused_with_the_fields_that_differ(
    project: ToyProject, call: Any
) -> None:
    row = fast(project)
    with closing(sqlite3.connect(project.root / "results.sqlite")) as connection:
        (text,) = connection.execute(
            "SELECT document FROM manifest WHERE id = ?", (row["manifest_id"],)
        ).fetchone()
        changed = json.loads(text)
        changed["environment"]["libraries"]["distributions"]["jax"] = "0.9.0"
        changed["environment"]["variables"]["XLA_FLAGS"] = "--xla_cpu_use_xnnpack=false"
        changed["environment"]["variables"]["JAX_CACHE"] = "<path>/cache"
        update = "UPDATE manifest SET document = ? WHERE id = ?"
        try:
            connection.execute(update, (json.dumps(changed), row["manifest_id"]))
            connection.commit()
            result = call(row["id"], "--run", "--json")
        finally:
            connection.execute(update, (text, row["manifest_id"]))
            connection.commit()
    assert result.exit_code == 2
    assert "environment.libraries.distributions.jax" in result.stderr
    report = json.loads(result.stdout)
    assert report["reproducible"] is False and "again" not in report
    details = {check["name"]: check["detail"] for check in report["checks"]}
    assert details["environment.libraries.distributions.jax"].startswith("0.9.0 there, 0.10.2 here")
    assert "JAX_CACHE" in details["variables"]
    # A recorded variable is part of the command, and so no difference.
    assert "XLA_FLAGS=--xla_cpu_use_xnnpack=false" in report["command"]
    assert not [name for name in details if "XLA_FLAGS" in name]


def test_another_workload_of_that_name_is_refused(
    project: ToyProject, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "get", lambda name: ToyWorkload("1" * 64))
    result = call(fast(project)["id"])
    assert result.exit_code == 2
    assert "workload" in result.stderr
    assert "111111111111 here, 000000000000 in the record" in result.output


def test_an_unknown_workload_or_commit_is_refused(
    project: ToyProject, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> None:
        raise KeyError(f"no workload is called {name}")

    monkeypatch.setattr(workloads, "get", unknown)
    row = fast(project)
    with closing(sqlite3.connect(project.root / "results.sqlite")) as connection:
        update = 'UPDATE result SET "commit" = ? WHERE id = ?'
        try:
            connection.execute(update, ("d" * 40, row["id"]))
            connection.commit()
            result = call(row["id"])
        finally:
            connection.execute(update, (row["commit"], row["id"]))
            connection.commit()
    assert result.exit_code == 2
    assert "commit, workload" in result.stderr
    assert "is not in this clone" in result.output


def test_a_further_clock_s_record_is_repeated_with_further_clocks(
    project: ToyProject, call: Any
) -> None:
    row = fast(project)
    figures = {**row["figures"], "further_clock": "graph"}
    parameters = {**row["parameters"], "launch": "graph"}
    with closing(sqlite3.connect(project.root / "results.sqlite")) as connection:
        update = "UPDATE result SET figures = ?, parameters = ? WHERE id = ?"
        try:
            values = (canonical_json(figures), canonical_json(parameters), row["id"])
            connection.execute(update, values)
            connection.commit()
            result = call(row["id"], "--json")
        finally:
            values = (canonical_json(row["figures"]), canonical_json(row["parameters"]), row["id"])
            connection.execute(update, values)
            connection.commit()
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["command"].startswith("K3BENCH_CLOCKS=all K3BENCH_PRESET")


def test_a_published_figure_is_somebody_else_s(project: ToyProject, call: Any) -> None:
    (row,) = project.results("--kind", "published")
    result = call(row["id"])
    assert result.exit_code == 2
    assert "somebody else's figure" in result.output


@pytest.mark.parametrize("prefix", ["", "f" * 32, "hello"])
def test_no_such_result_is_missing_input(call: Any, prefix: str) -> None:
    assert call(prefix).exit_code == 66


TOY = SuiteBenchmark(
    "m.C.device_x", ("S", "implementation", "kind"), ((8, 64), ("a", "b"), ("x (y)", 1)),
    (("8", "64"), ("'a'", "'b'"), ("'x (y)'", "1")), None, None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "implementation", "expression"),
    [
        ({"S": 8, "kind": "x (y)"}, "b", r"^m\.C\.device_x\(8,\ 'b',\ 'x\ \(y\)'\)$"),
        ({"kind": 1, "S": 64}, "a", r"^m\.C\.device_x\(64,\ 'a',\ 1\)$"),
        ({"S": 9, "kind": 1}, "a", None),
        ({"S": 8, "kind": True}, "a", None),
        ({"S": 8}, "a", None),
        ({"S": 8, "kind": 1}, "c", None),
    ],
)
def test_a_point_is_selected_by_asv_s_own_text_of_it(
    parameters: dict[str, Any], implementation: str, expression: str | None
) -> None:
    assert TOY.expression(parameters, implementation) == expression
