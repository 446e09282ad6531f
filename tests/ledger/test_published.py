"""The published rows: typed in by us, so checked against the sources where those are at hand."""

import csv
import json
import re
from collections import Counter

import pytest
from shared_data import shared_file

from k3bench.ledger import IngestReport, select_results
from k3bench.ledger.check import check
from k3bench.ledger.published import published_records, seed

LADDER = ("original", "mxu_port", "fused", "unified", "flat", "optimized")


@pytest.fixture(scope="module")
def records():
    return published_records()


def medians_ms(records, benchmark: str, by) -> dict:
    """Milliseconds to the printed digits, by whatever ``by`` makes of a record."""
    return {
        by(record): round(record["median_s"] * 1e3, 6)
        for record in records
        if record["benchmark"] == benchmark
    }


def test_seeding_twice_changes_nothing(ledger, records):
    assert seed(ledger) == IngestReport(inserted=len(records), unchanged=0)
    assert seed(ledger) == IngestReport(inserted=0, unchanged=len(records))
    report = check(ledger)
    assert report.ok and report.results == len(records) and report.samples == 0


def test_the_same_figures_have_the_same_ids_every_time(records):
    again = published_records()
    assert again == records
    assert len({record["id"] for record in records}) == len(records)


def test_every_row_says_it_is_published_and_by_whom(ledger):
    seed(ledger)
    with ledger.session() as session:
        rows = select_results(session)
    for row in rows:
        assert row.kind == "published" and row.correctness_status == "not_checked"
        assert row.source and row.manifest_id is None and row.commit is None
        # No name of a benchmark of ours: a published figure never continues a measured series.
        assert row.benchmark.startswith("published.")
        assert row.device in ("tpu-v6e", "mi355x")
        assert (row.median_s is None) == ("hbm_bytes" in row.parameters)


def test_how_many_figures_there_are(records):
    assert Counter(record["benchmark"] for record in records) == {
        "published.kda_prefill.ladder": 6,
        "published.kda_prefill.head_loop": 3,
        "published.kda_prefill.hbm_traffic": 4,
        "published.kda_prefill.length_series": 7,
        "published.kda_prefill.sharegpt_batch": 2,
        "published.k3_decode.composition": 5 * 7,
        "published.k3_prefill.ttft": 4,
        "published.k3_prefill.composition": 4 * 3,
    }


def test_the_ladder_falls_at_every_rung_by_12_8_in_all(records):
    ladder = medians_ms(records, "published.kda_prefill.ladder", lambda r: r["implementation"])
    figures = [ladder[rung] for rung in LADDER]
    assert figures == sorted(figures, reverse=True)
    assert f"{figures[0] / figures[-1]:.1f}" == "12.8"
    forms = medians_ms(records, "published.kda_prefill.head_loop", lambda r: r["implementation"])
    assert forms["head_on_grid"] == ladder["flat"]
    assert forms["head_interleaved"] == ladder["optimized"]


def test_the_sharegpt_gain_is_the_product_of_its_stated_factors(records):
    rows = [r for r in records if r["benchmark"] == "published.kda_prefill.sharegpt_batch"]
    first, last = (record["median_s"] for record in rows)
    stated = re.search(r"stated as ([\d.]+) x ([\d.]+) x ([\d.]+) x ([\d.]+)", rows[0]["source"])
    product = 1.0
    for factor in stated.groups():
        product *= float(factor)
    assert first / last == pytest.approx(product, rel=0.01)


def test_decode_blocks_add_up_to_the_device_total(records):
    figures = medians_ms(
        records,
        "published.k3_decode.composition",
        lambda r: (r["parameters"]["context"], r["parameters"]["block"]),
    )
    blocks = ("kda", "full_attention", "moe", "attention_residual", "other")
    for context in {context for context, _ in figures}:
        total = sum(figures[context, block] for block in blocks)
        assert total == pytest.approx(figures[context, "device_total"], abs=0.021)  # five roundings
        ratio = figures[context, "graphs_on_step"] / figures[context, "device_total"]
        assert 0.93 < ratio < 0.97


def test_shapes_of_ours_carry_the_hash_that_workloads_gives_them(records):
    workloads = pytest.importorskip("workloads")
    ours = {r["workload"]["id"]: r["workload"]["sha256"] for r in records}
    named = {name: sha for name, sha in ours.items() if name.startswith("kda-")}
    assert len(named) == 8
    for name, sha in named.items():
        assert workloads.get(name).sha256 == sha


# The rest compares with the sources themselves, which are beside the project on some machines.


def test_the_ladder_and_the_series_are_the_sources(records):
    points = json.loads(shared_file("published/v6e_compiled.json").read_text())["points"]
    source = {(p["implementation"], p["shape"]): p["measured_ms"] for p in points}
    ladder = medians_ms(records, "published.kda_prefill.ladder", lambda r: r["implementation"])
    known = {rung: source[rung, "headline"] for rung in LADDER if (rung, "headline") in source}
    assert len(known) >= 5
    assert {rung: ladder[rung] for rung in known} == known
    series = medians_ms(
        records,
        "published.kda_prefill.length_series",
        lambda r: ("optimized", f"S{r['parameters']['seqlen']}_B1"),
    )
    compared = series.keys() & source.keys()
    assert len(compared) >= 5
    assert {key: series[key] for key in compared} == {key: source[key] for key in compared}


def test_the_decode_composition_is_the_sources(records):
    with shared_file("published/k3_mi355x/decode-composition.csv").open() as stream:
        rows = {int(row["input_tokens"]): row for row in csv.DictReader(stream)}
    columns = {
        "kda": "kda_ms_per_step",
        "full_attention": "full_attn_ms_per_step",
        "moe": "moe_ms_per_step",
        "attention_residual": "attn_residual_ms_per_step",
        "other": "other_ms_per_step",
        "device_total": "device_compute_ms_per_step",
        "graphs_on_step": "measured_ms_per_step_cudagraph",
    }
    figures = medians_ms(
        records,
        "published.k3_decode.composition",
        lambda r: (r["parameters"]["context"], r["parameters"]["block"]),
    )
    assert len(figures) == len(rows) * len(columns)
    for (context, block), ms in figures.items():
        assert ms == pytest.approx(float(rows[context][columns[block]]), abs=0.00501)


def test_the_prefill_composition_is_the_sources(records):
    with shared_file("published/k3_mi355x/prefill-composition.csv").open() as stream:
        rows = {int(row["input_tokens"]): row for row in csv.DictReader(stream)}
    columns = {
        "kda_layer": ("kda_ms_per_layer", 0.000501),
        "full_attention_layer": ("full_attn_ms_per_layer", 0.000501),
        "device_total": ("gpu_kernel_ms_total", 0.0501),
    }
    for record in records:
        parameters = record["parameters"]
        if record["benchmark"] == "published.k3_prefill.composition":
            column, rounding = columns[parameters["block"]]
            printed = float(rows[parameters["context"]][column])
            assert record["median_s"] * 1e3 == pytest.approx(printed, abs=rounding)
        elif record["benchmark"] == "published.k3_prefill.ttft":
            row = rows[parameters["context"]]
            assert round(record["median_s"] * 1e3) == int(row["ttft_ms_measured"])
            assert record["tokens_per_s"] == float(row["tokens_per_s"])
            for block in ("kda", "full_attn", "moe"):
                name = block.replace("attn", "attention") + "_share_percent"
                assert parameters[name] == pytest.approx(float(row[f"{block}_pct"]), abs=0.0501)
