"""The speed script: valid records, figures of what it says, and no harm to a real ledger."""

import json

from k3bench.ledger import ingest, iterate_records, open_ledger
from k3bench.ledger.check import check
from k3bench.ledger.speed import SERIES, SINGLE, main


def test_it_times_ingest_and_questions_at_every_size(empty_url, capsys):
    assert main(["--url", empty_url, "--commits", "2", "--samples", "3", "--json"]) == 0
    timings = json.loads(capsys.readouterr().out)
    asked = {each["what"]: each for each in timings}
    assert asked["ingest, 5000 points a call, 3 samples each"]["items"] == 2 * SERIES
    assert asked["results of one commit"]["items"] == SERIES
    assert asked["results of one commit, with samples"]["items"] == SERIES
    # Those of the two commits, and what the single points were made of: some of the same series.
    assert asked["newest result of every point"]["items"] == SERIES
    assert asked["names of all benchmarks"]["items"] == 10
    assert all(each["wall_s"] > 0 for each in timings)
    with open_ledger(empty_url) as ledger:
        report = check(ledger)
    assert report.problems == () and report.results == 2 * SERIES + SINGLE


def test_made_up_records_never_go_beside_real_ones(ledger, url, manifest, make_record, capsys):
    ingest(ledger, [make_record()], [manifest])
    assert main(["--url", url, "--commits", "1"]) == 2
    assert "holds results: name an empty ledger" in capsys.readouterr().err
    with ledger.session() as session:
        assert len(list(iterate_records(session))) == 1
