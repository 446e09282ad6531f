"""The snapshot: small, at rest, the newest finished run with samples, and nothing destroyed."""

import sqlite3
from contextlib import closing

import pytest

from k3bench.ledger import LedgerError, ingest, iterate_records, open_ledger, select_runs
from k3bench.ledger import snapshot as snapshot_module
from k3bench.ledger.check import check
from k3bench.ledger.published import published_records
from k3bench.ledger.snapshot import main, write_snapshot
from k3bench.paths import MARKER

PUBLISHED_IDS = {record["id"] for record in published_records()}
OTHER_COMMIT = "f" * 40


def finished(name: str, day: int) -> dict[str, str]:
    return {
        "id": name,
        "started_at": f"2026-08-{day:02}T10:00:00Z",
        "finished_at": f"2026-08-{day:02}T11:00:00Z",
    }


@pytest.fixture
def history(ledger, manifest, make_record):
    """An old and a new finished smoke run, a ladder run, a killed one; returns ids by run."""
    runs = [finished("old", 2), finished("new", 3), finished("deep", 1)]
    runs.append({"id": "dead", "started_at": "2026-08-04T10:00:00Z"})
    records = {
        "old": [make_record(run_id="old") for _ in range(4)],
        "new": [make_record(run_id="new", parameters={"seqlen": s}) for s in (8, 16)],
        "deep": [make_record(run_id="deep", preset="ladder")],
        "dead": [make_record(run_id="dead", commit=OTHER_COMMIT)],
    }
    ingest(ledger, [record for some in records.values() for record in some], [manifest], runs)
    return {name: {record["id"] for record in some} for name, some in records.items()}


def contents(path) -> set[str]:
    with open_ledger(str(path), create=False) as opened, opened.session() as session:
        return {record.id for record in iterate_records(session)}


def test_it_holds_the_published_figures_and_the_newest_finished_run_of_each_preset(
    ledger, history, tmp_path
):
    out = tmp_path / "results.sqlite"
    report = write_snapshot(ledger, out)
    assert report.runs_by_preset == {"smoke": "new", "ladder": "deep"}
    assert contents(out) == PUBLISHED_IDS | history["new"] | history["deep"]
    assert (report.published, report.recorded) == (len(PUBLISHED_IDS), 3)
    assert report.size_bytes == out.stat().st_size < 5_000_000
    assert report.kept is None
    audit = check(open_ledger(str(out)))
    assert audit.ok and audit.samples == 9 and audit.manifests == 1
    with open_ledger(str(out)).session() as session:
        assert {found.id for found in select_runs(session)} == {"new", "deep"}


def test_it_rests_without_side_files_and_compact(ledger, history, tmp_path):
    out = tmp_path / "rest" / "results.sqlite"
    out.parent.mkdir()
    write_snapshot(ledger, out)
    contents(out)
    assert [entry.name for entry in out.parent.iterdir()] == ["results.sqlite"]
    with closing(sqlite3.connect(out)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_the_same_content_gives_the_same_bytes(ledger, history, tmp_path):
    for name in ("first", "second"):
        write_snapshot(ledger, tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_it_takes_what_a_resumed_run_took_over_from_the_interrupted_one(
    ledger, history, manifest, make_record, tmp_path
):
    taken_over = make_record(run_id="cut", parameters={"seqlen": 32})
    measured_again = make_record(run_id="cut", parameters={"seqlen": 8})
    other_commit = make_record(run_id="cut", parameters={"seqlen": 64}, commit=OTHER_COMMIT)
    ingest(ledger, [taken_over, measured_again, other_commit], [manifest])
    out = tmp_path / "results.sqlite"
    write_snapshot(ledger, out)
    expected = history["new"] | history["deep"] | {taken_over["id"]}
    assert contents(out) - PUBLISHED_IDS == expected


def test_compiled_figures_of_the_run_come_along(ledger, history, make_record, tmp_path):
    compiled = make_record(run_id="new", kind="compiled", preset=None, clock=None) | {
        "samples_s": [],
        "n": 0,
    }
    ingest(ledger, [compiled])
    write_snapshot(ledger, tmp_path / "results.sqlite")
    assert compiled["id"] in contents(tmp_path / "results.sqlite")


def test_replacing_the_ledger_itself_keeps_what_the_snapshot_forgets(ledger, history, path):
    report = write_snapshot(ledger, path)
    assert contents(path) == PUBLISHED_IDS | history["new"] | history["deep"]
    assert report.kept is not None and report.kept.parent == path.parent / ".k3bench"
    assert contents(report.kept) == set().union(*history.values())
    again = write_snapshot(open_ledger(str(path)), path)
    assert again.kept is None  # nothing left to forget


def test_a_ledger_in_use_is_not_replaced(ledger, history, path):
    before = contents(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT count(*) FROM result").fetchone()
        with pytest.raises(LedgerError, match="in use by another process") as caught:
            write_snapshot(ledger, path)
    assert caught.value.reason == "unavailable"
    assert contents(path) == before
    assert not any(entry.name.startswith(".snapshot") for entry in path.parent.iterdir())


def test_a_file_that_is_no_ledger_is_not_replaced(ledger, history, tmp_path):
    out = tmp_path / "notes.txt"
    out.write_text("not to be lost " * 100)
    with pytest.raises(LedgerError, match="is no ledger"):
        write_snapshot(ledger, out)
    assert out.read_text().startswith("not to be lost")


def test_a_snapshot_that_is_too_large_is_refused(ledger, history, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot_module, "MAX_BYTES", 100_000)
    with pytest.raises(LedgerError, match=r"would take [\d,]+ bytes, the limit is 100,000"):
        write_snapshot(ledger, tmp_path / "results.sqlite")
    assert not (tmp_path / "results.sqlite").exists()


def test_a_full_size_smoke_run_fits(ledger, manifest, make_record, tmp_path):
    records = [
        make_record(samples_s=tuple(1e-3 + 1e-6 * i for i in range(100)), parameters={"point": p})
        for p in range(700)
    ]
    ingest(ledger, records, [manifest], [finished("run-1", 1)])
    report = write_snapshot(ledger, tmp_path / "results.sqlite")
    assert report.recorded == 700 and report.size_bytes < 2_500_000


def test_the_command_makes_the_first_snapshot_of_a_new_checkout(tmp_path, monkeypatch, capsys):
    (tmp_path / MARKER).write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    assert contents(tmp_path / "results.sqlite") == PUBLISHED_IDS
    assert f"{len(PUBLISHED_IDS)} published figures, 0 recorded" in capsys.readouterr().out


def test_the_command_takes_a_source_and_a_target(ledger, history, path, tmp_path, capsys):
    out = tmp_path / "out.sqlite"
    assert main(["--from", f"sqlite:///{path}", "--out", str(out)]) == 0
    assert history["new"] <= contents(out)
    assert main(["--from", str(tmp_path / "no.sqlite"), "--out", str(out)]) == 2
    assert capsys.readouterr().err.startswith("k3bench: error: no ledger at ")
