"""The roofline page's data: bounds of stored rows where they can be told, and K3 by block."""

import hashlib
import json
from typing import Any

import pytest
from click.testing import CliRunner

import workloads
from k3bench.cli.forms import forms
from k3bench.dashboard.roofline import families_of, k3_decode_by_block, peaks_of, roofline_of
from k3bench.dashboard.rows import COLUMNS, Series, View
from k3bench.roofline.distance import distance_figures
from k3bench.roofline.recorded import recorded_call
from k3bench.roofline.reference.ways import form_content
from workloads.model import sha256_json


def series(
    workload: str,
    *,
    sha256: str | None = None,
    kind: str = "measured",
    device: str = "mi355x",
    benchmark: str = "b.device_x",
    parameters: dict[str, Any] | None = None,
    median_s: float | None = 1e-3,
    figures: dict[str, Any] | None = None,
) -> Series:
    row: list[Any] = [None] * len(COLUMNS)
    row[COLUMNS.index("median_s")] = median_s
    row[COLUMNS.index("figures")] = None if figures is None else json.dumps(figures)
    return Series(
        View(kind, device, "device", "device"),
        benchmark,
        parameters or {},
        "ours",
        workload,
        sha256 or workloads.get(workload).sha256,
        [tuple(row)],
    )


@pytest.mark.parametrize(
    ("workload", "device"),
    [
        ("kda-headline", "tpu-v6e"),
        ("sharegpt-k3/B4", "tpu-v6e"),
        ("kda-decode/B8", "mi355x"),
        ("mla-decode/ctx64K_B4", "mi355x"),
        ("mla-prefill/T4K_B1", "nvidia-h200"),
        ("mla-chunk/ctx32K_last", "mi300x"),
    ],
)
def test_a_stored_row_has_the_bound_that_a_new_record_states(workload: str, device: str) -> None:
    found = roofline_of(series(workload, device=device))
    call = recorded_call(workload, workloads.get(workload).sha256, {})
    assert found is not None and call is not None
    stated = distance_figures(call, 1e-3, device)
    for name in ("bound_s", "limited_by", "flops", "hbm_bytes", "way"):
        assert found[name] == stated[f"roofline.{name}"]
    assert families_of(found) == ("roofline", "bounded")
    assert stated["roofline.times_bound"] == pytest.approx(1e-3 / found["bound_s"])


def test_rows_that_no_family_pins_are_known_by_their_hash() -> None:
    context = ("compiled-mla/ctx69632_B24", (69_632,) * 24)
    sha256 = hashlib.sha256(f"{context[0]} {context[1]}".encode()).hexdigest()
    found = roofline_of(series(context[0], sha256=sha256, kind="modelled"))
    assert found is not None and found["hbm_bytes"] > 24 * 69_632 * 1152
    replay = workloads.get("sharegpt-k3/B8")
    one = hashlib.sha256(f"{replay.sha256}/9".encode()).hexdigest()
    part = roofline_of(series("sharegpt-k3/B8/call9", sha256=one, device="tpu-v6e"))
    whole = roofline_of(series("sharegpt-k3/B8", device="tpu-v6e"))
    assert part is not None and whole is not None and part["bound_s"] < whole["bound_s"] / 10
    form = sha256_json(form_content("kda-prefill"))
    found = roofline_of(series("forms/kda-prefill", sha256=form, device="tpu-v6e"))
    assert found is not None and found["dtype"] == "fp32"


@pytest.mark.parametrize(
    "workload",
    [
        "kda-headline",
        "compiled-mla/ctx69632_B24",
        "sharegpt-k3/B8/call9",
        "sharegpt-k3/B8/call9999",
        "nobody/call1",
        "forms/kda-prefill",
        "forms/nothing",
        "nobody/knows",
        "<script>/B4",
    ],
)
def test_another_hash_has_no_bound_rather_than_a_wrong_one(workload: str) -> None:
    assert roofline_of(series(workload, sha256="a" * 64)) is None


def test_what_is_no_whole_call_or_no_whole_device_has_no_bound_of_its_own() -> None:
    name = "mla-decode/ctx64K_B4"
    assert roofline_of(series(name, parameters={"stage": "stage1"})) is None
    assert roofline_of(series(name, parameters={"table": "shared"})) is None
    own = {"roofline.bound_s": 1e-4, "roofline.times_bound": 10.0}
    found = roofline_of(series(name, parameters={"table": "shared"}, figures=own))
    assert found == {"none": "the row states its own"}
    partition = roofline_of(series(name, benchmark="compiled_mla.DecodeOnPartition.track_x"))
    assert partition is not None and "bound_s" not in partition and "partition" in partition["none"]
    assert families_of(partition) == ("roofline",)


def test_rows_without_a_time_and_published_ones_are_not_on_the_page() -> None:
    assert roofline_of(series("kda-headline", median_s=None)) is None
    assert roofline_of(series("kda-headline", kind="published")) is None
    assert families_of(None) == ()


def test_a_cpu_has_work_and_no_bound() -> None:
    found = roofline_of(series("kda-headline", device="cpu"))
    assert found is not None and "bound_s" not in found
    assert found["flops"] > 0 and found["none"] == (
        "the peaks of cpu are not known, so there is no bound"
    )
    assert peaks_of("cpu") is None
    roof = peaks_of("nvidia-h200")
    assert roof is not None and roof["matrix_flops_per_s"]["bf16"] == 0.989e15


def test_k3_by_block_is_what_the_command_line_says_and_lies_below_what_was_published() -> None:
    document = k3_decode_by_block()
    assert len(document["rows"]) == 5 * 6 and document["source"]
    for row in document["rows"]:
        assert 0 < row["bound_ms"] < row["published_ms"]
        assert row["ratio"] == pytest.approx(row["published_ms"] / row["bound_ms"])
    outcome = CliRunner().invoke(
        forms, ["cost", "--tp", "8", "--context", "65536", "--published", "--json"]
    )
    published = json.loads(outcome.stdout)["published"]
    mine = {row["block"]: row for row in document["rows"] if row["context"] == 65536}
    assert mine.keys() == published.keys()
    for block, row in mine.items():
        assert row["ratio"] == published[block]["published_over_bound"]
