"""Records are read strictly: every key, the right type, and a message that names the field."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger.records import any_record, measured, unmeasured, wrong

from k3bench.ledger.errors import LedgerError
from k3bench.ledger.record import (
    RECORD_KEYS,
    FieldError,
    parse_fields,
    parse_record,
    parse_thoroughly,
)

MANIFEST_ID = "c" * 64
# What JSON, and what is nearly JSON, can hold in the place of a value.
_ODD = (
    "", "\0", "\ud800", "é", "ok", "wall", "smoke", "measured",
    "a" * 7, "a" * 32, "a" * 64, "A" * 64,
    0, -1, 2**63, 10**400, 0.0, -0.0, math.nan, math.inf, -math.inf,
    [], (), {}, [0.5], [0.5, math.nan], (0.5,), {"a": 1}, {"a": None}, {1: 2},
    "2026-08-01T12:00:00Z", "2026-08-01T12:00:00+00:00", "2026-08-01T12:00:00+02:00",
    "2026-08-01T12:00:00", "2026-08-01", "2026-08-01T12:00:00.123456+00:00",
)  # fmt: skip
_odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(_ODD),
)


@given(any_record(MANIFEST_ID))
def test_parsing_and_writing_are_inverse(record):
    assert parse_record(record).to_json() == record


@pytest.mark.parametrize("key", RECORD_KEYS)
def test_every_key_must_be_there(key):
    record = measured(MANIFEST_ID)
    del record[key]
    with pytest.raises(LedgerError, match=f": {key}: is missing: write null"):
        parse_record(record)


def test_an_unknown_key_is_named():
    with pytest.raises(LedgerError, match="medain_s: is no key of a record"):
        parse_record(measured(MANIFEST_ID, medain_s=1.0))


REFUSED: list[tuple[str, Any]] = [
    ("id", "not hex"),
    ("id", "A" * 32),
    ("id", "a" * 31),
    ("id", None),
    ("benchmark", ""),
    ("benchmark", 3),
    ("benchmark", "nul\0"),
    ("benchmark", "lone \ud800"),
    ("figures", [1]),
    ("figures", {"cycles": None}),
    ("figures", {"cycles": math.inf}),
    ("parameters", [1]),
    ("parameters", {"a": None}),
    ("parameters", {"a": [1]}),
    ("parameters", {"a": math.nan}),
    ("parameters", {1: "a"}),
    ("implementation", None),
    ("kind", "guessed"),
    ("kind", ["measured"]),
    ("device", ""),
    ("clock", "sundial"),
    ("preset", "overnight"),
    ("warmup", -1),
    ("warmup", 2.0),
    ("warmup", True),
    ("warmup", 2**63),
    ("samples_s", None),
    ("samples_s", "0.1"),
    ("samples_s", [0.1, "0.2"]),
    ("samples_s", [0.1, math.nan]),
    ("samples_s", [0.1, math.inf]),
    ("samples_s", [0.1, 0.0]),
    ("samples_s", [0.1, -0.1]),
    ("samples_s", [True]),
    ("median_s", math.nan),
    ("median_s", 10**400),
    ("p10_s", "0.1"),
    ("n", None),
    ("n", -1),
    ("compile_s", -0.1),
    ("tokens", 1.5),
    ("padded_tokens", -1),
    ("tokens_per_s", math.inf),
    ("correctness", None),
    ("correctness", {}),
    ("correctness", {"status": "maybe"}),
    ("correctness", {"status": "ok", "max_abs_error": math.nan}),
    ("correctness", {"status": "ok", "note": "x"}),
    ("workload", {"id": "x"}),
    ("workload", {"id": "x", "sha256": "A" * 64}),
    ("workload", {"id": "x", "sha256": "a" * 64, "seed": 0}),
    ("manifest_id", "c" * 63),
    ("commit", "HEAD"),
    ("commit", "abc12"),
    ("started_at", "2026-08-01T12:00:00"),
    ("started_at", "2026-08-01T14:00:00+02:00"),
    ("started_at", "yesterday"),
    ("started_at", 1785379521.0),
    ("run_id", ""),
    ("source", 7),
]


@pytest.mark.parametrize(
    ("key", "value"), REFUSED, ids=[f"{key}={value!r:.40}" for key, value in REFUSED]
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(key, value):
    with pytest.raises(LedgerError, match=rf"^record 3 .*\b{key}") as caught:
        parse_record(measured(MANIFEST_ID) | {key: value}, position=3)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("document", [None, [], "record", 3], ids=repr)
def test_what_is_no_object_is_refused(document):
    with pytest.raises(LedgerError, match=r"^record 0: expected an object"):
        parse_record(document)


def parsed_by(parse, document):
    try:
        return parse(document)
    except FieldError as error:
        return str(error)


def assert_both_parsers_agree(document) -> None:
    quick = parsed_by(parse_fields, document)
    thorough = parsed_by(parse_thoroughly, document)
    # As text too: == lets 1, 1.0 and True pass for each other.
    assert quick == thorough and repr(quick) == repr(thorough)


@settings(deadline=None)
@given(any_record(MANIFEST_ID))
def test_the_quick_parser_reads_what_the_thorough_one_does(record):
    assert_both_parsers_agree(record)


@settings(deadline=None)
@given(_odd_values)
def test_the_quick_parser_accepts_nothing_that_the_thorough_one_refuses(value):
    good = measured(MANIFEST_ID)
    for key in RECORD_KEYS:
        assert_both_parsers_agree({**good, key: value})
    for key in good["correctness"]:
        assert_both_parsers_agree({**good, "correctness": {**good["correctness"], key: value}})
    for key in good["workload"]:
        assert_both_parsers_agree({**good, "workload": {**good["workload"], key: value}})
    for key in ("parameters", "figures"):
        assert_both_parsers_agree({**good, key: {"name": value}})
    assert_both_parsers_agree({**good, "samples_s": [0.1, value]})


def test_an_ordinary_record_takes_the_quick_way(monkeypatch):
    def refuse(document):
        raise AssertionError("the thorough parser was asked")

    monkeypatch.setattr("k3bench.ledger.record.parse_thoroughly", refuse)
    for changes in ({}, wrong(), unmeasured("published"), {"figures": {"flops": 3.5, "k": "v"}}):
        parse_record(measured(MANIFEST_ID) | changes)


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_any_json_in_any_key_is_parsed_or_refused_in_one_line(value):
    for key in RECORD_KEYS:
        try:
            parse_record({**measured(MANIFEST_ID), key: value})
        except LedgerError as error:
            assert "\n" not in str(error)


def test_integers_are_seconds_too_and_z_is_utc():
    record = parse_record(
        measured(MANIFEST_ID, samples_s=(2, 1, 3), started_at="2026-08-01T12:00:00Z")
    )
    assert record.samples_s == (2.0, 1.0, 3.0)
    assert record.to_json()["started_at"] == "2026-08-01T12:00:00+00:00"


def test_correctness_may_leave_out_what_it_does_not_know():
    record = parse_record(measured(MANIFEST_ID, correctness={"status": "not_checked"}))
    assert record.to_json()["correctness"] == {
        "status": "not_checked",
        "max_abs_error": None,
        "tolerance": None,
        "reference": None,
        "detail": None,
    }


def test_number_types_of_parameters_tell_records_apart():
    texts = {
        parse_record(measured(MANIFEST_ID, id="d" * 32, parameters={"x": value})).canonical()
        for value in (1, 1.0, True, "1")
    }
    assert len(texts) == 4
