"""The published column layout, against the published files themselves."""

import csv
import io

import pytest
from attribution.compositions import (
    HOSTILE,
    composition,
    published_decode,
    published_prefill,
    published_table,
)
from shared_data import shared_file

from k3bench.attribution.render.names import RenderError
from k3bench.attribution.render.published_csv import (
    DECODE_COLUMNS,
    PREFILL_COLUMNS,
    published_csv,
)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_decode_is_the_published_table_to_the_last_digit() -> None:
    expected = published_table(shared_file, "decode")
    assert list(expected[0]) == list(DECODE_COLUMNS)
    assert rows_of(published_csv(published_decode(shared_file))) == expected


def test_prefill_is_the_published_table_to_the_last_digit() -> None:
    expected = published_table(shared_file, "prefill")
    assert list(expected[0]) == list(PREFILL_COLUMNS)
    assert rows_of(published_csv(published_prefill(shared_file))) == expected


def test_what_the_layout_has_no_column_for_is_other() -> None:
    us = {"kda": 10.0, "full_attn": 20.0, "moe": 30.0, "attn_residual": 5.0, "norm": 15.0}
    (row,) = rows_of(published_csv([composition(us={**us, "other": 20.0})]))
    assert row["other_ms_per_step"] == "0.0350"
    assert row["other_pct"] == "35.00"
    assert row["device_compute_ms_per_step"] == "0.1000"


def test_a_collective_block_of_a_prefill_is_no_compute() -> None:
    us = {"kda": 10.0, "full_attn": 20.0, "moe": 30.0, "other": 40.0, "collective": 100.0}
    kept = composition(phase="prefill", us=us, chunks=1, measured_us=200.0)
    apart = composition(
        phase="prefill",
        us={name: time for name, time in us.items() if name != "collective"},
        chunks=1,
        measured_us=200.0,
        excluded_us=100.0,
    )
    assert published_csv([kept]) == published_csv([apart])
    (row,) = rows_of(published_csv([kept]))
    assert (row["kda_pct"], row["gpu_busy_over_ttft"]) == ("10.00", "1.000")


def test_figures_that_were_not_taken_are_empty_cells() -> None:
    (row,) = rows_of(published_csv([composition(input_tokens=None)]))
    assert row["measured_ms_per_step_cudagraph"] == ""
    assert row["input_tokens"] == ""


@pytest.mark.parametrize(
    ("compositions", "message"),
    [
        ([], "not none"),
        ([composition(), composition(phase="prefill")], "not decode and prefill"),
        ([composition(us={"attention": 1.0})], "no block kda, full_attn, moe, attn_residual"),
    ],
    ids=["nothing", "mixed", "other-blocks"],
)
def test_what_does_not_fit_the_layout_is_refused(compositions: list, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(RenderError, match=message):
        published_csv(compositions)


@pytest.mark.parametrize("label", ["=1+1", "+1", "-1", "@sum"])
def test_a_label_cannot_become_a_formula(label: str) -> None:
    (row,) = rows_of(published_csv([composition(label)]))
    assert row["context"] == f"'{label}"


def test_a_hostile_label_stays_one_cell_of_one_line() -> None:
    text = published_csv([composition(HOSTILE)])
    assert text.count("\n") == 2
    assert "\\u202e" in rows_of(text)[0]["context"]
