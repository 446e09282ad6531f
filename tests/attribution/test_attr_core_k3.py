"""Kimi K3 as published: learn, apply and check give the study's own numbers back."""

import csv
import io
from pathlib import Path

import pytest

from tests.attribution.cli_runner import Ran, run
from tests.attribution.k3_traces import dispatches, eager_events, graph_events, write_trace
from tests.attribution.published_k3 import (
    CONTEXTS,
    SHARED_GEMM,
    STEPS,
    context_specs,
    learning_specs,
    load,
    published_text,
)

BLOCKS = ("--blocks", "kimi-k3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("k3")


@pytest.fixture(scope="module")
def eager_trace(folder: Path) -> Path:
    work = dispatches(learning_specs(), STEPS)
    return write_trace(folder / "eager-4k.json.gz", eager_events(work))


@pytest.fixture(scope="module")
def learning(eager_trace: Path, folder: Path) -> Ran:
    return run("learn", eager_trace, *BLOCKS, "--out", folder / "map.json", "--json")


@pytest.fixture(scope="module")
def learned(learning: Ran, folder: Path) -> Path:
    assert learning.code == 0, learning.err
    return folder / "map.json"


@pytest.fixture(scope="module")
def graph_traces(folder: Path) -> dict[str, Path]:
    made = {}
    for label in CONTEXTS:
        work = dispatches(context_specs(label), STEPS)
        # Graphs have no launch skew: collectives of some 10 us, not the eager run's 600.
        work = [
            item if "cross_device" not in item.name and "allgather" not in item.name
            else type(item)(item.name, item.block, 9_876)
            for item in work
        ]  # fmt: skip
        made[label] = write_trace(folder / f"{label}.json.gz", graph_events(work, STEPS))
    return made


def published(table: str) -> dict[str, dict[str, str]]:
    rows = csv.DictReader(io.StringIO(published_text(table)))
    return {row["context"]: row for row in rows}


def test_learning_finds_the_published_injectivity_and_counts(learning: Ran) -> None:
    found = learning.json
    # Nobody told it the steps: the structural counts of 69, 24 and 92 agree on them.
    assert (learning.code, found["steps"]) == (0, STEPS)
    assert found["dispatches_per_step"] == 3372
    assert round(100 * found["injectivity"]["dispatches"]) == 81
    assert round(100 * found["injectivity"]["time"]) == 86
    splits = {row["name"]: row["split"] for row in found["shared"]}
    assert splits[SHARED_GEMM] == {"kda": 69, "full_attn": 24}
    assert len(found["names"]) == len(load("name_map_4k.json"))
    whole = learning.checks()["integral counts"]
    assert "1 dispatches outside of every range" in whole["detail"]


@pytest.mark.parametrize("label", CONTEXTS)
def test_the_composition_is_the_published_one_to_the_printed_digit(
    label: str, learned: Path, graph_traces: dict[str, Path]
) -> None:
    row = published("decode-composition.csv")[label]
    measured = row["measured_ms_per_step_cudagraph"]
    found = run(
        "apply", graph_traces[label], "--map", learned, *BLOCKS, "--label", label,
        "--input-tokens", row["input_tokens"], "--measured-ms", measured, "--csv",
    )  # fmt: skip
    assert found.code == 0, found.err
    (ours,) = csv.DictReader(io.StringIO(found.out))
    assert ours == row


def test_every_context_passes_every_check_with_the_same_dispatches(
    learned: Path, graph_traces: dict[str, Path]
) -> None:
    found = run("check", *graph_traces.values(), "--map", learned, *BLOCKS, "--json")
    assert found.code == 0, found.err
    together = found.checks()["same counts at every context"]
    assert together["detail"] == "3372 dispatches a step in each of 5 traces"
    for trace in found.json["traces"]:
        verdicts = {check["name"]: check for check in trace["checks"]}
        assert verdicts["count of KDA recurrence"]["detail"].startswith("69 a step")
        assert verdicts["count of MLA stage 1"]["detail"].startswith("24 a step")
        assert verdicts["count of expert GEMM 1"]["detail"].startswith("92 a step")
        assert {check["status"] for check in trace["checks"]} <= {"ok", "skipped"}
        # Durations of the shared names agree by construction, so all were split by count.
        assert verdicts["shared names"]["status"] == "ok"


def test_the_mechanism_is_the_published_one(learned: Path, graph_traces: dict[str, Path]) -> None:
    rows = published("decode-mechanism.csv")
    for label in ("4k", "1m"):
        row = rows[label]
        found = run(
            "mechanism", graph_traces[label], "--map", learned, *BLOCKS, "--label", label,
            "--input-tokens", row["input_tokens"], "--csv",
        )  # fmt: skip
        assert found.code == 0, found.err
        (ours,) = csv.DictReader(io.StringIO(found.out))
        assert ours == row


def test_the_components_are_the_published_ones(
    learned: Path, graph_traces: dict[str, Path]
) -> None:
    expected = {
        (row["block"], row["component"]): row["us_per_step"]
        for row in csv.DictReader(io.StringIO(published_text("decode-block-internals.csv")))
        if row["context"] == "1m"
    }
    found = run("inventory", graph_traces["1m"], "--map", learned, *BLOCKS, "--components", "--csv")
    assert found.code == 0, found.err
    ours = {
        (row["block"], row["component"]): row["us_per_step"]
        for row in csv.DictReader(io.StringIO(found.out))
    }
    assert ours == expected
