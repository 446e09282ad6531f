"""Compositions in the ledger: what kind they are, and what is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
from attribution.compositions import HOSTILE, composition

from k3bench.attribution.composition import CheckOutcome, Composition
from k3bench.attribution.render.names import RenderError
from k3bench.attribution.render.records import (
    Provenance,
    device_slug,
    records_of,
    require_device,
)
from k3bench.ledger import ingest, open_ledger, select_results
from k3bench.ledger.published import published_records
from manifests import capture, manifest_id

TAKEN = "2026-11-30T03:00:00+00:00"
ELSEWHERE = Provenance(TAKEN, source="traces of a colleague's MI355X")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return capture(Path(__file__).resolve().parents[2])


def here(manifest: dict[str, Any]) -> Provenance:
    return Provenance(TAKEN, manifest_id=manifest_id(manifest), commit="ab" * 20)


def test_with_a_manifest_every_block_is_measured(manifest: dict[str, Any], tmp_path: Path) -> None:
    records = records_of(composition(device="CPU"), here(manifest), engine="toy")
    ledger = open_ledger(str(tmp_path / "results.sqlite"), create=True)
    report = ingest(ledger, records, [manifest])
    assert report.inserted == 6
    assert ingest(ledger, records, [manifest]).unchanged == 6
    with ledger.session() as session:
        rows = select_results(session, benchmark="attribution")
    assert {(row.kind, row.device, row.benchmark) for row in rows} == {
        ("measured", "cpu", "attribution.decode")
    }
    by_block = {row.parameters["block"]: row for row in rows}
    assert by_block["kda"].median_s == pytest.approx(3542.3e-6)
    assert records[-1]["figures"] == {"dispatches": 500, "share": 1.0}
    assert all(row.correctness_status == "ok" for row in rows)


def test_without_a_manifest_nothing_is_called_measured(tmp_path: Path) -> None:
    records = records_of(composition(), ELSEWHERE, tensor_parallel=8)
    assert {record["kind"] for record in records} == {"published"}
    assert all(not record["samples_s"] for record in records)
    assert all(record["source"].startswith("traces of a colleague") for record in records)
    assert all("SHA-256 abababababab" in record["source"] for record in records)
    ledger = open_ledger(str(tmp_path / "results.sqlite"), create=True)
    assert ingest(ledger, records).inserted == 6


def test_a_manifest_of_a_machine_without_the_device_is_refused(manifest: dict[str, Any]) -> None:
    require_device(composition(device="CPU"), manifest)
    with pytest.raises(RenderError, match=r"taken on AMD Instinct MI355X, .* or --source"):
        require_device(composition(), manifest)
    with_gpu = copy.deepcopy(manifest)
    with_gpu["environment"]["accelerators"]["amd"] = {"devices": [{"name": "AMD Instinct MI355X"}]}
    require_device(composition(), with_gpu)


def test_k3_at_the_studys_shape_is_the_published_workload() -> None:
    published = {
        record["workload"]["id"]: record["workload"]
        for record in published_records()
        if record["benchmark"].startswith("published.k3_")
    }
    decode = records_of(composition(), ELSEWHERE, tensor_parallel=8)[0]["workload"]
    assert decode == published["k3-decode/L4096_B1"]
    prefill = records_of(composition(phase="prefill"), ELSEWHERE, tensor_parallel=8)[0]["workload"]
    assert prefill == published["k3-prefill/L4096_B1"]
    assert records_of(composition(), ELSEWHERE)[0]["workload"] != decode


def test_the_same_composition_has_the_same_ids_and_another_trace_has_others() -> None:
    first = [record["id"] for record in records_of(composition(), ELSEWHERE)]
    assert first == [record["id"] for record in records_of(composition(), ELSEWHERE)]
    assert len(set(first)) == len(first)
    other = composition(us={"kda": 1.0, "full_attn": 2.0, "moe": 3.0})
    assert not set(first) & {record["id"] for record in records_of(other, ELSEWHERE)}


@pytest.mark.parametrize(
    ("composed", "message"),
    [
        (
            composition(checks=(CheckOutcome("total", "failed", "21 ms of 10 ms"),)),
            "check total failed .*is not stored",
        ),
        (composition(input_tokens=None), "give --input-tokens"),
        (composition(us={"kda": 0.0}), "no device time"),
        (composition(device="@"), "names no device"),
    ],
    ids=["failed-check", "no-context", "no-time", "no-device"],
)
def test_what_cannot_be_stood_by_is_not_stored(composed: Composition, message: str) -> None:
    with pytest.raises(RenderError, match=message):
        records_of(composed, ELSEWHERE)


def test_a_composition_that_no_check_looked_at_says_so() -> None:
    skipped = composition(checks=(CheckOutcome("total", "skipped", "no ITL given"),))
    assert records_of(skipped, ELSEWHERE)[0]["correctness"]["status"] == "not_checked"


def test_provenance_is_one_of_two() -> None:
    with pytest.raises(RenderError, match="by a manifest or by a source"):
        Provenance(TAKEN)
    with pytest.raises(RenderError, match="by a manifest or by a source"):
        Provenance(TAKEN, manifest_id="ab" * 32, commit="ab" * 20, source="x")
    with pytest.raises(RenderError, match="names no commit"):
        Provenance(TAKEN, manifest_id="ab" * 32)


@pytest.mark.parametrize(
    ("name", "slug"),
    [("AMD Instinct MI355X", "mi355x"), ("NVIDIA H200", "h200"), ("CPU", "cpu"), ("AMD", "amd")],
)
def test_devices_have_the_ledgers_names(name: str, slug: str) -> None:
    assert device_slug(name) == slug


def test_hostile_names_are_stored_as_text_that_every_database_holds(tmp_path: Path) -> None:
    composed = composition(HOSTILE, us={HOSTILE: 5.0}, device=HOSTILE, definition="d")
    records = records_of(composed, Provenance(TAKEN, source=HOSTILE))
    ledger = open_ledger(str(tmp_path / "results.sqlite"), create=True)
    assert ingest(ledger, records).inserted == 2
