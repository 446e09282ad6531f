"""What is read from the ledger: the newest row a run, raw columns, and repeated runs."""

import numpy as np
import pytest

from k3bench.gate import GateError
from k3bench.gate.history import select_series
from k3bench.gate.select import (
    commits_starting_with,
    is_run,
    of_commit,
    of_run,
    repeated_medians,
    select_side,
)
from k3bench.gate.speed import main, records
from k3bench.ledger import ingest

A, B = "a" * 40, "b" * 40


def fingerprints(side):
    return {row.fingerprint for rows in side.values() for row in rows}


def test_a_side_has_one_row_a_point_and_run(ledger, store):
    store("run-1")
    store("run-2", factor=1.1)
    store("run-3", commit=B)
    with ledger.session() as session:
        side = select_side(session, "a", of_commit("aaaa"))
        single = select_side(session, "run-3", of_run("run-3"))
        assert commits_starting_with(session, "b") == [B] and is_run(session, "run-1")
        assert not is_run(session, "run-9")
        with pytest.raises(GateError, match="measure it first"):
            select_side(session, "c", of_commit("cccc"))
    assert len(side) == 4 and {len(rows) for rows in side.values()} == {2}
    assert {len(rows) for rows in single.values()} == {1}
    row = next(iter(side.values()))[0]
    assert row.median_s == pytest.approx(np.median(row.samples_s)) and len(row.samples_s) == 12


def test_only_commits_with_several_runs_count_as_repeated(ledger, store):
    store("run-1")
    store("run-2", factor=1.1)
    store("run-3", commit=B)
    with ledger.session() as session:
        where = fingerprints(select_side(session, "a", of_commit(A)))
        repeats = repeated_medians(session, where)
        assert repeated_medians(session, {"0" * 64}) == {} == repeated_medians(session, set())
    assert len(repeats) == 4
    for commits in repeats.values():
        assert list(commits) == [A]
        first, second = commits[A]
        assert second - first == pytest.approx(np.log(1.1))


def test_a_series_is_ordered_by_the_commits_given(ledger, store):
    store("run-1")
    store("run-2", commit=B, factor=2.0)
    with ledger.session() as session:
        series = select_series(session, [B, A], None)
        assert not select_series(session, [B, A], ["another"])
    assert {tuple(value.commit for value in values) for values in series.values()} == {(B, A)}


def test_the_speed_script_compares_every_point_it_makes(capsys):
    assert main(["40"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| 40 |") and len(lines) == 3


def test_the_speed_scripts_records_are_valid(ledger, manifest):
    import manifests

    made = list(records(4, manifests.manifest_id(manifest)))
    assert ingest(ledger, made, [manifest]).inserted == 8


def test_a_further_clock_is_a_series_of_its_own(ledger, store):
    store("run-1")
    store("run-1", figures={"further_clock": "graph"}, factor=0.5)
    with ledger.session() as session:
        side = select_side(session, "a", of_commit(A))
        series = select_series(session, [A], None)
        repeats = repeated_medians(session, fingerprints(side))
    clocks = [point.further_clock for point in side]
    assert len(side) == 8 and clocks.count("graph") == clocks.count(None) == 4
    assert {len(rows) for rows in side.values()} == {1}
    assert {len(values) for values in series.values()} == {1} and set(series) == set(side)
    assert repeats == {}
    named = next(point for point in side if point.further_clock)
    assert named.label().endswith(" by graph")
