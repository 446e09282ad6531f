"""`k3bench ledger sync`: what comes in, what the ledger refuses, and the exit code that says so."""

import json

import pytest
from click.testing import CliRunner

from k3bench.cli.errors import BAD_DATA
from k3bench.cli.ledger import ledger as ledger_command
from k3bench.journal import RunJournal, abandoned, runs_directory
from k3bench.ledger import iterate_records, open_ledger
from k3bench.paths import MARKER


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / MARKER).write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def interrupted(project, manifest, manifest_id):
    """Leaves the journal of a run that is over, with the records given."""

    def leave(*records) -> None:
        journal = RunJournal.create(runs_directory(project), {"started_at": "then"})
        assert journal.project_root == project
        journal.add_manifest(manifest_id, manifest)
        for number, record in enumerate(records):
            journal.append(f"key{number}", "env", record)
        journal.unlock()

    return leave


def sync(*arguments: str):
    return CliRunner().invoke(ledger_command, ["sync", *arguments])


def ids_in(project) -> list[str]:
    with open_ledger(str(project / "results.sqlite")) as ledger, ledger.session() as session:
        return [record.id for record in iterate_records(session)]


def test_points_come_in_once_and_stay_journaled_for_the_run_to_resume(
    project, interrupted, make_record
):
    records = [make_record() for _ in range(3)]
    interrupted(*records)
    for _ in range(2):
        outcome = sync("--json")
        assert outcome.exit_code == 0 and json.loads(outcome.stdout) == {"points": 3}
        assert ids_in(project) == sorted(record["id"] for record in records)
    (journal,) = abandoned(runs_directory(project))
    assert sum(1 for _ in journal.points()) == 3


def test_points_that_the_ledger_refuses_stay_and_are_counted(project, interrupted, make_record):
    good = make_record()
    interrupted(good)
    interrupted(make_record(), make_record(n=4))
    outcome = sync()
    assert outcome.exit_code == BAD_DATA
    assert "1 points of interrupted runs are in the ledger" in outcome.output
    assert "n: is 4, but there are 3 samples" in " ".join(outcome.output.split())
    assert "2 points stay in their journals" in outcome.output
    assert ids_in(project) == [good["id"]]


def test_nothing_to_bring_in_is_no_error(project):
    assert sync("--json").stdout == '{"points": 0}\n'
