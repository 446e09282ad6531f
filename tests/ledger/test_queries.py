"""Queries: each filter, what counts as the same point, the JSON a row becomes, and look-ups."""

from collections import Counter
from types import SimpleNamespace

import pytest
from ledger.records import unmeasured, wrong

import manifests
from k3bench.ledger import (
    LedgerError,
    ingest,
    load_manifest,
    load_samples,
    select_results,
)
from k3bench.ledger.queries import benchmark_names, latest_finished_runs

COMMITS = SimpleNamespace(old="aaaa" + "0" * 36, new="aaab" + "0" * 36)
DOCUMENTED_KEYS = [
    "benchmark",
    "parameters",
    "implementation",
    "kind",
    "device",
    "clock",
    "median_s",
    "p10_s",
    "p90_s",
    "n",
    "tokens",
    "padded_tokens",
    "tokens_per_s",
    "correctness",
    "workload",
    "manifest_id",
    "commit",
    "started_at",
]


@pytest.fixture
def filled(ledger, manifest, make_record):
    """Two implementations, two commits, a wrong, a modelled and a published row."""

    def at(minute: int, **changes):
        return make_record(started_at=f"2026-08-01T12:{minute:02}:00Z") | changes

    records = [
        at(0, implementation="original", commit=COMMITS.old),
        at(1, implementation="chunked_xla", commit=COMMITS.old),
        at(2, implementation="chunked_xla", commit=COMMITS.new),
        at(3, implementation="flat", commit=COMMITS.new, **wrong()),
        at(4, benchmark="mla_decode.Decode.device_decode", commit=COMMITS.new),
        at(5, parameters={"seqlen": 1024, "batch": 4}, commit=COMMITS.new),
        at(6, **unmeasured("modelled"), device="tpu-v6e"),
        at(7, **unmeasured("published"), device="tpu-v6e", commit=None),
    ]
    ingest(ledger, records, [manifest])
    return ledger


def minutes(ledger, **conditions) -> list[int]:
    with ledger.session() as session:
        return [row.started_at.minute for row in select_results(session, **conditions)]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, [1, 2, 3, 0, 5, 4, 6, 7]),
        ({"kind": "published"}, [7]),
        ({"kind": "compiled"}, []),
        ({"benchmark": "kda"}, [1, 2, 3, 0, 5, 6, 7]),
        ({"benchmark": r"^mla_\w+\.Decode"}, [4]),
        ({"benchmark": "Prefill$"}, []),
        ({"commit": "aaaa"}, [1, 0]),
        ({"commit": "aaa"}, [1, 2, 3, 0, 5, 4]),
        ({"commit": COMMITS.new}, [2, 3, 5, 4]),
        ({"implementation": "chunked_xla", "kind": "measured"}, [1, 2, 5, 4]),
        ({"implementation": "chunked"}, []),
        ({"device": "tpu-v6e"}, [6, 7]),
        ({"preset": "ladder"}, []),
        ({"run_id": "run-1", "commit": COMMITS.old}, [1, 0]),
        ({"limit": 2}, [6, 7]),
        ({"latest": True}, [2, 3, 0, 5, 4, 6, 7]),
        ({"latest": True, "commit": COMMITS.old}, [1, 0]),
        ({"latest": True, "limit": 4}, [5, 4, 6, 7]),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_each_condition_selects(filled, conditions, expected):
    assert minutes(filled, **conditions) == expected


@pytest.mark.parametrize(
    "other",
    [
        {"device": "mi355x"},
        {"clock": "device"},
        {"preset": "ladder"},
        {"workload": {"id": "kda-grid/S64_B4", "sha256": "b" * 64}},
        {"parameters": {"seqlen": 64.0, "batch": 4}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_answers_another_question_is_another_point(ledger, manifest, make_record, other):
    ingest(ledger, [make_record(), make_record(**other)], [manifest])
    assert len(minutes(ledger, latest=True)) == 2


def test_latest_means_the_same_with_and_without_the_index_of_series(ledger, manifest, make_record):
    # Asked for a commit the rows are ranked, asked for all of them each series is looked up.
    times = ["2026-08-01T12:00:00Z", "2026-08-02T12:00:00Z", "2026-08-02T12:00:00Z"]
    records = [
        make_record(started_at=time, parameters={"s": s}, preset=preset, device=device)
        for time in times
        for s in (1, 1.0, True, "1")
        for preset in (None, "smoke")
        for device in ("cpu", "tpu-v6e")
    ]
    ingest(ledger, records, [manifest])
    with ledger.session() as session:
        looked_up = select_results(session, latest=True)
        ranked = select_results(session, latest=True, commit=records[0]["commit"])
        one_device = select_results(session, latest=True, device="cpu", kind="measured")
    assert looked_up == ranked and len(looked_up) == 16
    assert one_device == [row for row in looked_up if row.device == "cpu"]


def test_names_of_benchmarks_come_once_and_sorted(ledger, manifest, make_record):
    with ledger.session() as session:
        assert benchmark_names(session) == []
    names = ["b.B.device_b", "a.A.device_a", "é.É.device_e", "b.B.device_b"]
    ingest(ledger, [make_record(benchmark=name) for name in names], [manifest])
    with ledger.session() as session:
        assert benchmark_names(session) == sorted(set(names))


def test_parameters_are_ordered_by_size_not_by_spelling(ledger, manifest, make_record):
    values = [{"s": 1024}, {"s": 8}, {"s": "page"}, {"s": 64.5}, {"s": True}]
    ingest(ledger, [make_record(parameters=value) for value in values], [manifest])
    with ledger.session() as session:
        rows = select_results(session)
    assert [row.parameters["s"] for row in rows] == [True, 8, 64.5, 1024, "page"]


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"kind": "guessed"}, "no kind 'guessed'"),
        ({"benchmark": "("}, r"benchmark pattern '\(' is no regular expression"),
        ({"commit": "HEAD"}, "commit 'HEAD' is no prefix of a hash"),
        ({"commit": ""}, "commit '' is no prefix"),
        ({"limit": 0}, "limit 0: ask for at least one row"),
    ],
    ids=["kind", "pattern", "commit", "no commit", "limit"],
)
def test_a_condition_that_cannot_be_meant_is_refused(filled, conditions, message):
    with pytest.raises(LedgerError, match=message) as caught:
        minutes(filled, **conditions)
    assert caught.value.reason == "usage"


def test_a_row_as_json_has_the_documented_keys_first_and_in_order(filled):
    with filled.session() as session:
        rows = select_results(session)
        documents = [row.to_json() for row in rows]
    for document in documents:
        assert list(document)[: len(DOCUMENTED_KEYS)] == DOCUMENTED_KEYS
        assert list(document["correctness"]) == ["status", "max_abs_error", "tolerance"]
        assert list(document["workload"]) == ["id", "sha256"]
    right, refuted = documents[1], documents[2]
    assert right["tokens_per_s"] == right["tokens"] / right["median_s"]
    assert right["started_at"] == "2026-08-01T12:02:00+00:00"
    assert refuted["correctness"] == {"status": "wrong", "max_abs_error": 0.3, "tolerance": 5e-4}
    assert refuted["median_s"] is None and refuted["n"] == 0


def test_samples_are_looked_up_by_id(filled):
    with filled.session() as session:
        rows = select_results(session)
        assert load_samples(session, rows[0].id) == (0.003, 0.001, 0.002)
        assert load_samples(session, rows[2].id) == ()  # the wrong one
        with pytest.raises(LookupError, match="no result 'ffff'"):
            load_samples(session, "ffff")


def test_manifests_are_looked_up_by_prefix(filled, manifest, manifest_id):
    with filled.session() as session:
        for prefix in (manifest_id, manifest_id[:1], manifest_id[:12]):
            assert load_manifest(session, prefix) == manifest
        for prefix in ("", "g", "%", manifest_id.upper(), manifest_id + "0", "f" * 64):
            with pytest.raises(LookupError, match="no manifest"):
                load_manifest(session, prefix)


def test_an_ambiguous_manifest_prefix_is_refused(filled, manifest):
    times = [f"2026-08-01T00:00:{second:02}.000Z" for second in range(17)]
    others = [{**manifest, "state": {**manifest["state"], "captured_at": time}} for time in times]
    ingest(filled, [], others)
    # 17 hashes and 16 digits: two of them begin alike.
    first_digits = Counter(manifests.manifest_id(other)[0] for other in others)
    ((shared, _),) = first_digits.most_common(1)
    with filled.session() as session, pytest.raises(LookupError, match="several manifests"):
        load_manifest(session, shared)


def test_only_finished_runs_count_as_the_latest(ledger, manifest, make_record):
    runs = [
        {
            "id": "first",
            "started_at": "2026-08-01T10:00:00Z",
            "finished_at": "2026-08-01T11:00:00Z",
        },
        {
            "id": "second",
            "started_at": "2026-08-02T10:00:00Z",
            "finished_at": "2026-08-02T11:00:00Z",
        },
        {"id": "killed", "started_at": "2026-08-03T10:00:00Z"},
        {
            "id": "ladder",
            "started_at": "2026-07-01T10:00:00Z",
            "finished_at": "2026-07-01T11:00:00Z",
        },
    ]
    records = [make_record(run_id=run["id"]) for run in runs[:3]]
    records.append(make_record(run_id="ladder", preset="ladder"))
    ingest(ledger, records, [manifest], runs)
    with ledger.session() as session:
        assert latest_finished_runs(session) == {"smoke": "second", "ladder": "ladder"}
