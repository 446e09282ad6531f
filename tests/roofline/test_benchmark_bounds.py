"""Every measured benchmark states its call: the one that its stored rows would be given."""

import pytest

import workloads
from benchmarks._kda import prefill_experiment as kda_prefill
from benchmarks._mla import (
    decode_experiment,
    decode_stage_experiment,
    kda_decode_experiment,
    prefill_experiment,
)
from k3bench.measure import Protocol, measure_group
from k3bench.measure.point import Provenance
from k3bench.roofline.recorded import recorded_call

PROTOCOL = Protocol("smoke", warmup=0, repeat=1)
PROVENANCE = Provenance("b.device_x", {}, "f" * 64, "c" * 40, "run-1")


def _work(experiment):
    name = next(iter(experiment.candidates))
    return experiment.candidates[name]().work()


@pytest.mark.parametrize(
    ("make", "workload_id"),
    [
        (kda_prefill, "kda-grid/S64_B1"),
        (kda_decode_experiment, "kda-decode/B8"),
        (decode_experiment, "mla-decode/ctx1K_B4"),
        (prefill_experiment, "mla-prefill/T1K_B1"),
        (prefill_experiment, "mla-chunk/ctx2K_last"),
    ],
)
def test_a_benchmark_and_its_stored_rows_have_one_bound(make, workload_id):
    workload = workloads.get(workload_id)
    work = _work(make(workload))
    assert work.call == recorded_call(workload_id, workload.sha256, {})
    # What the kernels count holds all that the call cannot do without.
    assert work.hbm_bytes >= min(cost.hbm_bytes for cost in work.call.ways.values())
    assert work.flops >= 0.99 * min(cost.flops for cost in work.call.ways.values())


def test_a_shared_table_is_bound_by_the_rows_that_it_really_has():
    workload = workloads.get("mla-decode/ctx1K_B4")
    shared = _work(decode_experiment(workload, 64, "shared")).call
    own = _work(decode_experiment(workload)).call
    assert shared.usual.hbm_bytes < own.usual.hbm_bytes
    assert recorded_call(workload.id, workload.sha256, {"table": "shared"}) is None


def test_a_stage_alone_has_rates_and_no_bound():
    work = _work(decode_stage_experiment(workloads.get("mla-decode/ctx1K_B1"), "stage1"))
    assert work.call is None and work.hbm_bytes > 0


def test_a_cpus_record_says_that_its_peaks_are_not_known():
    experiment = kda_prefill(workloads.get("kda-grid/S64_B1"))
    if experiment.backend.device != "cpu":
        pytest.skip("about the CPU's records")
    [result] = measure_group(experiment, ["recurrent_xla"], PROTOCOL, PROVENANCE)
    assert result.correctness.status == "ok"
    assert result.figures["flops_per_s"] > 0
    assert "cpu" in result.figures["roofline.none"]
    assert not any("share" in name or "bound" in name for name in result.figures)
