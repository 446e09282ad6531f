"""Ingest: whole or not at all, twice is once, and nothing that contradicts itself gets in."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger.records import WORKLOAD, any_record, unmeasured, wrong
from sqlalchemy import func, select

from k3bench.ledger import (
    IngestReport,
    Ledger,
    LedgerError,
    ingest,
    iterate_records,
    load_manifest,
    load_samples,
    select_results,
    select_runs,
)
from k3bench.ledger.models import Manifest, Result, Run, Samples, Workload
from k3bench.ledger.record import RECORD_KEYS

OTHER_SHA = "b" * 64


def row_counts(ledger: Ledger) -> dict[str, int]:
    with ledger.session() as session:
        return {
            table.__tablename__: session.scalar(select(func.count()).select_from(table))
            for table in (Manifest, Workload, Run, Result, Samples)
        }


def test_a_record_comes_back_with_every_key_and_every_sample(ledger, manifest, make_record):
    record = make_record(samples_s=(0.004, 0.001, 0.0025, 0.002))
    assert ingest(ledger, [record], [manifest]) == IngestReport(inserted=1, unchanged=0)
    with ledger.session() as session:
        (back,) = (found.to_json() for found in iterate_records(session))
        assert back == record
        assert load_samples(session, record["id"]) == (0.004, 0.001, 0.0025, 0.002)
        assert load_manifest(session, record["manifest_id"]) == manifest
    assert set(record) == set(RECORD_KEYS)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_valid_record_survives_the_ledger_exactly(ledger, manifest, manifest_id, data):
    record = data.draw(any_record(manifest_id))
    with ledger.session() as session:
        known = record["id"] in {row.id for row in iterate_records(session)}
    if known:  # hypothesis drew the same id for another record
        return
    ingest(ledger, [record], [manifest])
    assert ingest(ledger, [record], [manifest]) == IngestReport(inserted=0, unchanged=1)
    with ledger.session() as session:
        back = {found.id: found.to_json() for found in iterate_records(session)}[record["id"]]
        (row,) = (r for r in select_results(session) if r.id == record["id"])
    assert back == record
    # == lets 1, 1.0 and True pass for each other; a parameter's type is part of the point.
    assert [type(back["parameters"][k]) for k in back["parameters"]] == [
        type(record["parameters"][k]) for k in back["parameters"]
    ]
    shown = row.to_json()
    for key in set(RECORD_KEYS) - {"samples_s", "correctness"}:
        assert shown[key] == record[key]
    assert shown["correctness"] == {
        key: record["correctness"][key] for key in ("status", "max_abs_error", "tolerance")
    }


def test_ingesting_twice_changes_nothing(ledger, manifest, make_record):
    records = [make_record() for _ in range(3)]
    ingest(ledger, records, [manifest])
    before = row_counts(ledger)
    assert ingest(ledger, records, [manifest]) == IngestReport(inserted=0, unchanged=3)
    assert ingest(ledger, records) == IngestReport(inserted=0, unchanged=3)
    assert row_counts(ledger) == before


def test_a_record_given_twice_in_one_call_goes_in_once(ledger, manifest, make_record):
    record = make_record()
    report = ingest(ledger, [record, dict(record)], [manifest])
    assert report == IngestReport(inserted=1, unchanged=1)


@pytest.mark.parametrize("bound_s", [0.001, 0.0007, 1.1e-7])
@pytest.mark.parametrize("kind", ["measured", "modelled"])
def test_a_distance_is_as_good_as_its_last_bits(ledger, manifest, make_record, kind, bound_s):
    record = make_record() | ({} if kind == "measured" else unmeasured(kind))
    times = record["median_s"] / bound_s
    for number, stated in enumerate((times, math.nextafter(times, 0), 1 / (bound_s / 0.002))):
        figures = {"roofline.bound_s": bound_s, "roofline.times_bound": stated}
        ingest(ledger, [record | {"id": f"{number:032x}", "figures": figures}], [manifest])


def test_an_empty_call_is_good(ledger):
    assert ingest(ledger, []) == IngestReport(inserted=0, unchanged=0)


@pytest.mark.parametrize(
    "change",
    [
        {"device": "tpu-v6e"},
        {"parameters": {"seqlen": 64.0, "batch": 4}},
        {"compile_s": 0.25},
        {"started_at": "2026-08-01T12:00:01+00:00"},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("when", ["later", "in the same call"])
def test_a_known_id_with_other_content_is_refused(ledger, manifest, make_record, change, when):
    record = make_record()
    changed = {**record, **change}
    if when == "later":
        ingest(ledger, [record], [manifest])
        before = row_counts(ledger)
        call = [changed]
    else:
        before = row_counts(ledger)
        call = [record, changed]
    with pytest.raises(LedgerError, match=f"record {record['id']}.*differs") as caught:
        ingest(ledger, call, [manifest])
    assert next(iter(change)).rstrip("s") in str(caught.value)
    assert row_counts(ledger) == before


def test_one_bad_record_keeps_all_the_others_out(ledger, manifest, make_record):
    good = [make_record() for _ in range(700)]  # more than one batch of statements
    with pytest.raises(LedgerError, match=r"record 700 .*: n: is 4"):
        ingest(ledger, [*good, make_record(n=4)], [manifest])
    unknown = make_record(manifest_id=OTHER_SHA)  # found out only inside the transaction
    with pytest.raises(LedgerError, match="manifest_id: bbbbbbbbbbbb is not in the ledger"):
        ingest(ledger, [*good, unknown], [manifest])
    assert set(row_counts(ledger).values()) == {0}
    assert ingest(ledger, good, [manifest]).inserted == 700
    assert ingest(ledger, good).unchanged == 700


def test_the_same_name_with_other_lengths_is_another_workload(ledger, manifest, make_record):
    other = {"id": WORKLOAD["id"], "sha256": OTHER_SHA}
    ingest(ledger, [make_record(), make_record(workload=other)], [manifest])
    assert row_counts(ledger)["workload"] == 2


def test_a_malformed_manifest_is_refused_by_position(ledger, make_record):
    with pytest.raises(LedgerError, match=r"^manifest 0: ") as caught:
        ingest(ledger, [make_record()], [{"schema_version": 1}])
    assert "\n" not in str(caught.value)
    assert set(row_counts(ledger).values()) == {0}


def contradictions() -> dict[str, tuple[dict[str, Any], str]]:
    """Name to changes of a valid measured record, and what the refusal must say."""
    return {
        "figures": (
            {"figures": {"flops": 3, "flops_per_s": 5.0}},
            "figures.flops_per_s: is 5.0, but the median gives",
        ),
        "figures-without-amount": (
            {"figures": {"flops_per_s": 5.0}},
            "figures.flops_per_s: is a rate",
        ),
        "distance": (
            {"figures": {"roofline.bound_s": 0.001, "roofline.times_bound": 2.0001}},
            "figures.roofline.times_bound: is 2.0001, but median_s over roofline.bound_s is 2.0",
        ),
        "distance of another type": (
            {"figures": {"roofline.bound_s": 0.002, "roofline.times_bound": True}},
            "figures.roofline.times_bound: is True, but",
        ),
        "distance without its bound": (
            {"figures": {"roofline.times_bound": 2.0}},
            "figures.roofline.times_bound: needs roofline.bound_s beside it",
        ),
        "distance from no time": (
            {"figures": {"roofline.bound_s": 0, "roofline.times_bound": 2.0}},
            "figures.roofline.times_bound: needs roofline.bound_s beside it, a positive number",
        ),
        "distance from what no float holds": (
            {"figures": {"roofline.bound_s": 10**400, "roofline.times_bound": 2.0}},
            "figures.roofline.times_bound: needs roofline.bound_s beside it, a positive number",
        ),
        "modelled distance": (
            {
                **unmeasured("modelled"),
                "figures": {"roofline.bound_s": 0.001, "roofline.times_bound": 1.5},
            },
            "figures.roofline.times_bound: is 1.5, but median_s over roofline.bound_s is 2.0",
        ),
        "modelled distance without a median": (
            {
                **unmeasured("modelled"),
                "median_s": None,
                "tokens_per_s": None,
                "figures": {"roofline.bound_s": 0.001, "roofline.times_bound": 2.0},
            },
            "figures.roofline.times_bound: needs a median_s beside it",
        ),
        "figures-of-wrong": (
            {**wrong(), "figures": {"flops": 3}},
            "figures: must be null: the kernel is wrong",
        ),
        "median": ({"median_s": 0.00200001}, "median_s: is 0.00200001, but the samples give"),
        "p10": ({"p10_s": 0.001}, "p10_s: is 0.001, but"),
        "p90": ({"p90_s": None}, "p90_s: is None, but"),
        "throughput": ({"tokens_per_s": 128000.1}, "tokens_per_s: is 128000.1, but"),
        "no throughput": ({"tokens_per_s": None}, "tokens_per_s: is null, but 256 tokens took"),
        "throughput of padding": ({"tokens": 200}, "tokens_per_s: is 128000.0, but"),
        "fewer padded than actual": ({"padded_tokens": 255}, "padded_tokens: is 255, less than"),
        "count": ({"n": 2}, "n: is 2, but there are 3 samples"),
        "wrong with samples": (
            {"correctness": {"status": "wrong"}},
            "samples_s: must be empty and n 0: the kernel is wrong",
        ),
        "failed with a median": (
            {**wrong("failed"), "median_s": 0.1},
            "median_s: must be null: the kernel is failed",
        ),
        "wrong with throughput": (
            {**wrong(), "tokens_per_s": 1.0},
            "tokens_per_s: must be null: the kernel is wrong",
        ),
        "wrong with a count": ({**wrong(), "n": 3}, "samples_s: must be empty and n 0"),
        "measured without samples": (
            {**wrong(), "correctness": {"status": "ok"}},
            "samples_s: is empty",
        ),
        "measured without manifest": ({"manifest_id": None}, "manifest_id: is null"),
        "measured without commit": ({"commit": None}, "commit: is null"),
        "measured without clock": ({"clock": None}, "clock: is null beside samples"),
        "published without source": (
            {**unmeasured("published"), "source": None},
            "source: is null",
        ),
        "published with manifest": (
            {**unmeasured("published"), "manifest_id": OTHER_SHA},
            "manifest_id: must be null",
        ),
        "published with samples": (
            {**unmeasured("published"), "samples_s": [0.002], "n": 1},
            "samples_s: must be empty: kind is published",
        ),
        "published far from its throughput": (
            {**unmeasured("published"), "tokens_per_s": 128000 * 1.011},
            "tokens_per_s: is",
        ),
        "compiled with clock": ({**unmeasured("compiled"), "clock": "wall"}, "clock: must be null"),
        "modelled with a count": ({**unmeasured("modelled"), "n": 5}, "n: must be 0"),
        "compiled with p90 below median": (
            {**unmeasured("compiled"), "p90_s": 0.001},
            "p90_s: is 0.001, below the median",
        ),
        "modelled with p10 above median": (
            {**unmeasured("modelled"), "p10_s": 0.003},
            "p10_s: is 0.003, above the median",
        ),
        "compiled with a median of zero": (
            {**unmeasured("compiled"), "median_s": 0.0, "tokens_per_s": None},
            "median_s: is 0",
        ),
        "modelled throughput without median": (
            {**unmeasured("modelled"), "median_s": None},
            "tokens_per_s: needs a median_s",
        ),
        "throughput without tokens": (
            {"tokens": None, "padded_tokens": None},
            "tokens_per_s: needs tokens",
        ),
    }


@pytest.mark.parametrize("name", contradictions())
def test_a_record_that_contradicts_itself_is_refused(ledger, manifest, make_record, name):
    changes, message = contradictions()[name]
    record = make_record() | changes
    with pytest.raises(LedgerError) as caught:
        ingest(ledger, [record], [manifest])
    assert f"record 0 ({record['id']}, {record['benchmark']}): {message}" in str(caught.value)
    assert set(row_counts(ledger).values()) == {0}


def test_rounding_of_the_last_bits_is_no_contradiction(ledger, manifest, make_record):
    record = make_record()
    record["median_s"] *= 1 + 5e-13
    record["tokens_per_s"] *= 1 - 5e-13
    assert ingest(ledger, [record], [manifest]).inserted == 1


@pytest.mark.parametrize("status", ["wrong", "failed"])
def test_a_wrong_kernel_is_recorded_without_a_speed(ledger, manifest, make_record, status):
    ingest(ledger, [make_record(**wrong(status), clock=None)], [manifest])
    with ledger.session() as session:
        (row,) = select_results(session)
        assert load_samples(session, row.id) == ()
    assert (row.correctness_status, row.n, row.median_s) == (status, 0, None)
    assert row.tokens == 256 and row.tokens_per_s is None


def test_a_run_nobody_describes_is_entered_as_unfinished(ledger, manifest, make_record):
    times = ["2026-08-01T12:00:05+00:00", "2026-08-01T12:00:01+00:00"]
    ingest(ledger, [make_record(started_at=time) for time in times], [manifest])
    with ledger.session() as session:
        (run,) = select_runs(session)
    assert run.started_at.isoformat() == times[1]
    assert (run.id, run.finished_at, run.command) == ("run-1", None, None)


def test_a_run_can_be_finished_but_not_changed(ledger, manifest, make_record):
    started = {"id": "run-1", "started_at": "2026-08-01T11:59:00+00:00", "command": "asv run"}
    finished = {**started, "finished_at": "2026-08-01T12:30:00+00:00"}
    ingest(ledger, [make_record()], [manifest])
    ingest(ledger, [], runs=[started])
    for _ in range(2):
        ingest(ledger, [], runs=[finished])
    ingest(ledger, [], runs=[started])  # told again from before it ended
    with ledger.session() as session:
        (run,) = select_runs(session)
    assert run.to_json() == finished
    with pytest.raises(LedgerError, match="run run-1 is in the ledger with other times"):
        ingest(ledger, [], runs=[{**finished, "finished_at": "2026-08-01T12:31:00+00:00"}])


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"id": "r"}, "run 0: started_at: is missing"),
        ({"id": "", "started_at": "2026-08-01T12:00:00Z"}, "run 0: id: is empty"),
        ({"id": "r", "started_at": "2026-08-01T12:00:00"}, "run 0: started_at: .* is not UTC"),
        ({"id": "r", "started_at": "noon"}, "run 0: started_at: expected an ISO 8601"),
        ({"id": "r", "started_at": "2026-08-01T12:00:00Z", "who": 1}, "run 0: who: is no key"),
        (
            {
                "id": "r",
                "started_at": "2026-08-01T12:00:00Z",
                "finished_at": "2026-08-01T11:00:00Z",
            },
            "run 0: finished_at: is before started_at",
        ),
    ],
    ids=["no start", "no name", "no zone", "no time", "unknown key", "backwards"],
)
def test_a_malformed_run_is_refused(ledger, run, message):
    with pytest.raises(LedgerError, match=message):
        ingest(ledger, [], runs=[run])
