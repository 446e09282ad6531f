"""`k3bench results` and `k3bench ledger`: what is printed where, and the exit codes."""

import json
import sqlite3
import subprocess
from contextlib import closing

import pytest
from click.testing import CliRunner
from ledger.records import measured, wrong

from k3bench.cli.ledger import ledger as ledger_command
from k3bench.cli.results import _milliseconds, resolved_commit, results
from k3bench.ledger import ingest, open_ledger
from k3bench.ledger.published import published_records
from k3bench.paths import MARKER

MANIFEST_ID = "c" * 64
GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with two commits, as the current directory; returns their hashes."""
    monkeypatch.delenv("K3BENCH_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / MARKER).write_text("{}")
    subprocess.run(["git", "init", "-q"], check=True)
    hashes = []
    for message in ("first", "second"):
        subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", message], check=True)
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
        hashes.append(head.stdout.strip())
    return hashes


@pytest.fixture
def filled(project):
    """Rows of two commits, kinds and devices; returns the commits."""
    first, second = project
    hostile = {"name": "[bold]x[/bold]", "seqlen": 8}
    records = [
        measured(MANIFEST_ID, commit=first, parameters=hostile),
        measured(MANIFEST_ID, commit=second, implementation="[red]original"),
        measured(MANIFEST_ID, commit=second, implementation="flat", **wrong()),
        *published_records(),
    ]
    records[2]["correctness"]["detail"] = "head 3 differs"
    ledger = open_ledger()
    with closing(sqlite3.connect(ledger.name)) as connection, connection:
        connection.execute(
            "INSERT INTO manifest VALUES (?, 'f', '2026-08-01 12:00:00', '{}')", (MANIFEST_ID,)
        )
    ingest(ledger, records)
    ledger.close()
    return project


def invoke(*arguments, command=results):
    return CliRunner().invoke(command, list(arguments))


def test_rates_stand_beside_times_where_a_benchmark_states_its_work(filled):
    assert "GB/s" not in invoke("--kind", "measured").stdout
    figures = {"hbm_bytes": 16 * 10**6, "hbm_bytes_per_s": 8e9, "hbm_share_of_peak": 0.251}
    record = measured(MANIFEST_ID, commit=filled[1], id="d" * 32, figures=figures)
    assert record["median_s"] == 0.002
    ledger = open_ledger()
    ingest(ledger, [record])
    ledger.close()
    lines = invoke("--kind", "measured").stdout.splitlines()
    heading = next(line for line in lines if "GB/s" in line)
    assert "GFLOP/s" not in heading, "no row has it"
    assert sum("8.00 (25%)" in line for line in lines) == 1
    published = invoke("--kind", "published").stdout
    assert "GB/s" not in published


def _distance(times):
    """Figures of a row whose median of 2 ms is so many times its bound."""
    bound_s = 0.002 / times
    return {"roofline.bound_s": bound_s, "roofline.times_bound": 0.002 / bound_s}


def test_the_distance_from_the_bound_stands_where_a_row_states_it(filled):
    assert "x bound" not in invoke("--kind", "measured").stdout
    named = {
        "near": {**_distance(3.24159), "roofline.limited_by": "hbm"},
        "odd": {**_distance(12.5), "roofline.limited_by": "[red]x"},
        "unknown": {"roofline.none": "the peaks of cpu are not known"},
        "silent": {"flops": 1},
    }
    ledger = open_ledger()
    for number, (name, figures) in enumerate(named.items()):
        record = measured(MANIFEST_ID, commit=filled[1], id=f"{number:032x}", figures=figures)
        ingest(ledger, [record | {"implementation": name}])
    ledger.close()
    lines = {name: _levelled(line) for line in invoke("--kind", "measured").stdout.splitlines()
             for name in named if f" {name} " in line}  # fmt: skip
    assert "3.24 (memory) ok" in lines["near"]
    assert "12.5 ([red]x) ok" in lines["odd"]
    assert "no peaks ok" in lines["unknown"]
    assert "- ok" in lines["silent"]


def test_a_share_below_one_percent_is_not_shown_as_none(filled):
    figures = {"hbm_bytes": 16 * 10**6, "hbm_bytes_per_s": 8e9, "hbm_share_of_peak": 0.00456}
    ledger = open_ledger()
    ingest(ledger, [measured(MANIFEST_ID, commit=filled[1], id="e" * 32, figures=figures)])
    ledger.close()
    assert "8.00 (0.46%)" in invoke("--kind", "measured").stdout


def test_json_goes_to_stdout_alone(filled):
    outcome = invoke("--json")
    assert outcome.exit_code == 0 and outcome.stderr == ""
    rows = json.loads(outcome.stdout)
    assert len(rows) == 3 + len(published_records())
    measured_row = next(row for row in rows if row["n"] == 3)
    assert measured_row["tokens_per_s"] == measured_row["tokens"] / measured_row["median_s"]


def test_kinds_and_devices_have_tables_of_their_own(filled):
    outcome = invoke()
    assert outcome.exit_code == 0
    titles = [line.strip() for line in outcome.stdout.splitlines() if " on " in line]
    assert titles == ["measured on cpu", "published on mi355x", "published on tpu-v6e"]


def test_the_table_shows_milliseconds_and_correctness(filled):
    lines = invoke("--kind", "measured").stdout.splitlines()
    right = next(line for line in lines if "original" in line)
    commit = filled[1][:10]
    assert f"wall 2.000 1.200 2.800 3 128,000 ok 1.0e-04 of 5.0e-04 {commit}" in _levelled(right)
    refuted = next(line for line in lines if "flat" in line)
    expected = f"wall - - - 0 - wrong 3.0e-01 of 5.0e-04 head 3 differs {commit}"
    assert expected in _levelled(refuted)


def _levelled(line: str) -> str:
    return " ".join(line.split())


def test_names_from_outside_are_shown_and_not_obeyed(filled):
    output = invoke("--kind", "measured").stdout
    assert "name=[bold]x[/bold]" in output and "[red]original" in output


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--commit", "HEAD"], 2),
        (["--commit", "HEAD~1"], 1),
        (["--implementation", "flat"], 1 + 2),
        (["--benchmark", r"^kda_prefill\.Fixed"], 3),
        (["--kind", "published", "--benchmark", "ladder"], 6),
        (["--latest", "--kind", "measured"], 3),
        (["--limit", "2"], 2),
        (["--kind", "compiled"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_option_selects(filled, arguments, count):
    outcome = invoke(*arguments, "--json")
    assert outcome.exit_code == 0
    assert len(json.loads(outcome.stdout)) == count


def test_nothing_found_is_said_on_stderr_and_no_error(filled):
    for arguments, stdout in (([], ""), (["--json"], "[]\n")):
        outcome = invoke("--kind", "modelled", *arguments)
        assert (outcome.exit_code, outcome.stdout) == (0, stdout)
        assert outcome.stderr == "k3bench: no results match\n"


def test_an_abbreviated_commit_is_resolved(filled):
    assert resolved_commit(filled[0][:8]) == filled[0]
    assert resolved_commit("HEAD") == filled[1]
    unknown = "0123456789"
    assert resolved_commit(unknown) == unknown  # a commit of another clone


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["--commit", "no-such-branch"], 64, "git knows no such commit here"),
        (["--commit", ""], 64, "git knows no such commit here"),
        (["--benchmark", "("], 64, "is no regular expression"),
    ],
    ids=["commit", "no commit", "pattern"],
)
def test_what_cannot_be_meant_exits_with_usage(filled, arguments, exit_code, message):
    outcome = invoke(*arguments)
    assert outcome.exit_code == exit_code and outcome.stdout == ""
    assert message in outcome.stderr and outcome.stderr.count("\n") == 1


def test_no_ledger_yet_exits_with_no_input_and_creates_none(project, tmp_path):
    outcome = invoke("--json")
    assert outcome.exit_code == 66 and outcome.stdout == ""
    assert "no ledger at" in outcome.stderr
    assert not (tmp_path / "results.sqlite").exists()


def test_a_file_that_is_no_ledger_exits_with_bad_data(project, tmp_path):
    (tmp_path / "results.sqlite").write_text("nothing of the kind" * 100)
    outcome = invoke()
    assert outcome.exit_code == 65 and "is not a SQLite database" in outcome.stderr


def test_outside_a_project_the_variable_is_enough(filled, tmp_path, monkeypatch):
    monkeypatch.setattr("k3bench.paths.__file__", str(tmp_path / "x" / "k3bench" / "paths.py"))
    monkeypatch.setenv("K3BENCH_DB", str(tmp_path / "results.sqlite"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / MARKER).unlink()
    monkeypatch.chdir(outside)
    assert invoke("--json").exit_code == 0
    monkeypatch.delenv("K3BENCH_DB")
    outcome = invoke("--json")
    assert outcome.exit_code == 66 and MARKER in outcome.stderr


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.00021, "0.2100"),
        (0.03361, "33.61"),
        (1.591, "1,591"),
        (159.1, "159,100"),
        (1e-7, "0.0001000"),
        (0.001, "1.000"),
    ],
)
def test_milliseconds_have_four_digits_and_no_exponent(seconds, shown):
    assert _milliseconds(seconds) == shown


def test_seed_then_check_then_damage(project, tmp_path):
    count = len(published_records())
    outcome = invoke("seed", command=ledger_command)
    assert outcome.stdout == f"published figures: {count} entered, 0 were there\n"
    outcome = invoke("seed", "--json", command=ledger_command)
    assert json.loads(outcome.stdout) == {"inserted": 0, "unchanged": count}
    outcome = invoke("check", command=ledger_command)
    assert outcome.exit_code == 0 and f"{count} results, 0 samples" in outcome.stdout
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as connection, connection:
        connection.execute("UPDATE result SET device = '' WHERE benchmark LIKE '%ladder'")
    outcome = invoke("check", "--json", command=ledger_command)
    assert outcome.exit_code == 1
    report = json.loads(outcome.stdout)
    assert not report["ok"] and len(report["problems"]) == 6
    assert "6 problems in" in outcome.stderr


def test_check_without_a_ledger_exits_with_no_input(project):
    assert invoke("check", command=ledger_command).exit_code == 66


def test_sync_says_how_many_points_it_brought_in(project):
    outcome = invoke("sync", "--json", command=ledger_command)
    assert outcome.exit_code == 0 and json.loads(outcome.stdout) == {"points": 0}


def test_sync_into_a_ledger_that_cannot_be_opened_fails(project, tmp_path):
    (tmp_path / "results.sqlite").write_text("nothing of the kind" * 100)
    outcome = invoke("sync", command=ledger_command)
    assert outcome.exit_code == 65 and "is not a SQLite database" in outcome.stderr
