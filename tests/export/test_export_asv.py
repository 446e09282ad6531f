"""`k3bench export asv`: what asv would have written, read back by asv itself."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from asv.results import Results, iter_results
from asv.util import load_json
from export.conftest import cloned
from ledger.records import measured

import k3bench.export.asv_files as asv_files
import manifests
from k3bench.export import ExportError, export_asv
from k3bench.ledger import ingest, iterate_records, load_manifest, open_ledger, select_runs

DEVICE = "toy.Toy.device_toy"


# As `python -m k3bench`, whether or not the command is in its table yet.
COMMAND = """
from k3bench import cli
cli.COMMANDS.setdefault("export", ("export", ""))
cli.main()
"""


def k3bench(project, *arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    completed = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=project.root, env=project.environ(), text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert completed.returncode == expect, completed.stderr
    return completed


def by_commit(results_dir: Path) -> dict[str, Results]:
    return {results.commit_hash: results for results in iter_results(str(results_dir))}


def content(results: Results) -> dict:
    """All that asv's comparisons and pages read of a device benchmark, NaN made comparable."""
    params = results.get_result_params(DEVICE)
    stats = results.get_result_stats(DEVICE, params)
    return {
        "commit": results.commit_hash,
        "date": results.date,
        "environment": results._env_name,
        "python": results._python,
        "env_vars": results.env_vars,
        "requirements": results._requirements,
        # The manifest has whole GiB, asv's own machine file bytes.
        "machine": {key: value for key, value in results.params.items() if key != "ram"},
        "params": params,
        "version": results.benchmark_version[DEVICE],
        "values": [str(value) for value in results.get_result_value(DEVICE, params)],
        "samples": results.get_result_samples(DEVICE, params),
        "stats": stats,
    }


def files_of(results_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(results_dir)): path.read_bytes()
        for path in sorted(results_dir.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def fresh_clone(ran, tmp_path_factory):
    """A clone after the command itself, with its report: the whole way, once."""
    project = cloned(ran, tmp_path_factory.mktemp("fresh"))
    completed = k3bench(project, "export", "asv", "--json")
    return project, json.loads(completed.stdout)


def test_what_is_exported_is_what_asv_wrote(ran, fresh_clone):
    clone, report = fresh_clone
    assert len(report["written"]) == 3 and report["refused"] == {}
    assert report["exported_results"] == 18 and report["not_in_suite"] == 0
    real, written = by_commit(ran.results), by_commit(clone.root / ".asv" / "results")
    assert set(written) == set(real) == set(ran.commits)
    for commit in ran.commits:
        assert content(written[commit]) == content(real[commit])
    # All three kinds of answer were among them: a time, a failure, and never run.
    values = content(written[ran.commits[2]])["values"]
    assert {value if value in ("None", "nan") else "time" for value in values} == {
        "time", "None", "nan",
    }  # fmt: skip
    assert files_of(clone.root / ".asv" / "results").keys() == files_of(ran.results).keys()


def test_the_benchmarks_file_is_asvs_own(ran, fresh_clone):
    real, written = (
        load_json(str(root / ".asv" / "results" / "benchmarks.json"), 2)
        for root in (ran.project.root, fresh_clone[0].root)
    )
    assert written == real


def test_compare_says_the_same_on_a_clone(ran, fresh_clone):
    arguments = ("compare", "--sort", "name", ran.commits[0][:8], ran.commits[1][:8])
    said, original = (
        [line for line in project.asv(*arguments).splitlines() if DEVICE in line]
        for project in (fresh_clone[0], ran.project)
    )
    assert len(said) == 9 and any(line.startswith("| +") for line in said)
    assert said == original


def test_publish_makes_the_same_graphs_on_a_clone(ran, fresh_clone):
    graphs = []
    for project in (fresh_clone[0], ran.project):
        project.asv("publish")
        assert (
            DEVICE in json.loads((project.root / "html" / "index.json").read_text())["benchmarks"]
        )
        (graph,) = (project.root / "html" / "graphs" / "summary").glob(f"{DEVICE}.json")
        graphs.append(json.loads(graph.read_text()))
    assert graphs[0] == graphs[1] and len(graphs[0]) == 3


def test_doing_it_again_changes_nothing(clone, export):
    export()
    results = clone.root / ".asv" / "results"
    before = files_of(results)
    times = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    report = export()
    assert report.written == [] and len(report.unchanged) == 3
    assert files_of(results) == before
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == times


def test_files_that_asv_wrote_need_nothing_and_keep_everything(ran, clone, export):
    shutil.copytree(ran.results, clone.root / ".asv" / "results")
    before = files_of(clone.root / ".asv" / "results")
    report = export()
    assert report.written == [] and len(report.unchanged) == 3
    assert files_of(clone.root / ".asv" / "results") == before


def changed_file(ran, clone, change) -> Path:
    """asv's own tree in the clone, with one file changed by ``change(row, columns)``."""
    results = clone.root / ".asv" / "results"
    shutil.copytree(ran.results, results)
    (path,) = results.glob(f"*/{ran.commits[0][:8]}-*.json")
    document = json.loads(path.read_text())
    row = dict(zip(document["result_columns"], document["results"][DEVICE], strict=False))
    change(row)
    document["results"][DEVICE] = [row.get(name) for name in document["result_columns"]]
    path.write_text(json.dumps(document))
    return path


def test_samples_that_asv_did_not_keep_are_filled_in(ran, clone, export):
    def forget_samples(row):
        row["samples"] = None

    path = changed_file(ran, clone, forget_samples)
    assert export().written == [f"{path.parent.name}/{path.name}"]
    there = by_commit(clone.root / ".asv" / "results")[ran.commits[0]]
    original = by_commit(ran.results)[ran.commits[0]]
    assert content(there) == content(original)
    assert "toy.Throughput.track_nothing" in there.get_all_result_keys()
    assert there.duration[DEVICE] == original.duration[DEVICE]


def test_a_point_that_was_not_run_there_is_added(ran, clone, export):
    def forget_a_point(row):
        row["result"][0] = math.nan
        row["samples"][0] = None

    changed_file(ran, clone, forget_a_point)
    assert len(export().written) == 1
    there = by_commit(clone.root / ".asv" / "results")[ran.commits[0]]
    assert content(there) == content(by_commit(ran.results)[ran.commits[0]])


def test_a_value_the_ledger_does_not_know_is_kept_and_named(ran, clone, export):
    def invent(row):
        row["result"][0] = 123.0
        row["samples"][0] = [123.0] * 10

    path = changed_file(ran, clone, invent)
    name = f"{path.parent.name}/{path.name}"
    before = path.read_bytes()
    (clone.root / ".asv" / "results" / path.parent.name / "machine.json").touch()
    other = next(path.parent.glob(f"{ran.commits[1][:8]}-*.json"))
    other.unlink()
    completed = k3bench(clone, "export", "asv", "--json", expect=1)
    report = json.loads(completed.stdout)
    assert f"{DEVICE}(1, 'fast') is 123 there" in report["refused"][name]
    assert "give --force to replace them" in completed.stderr
    assert path.read_bytes() == before
    assert report["written"] == [f"{other.parent.name}/{other.name}"], "the others go on"

    assert export(force=True).written == [name]
    there = by_commit(clone.root / ".asv" / "results")[ran.commits[0]]
    assert content(there) == content(by_commit(ran.results)[ran.commits[0]])


def test_values_of_another_version_are_kept_and_named(ran, clone, export):
    def older(row):
        row["version"] = "0"

    path = changed_file(ran, clone, older)
    report = export()
    assert list(report.refused.values()) == [f"{DEVICE} is of version 0 there, 1 now"]
    assert export(force=True).written == [f"{path.parent.name}/{path.name}"]


def again(ledger, commit: str, /, **changes):
    """A newer record of the first point of a commit, after every other."""
    with ledger.session() as session:
        found = [
            record.to_json() for record in iterate_records(session)
            if record.commit == commit and record.implementation == "fast"
            and record.parameters == {"point": 1}
        ]  # fmt: skip
        manifest = load_manifest(session, found[0]["manifest_id"])
        assert select_runs(session)
    fresh = measured(
        manifests.manifest_id(manifest),
        (0.5,) * 10,
        50,
        **{
            key: found[0][key]
            for key in ("benchmark", "parameters", "implementation", "commit", "workload", "preset")
        },
    )
    return fresh | {"padded_tokens": 64, "started_at": "2099-01-01T00:00:00+00:00", **changes}


def test_a_newer_result_of_the_ledger_replaces_its_own_older_one(ran, clone, ledger, export):
    export()
    ingest(ledger, [again(ledger, ran.commits[0])])
    report = export()
    assert len(report.written) == 1 and report.refused == {}
    there = by_commit(clone.root / ".asv" / "results")[ran.commits[0]]
    assert content(there)["values"][0] == "0.5"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"preset": "quick"}, "one sample of --quick"),
        ({"parameters": {"point": 9}}, "a point that the suite no longer has"),
        ({"benchmark": "gone.Gone.device_gone"}, "a benchmark that is gone"),
        ({"commit": "f" * 40}, "a commit that this clone has not"),
        ({"run_id": "in-turns"}, "a run that measured two commits in turns"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_asv_has_no_place_for_is_left_out_and_said(ran, clone, ledger, changes, what, export):
    export()
    before = files_of(clone.root / ".asv" / "results")
    compared = {"id": "in-turns", "started_at": "2026-08-01T12:00:00Z", "command": "k3bench ab a b"}
    ingest(ledger, [again(ledger, ran.commits[0], **changes)], runs=[compared])
    report = export()
    assert files_of(clone.root / ".asv" / "results") == before
    assert report.not_in_suite == (1 if "suite" in what or "gone" in what else 0)
    assert report.commits_not_in_clone == (["f" * 40] if "clone" in what else [])


def test_only_one_commit_when_asked(ran, clone, export):
    report = export(commit=ran.commits[1])
    assert len(report.written) == 1
    assert set(by_commit(clone.root / ".asv" / "results")) == {ran.commits[1]}


def test_the_machine_can_be_called_what_asv_calls_it(ran, clone, export, tmp_path):
    (host,) = (path.parent.name for path in ran.results.glob("*/machine.json"))
    out = tmp_path / "out"
    report = export(machines={host: "lab"}, results_dir=out)
    assert {name.split("/")[0] for name in report.written} == {"lab"}
    assert {results.params["machine"] for results in by_commit(out).values()} == {"lab"}
    assert not (clone.root / ".asv" / "results").exists()
    with pytest.raises(ExportError, match=f"no results of a host 'stranger' .* it has {host}"):
        export(machines={"stranger": "lab"})
    k3bench(clone, "export", "asv", "--machine", "lab", expect=64)


def test_a_host_name_never_leaves_the_results_directory(clone, ledger, export):
    with ledger.session() as session:
        record = next(iterate_records(session)).to_json()
        manifest = load_manifest(session, record["manifest_id"])
    host = {**manifest["environment"]["host"], "name": "../../elsewhere"}
    hostile = {**manifest, "environment": {**manifest["environment"], "host": host}}
    record |= {"id": "e" * 32, "manifest_id": manifests.manifest_id(hostile)}
    ingest(ledger, [record], [hostile])
    with pytest.raises(ExportError, match="is no directory name"):
        export()
    assert not (clone.root / "elsewhere").exists()


def test_an_interrupted_export_leaves_whole_files_and_goes_on(
    ran, clone, ledger, monkeypatch, export
):
    written = []
    original = asv_files._write_whole

    def fails_at_the_third(path, save):
        def half(directory):
            save(directory)
            written.append(path)
            if len(written) == 4:  # benchmarks.json, machine.json, one result file, this one
                raise KeyboardInterrupt

        original(path, half)

    monkeypatch.setattr(asv_files, "_write_whole", fails_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        export()
    results = clone.root / ".asv" / "results"
    assert len(by_commit(results)) == 1
    assert not [path for path in results.rglob("*") if path.name.startswith(".export-")]
    monkeypatch.undo()
    report = export()
    assert (len(report.written), len(report.unchanged)) == (2, 1)
    for commit in ran.commits:
        assert content(by_commit(results)[commit]) == content(by_commit(ran.results)[commit])


def test_a_file_of_another_commit_with_the_same_eight_digits_is_not_touched(
    ran, clone, ledger, export
):
    def other_commit(row):
        del row

    path = changed_file(ran, clone, other_commit)
    document = json.loads(path.read_text())
    document["commit_hash"] = document["commit_hash"][:8] + "0" * 32
    path.write_text(json.dumps(document))
    before = path.read_bytes()
    with pytest.raises(ExportError, match="asv names files by eight digits"):
        export()
    assert path.read_bytes() == before


def test_a_suite_that_cannot_be_imported_is_one_line(clone):
    (clone.root / "benchmarks" / "toy.py").write_text("import no_such_module\n")
    completed = k3bench(clone, "export", "asv", expect=70)
    assert "asv cannot discover the benchmarks of preset smoke" in completed.stderr
    assert "Traceback" not in completed.stderr and len(completed.stderr.splitlines()) == 1


def test_an_empty_ledger_has_nothing_to_export(clone):
    for path in clone.root.glob("results.sqlite*"):
        path.unlink()
    k3bench(clone, "ledger", "seed")
    completed = k3bench(clone, "export", "asv", expect=70)
    assert "the ledger has no results of a commit" in completed.stderr


def test_the_same_comes_out_of_postgresql(ran, clone, ledger, database, export):
    with ledger.session() as session:
        records = [record.to_json() for record in iterate_records(session)]
        identities = {record["manifest_id"] for record in records}
        documents = [load_manifest(session, identity) for identity in identities]
        runs = [run.to_json() for run in select_runs(session)]
    with open_ledger(database) as other:
        ingest(other, records, documents, runs)
        export_asv(other, clone.root)
    export(results_dir=clone.root / "from-sqlite")
    assert files_of(clone.root / ".asv" / "results") == files_of(clone.root / "from-sqlite")
