"""The measured MLA and KDA benchmarks on small shapes: checked, with rates, or refused."""

import dataclasses
import types

import pytest
import torch

import mla_rocm
import workloads
from benchmarks import _mla, kda_decode, mla_decode, mla_form, mla_prefill
from k3bench.measure import Protocol, measure_group
from k3bench.measure.point import Provenance
from workloads.model import Call, KdaGeometry, MlaGeometry, Workload, prefill

PROTOCOL = Protocol("smoke", warmup=1, repeat=3)
PROVENANCE = Provenance("b.device_x", {}, "f" * 64, "c" * 40, "run-1")

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="about the CPU's points")


def _workload(kind, geometry, call):
    return Workload("test/small", kind, "fixed", geometry, (call,), "fixed shape", "small")


def _decode(*lengths):
    call = Call((1,) * len(lengths), tuple(length - 1 for length in lengths))
    return _workload("mla-decode", MlaGeometry(heads=3), call)


PREFILL = _workload("mla-prefill", MlaGeometry(heads=2), Call((40,), (70,)))
KDA = _workload("kda-decode", KdaGeometry(heads=2), prefill(1, 1, 1))


def _measured(experiment):
    names = list(experiment.candidates)
    results = measure_group(experiment, names, PROTOCOL, PROVENANCE)
    return {result.implementation: result for result in results}


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("table", ["contiguous", "shuffled", "shared"])
def test_decode_is_right_and_has_rates_over_every_table(page_size, table):
    experiment = _mla.decode_experiment(_decode(130, 200), page_size, table)
    results = _measured(experiment)
    assert results.keys() == {"torch_splitkv", "torch_dense"}
    assert {"triton", "aiter", "sglang"} <= experiment.unavailable.keys()
    for result in results.values():
        assert result.correctness.status == "ok", result.correctness.detail
        figures = result.figures
        shared = 64 if table == "shared" else 0
        cache = (330 - shared) * 1152
        assert cache < figures["hbm_bytes"] < cache * 1.1
        assert figures["flops"] == 330 * 2 * 3 * 1088
        median = result.to_record()["median_s"]
        assert figures["hbm_bytes_per_s"] == figures["hbm_bytes"] / median
        assert "hbm_share_of_peak" not in figures, "a CPU's peak is not known"


def test_a_shared_table_of_one_sequence_is_refused_with_the_cases_own_words():
    experiment = _mla.decode_experiment(_decode(130), table="shared")
    assert not experiment.candidates
    assert set(experiment.unavailable) == set(mla_rocm.DECODE_IMPLEMENTATIONS)
    assert all("shares nothing" in reason for reason in experiment.unavailable.values())


def test_what_memory_does_not_hold_is_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr("k3bench.measure.memory.available_bytes", lambda platform: 2**30)
    experiment = _mla.decode_experiment(workloads.get("mla-decode/ctx1M_B128"))
    assert not experiment.candidates
    [reason] = set(experiment.unavailable.values())
    assert reason.startswith("does not fit: needs 1") and "0.9 GiB may be used" in reason
    chunk = _mla.prefill_experiment(workloads.get("mla-chunk/ctx1M_last"))
    assert not chunk.candidates and "does not fit" in set(chunk.unavailable.values()).pop()


@pytest.mark.parametrize("stage", ["stage1", "stage2"])
def test_a_stage_alone_is_judged_and_counts_its_own_bytes(stage):
    experiment = _mla.decode_stage_experiment(_decode(300, 500), stage)
    results = _measured(experiment)
    assert results.keys() == {"torch_splitkv"}
    assert "one pass" in experiment.unavailable["torch_dense"]
    result = results["torch_splitkv"]
    assert result.correctness.status == "ok", result.correctness.detail
    partials = result.figures["hbm_bytes"] - (800 * 1152 if stage == "stage1" else 0)
    assert partials > 3 * 2 * 513 * 4
    if stage == "stage2":
        assert result.figures["flops"] % (2 * 512 * 3) == 0


@pytest.mark.parametrize("stage", ["stage1", "stage2"])
def test_a_wrong_stage_is_found(stage, monkeypatch):
    right = mla_rocm.DECODE_IMPLEMENTATIONS["torch_splitkv"]

    def bind(inputs):
        bound = right.bind(inputs)

        def wrong():
            outputs = bound.stages[stage]()
            return dataclasses.replace(outputs, o=outputs.o * 1.1)

        return dataclasses.replace(bound, stages={**bound.stages, stage: wrong})

    broken = {"torch_splitkv": dataclasses.replace(right, bind=bind)}
    monkeypatch.setattr(mla_rocm, "DECODE_IMPLEMENTATIONS", broken)
    [result] = _measured(_mla.decode_stage_experiment(_decode(300, 500), stage)).values()
    assert result.correctness.status == "wrong" and result.samples_s == ()


def test_prefill_records_its_form_and_both_rules_choices():
    notes = mla_form.form_notes(PREFILL)
    results = _measured(_mla.prefill_experiment(PREFILL, notes=notes))
    forms = {name: result.figures["form"] for name, result in results.items()}
    assert forms == {f"torch_{form}": form for form in set(forms.values())} and len(forms) == 4
    for result in results.values():
        assert result.correctness.status == "ok", result.correctness.detail
        assert result.figures["form_by_sglang"] == "absorbed"
        # So few new tokens gain from the absorbed form; a chunk of a thousand does not.
        assert result.figures["form_by_our_rule"] == "chunked_absorbed"
        parts = result.figures["attention_flops"] + result.figures["projection_flops"]
        assert result.figures["flops"] == parts


def test_the_benchmark_of_16k_and_16k_states_the_published_multiple():
    notes = mla_form.form_notes(workloads.get("mla-chunk/ctx32K_last"))
    assert notes["form_by_sglang"] == "absorbed"
    assert notes["first_chunks_by_sglang"] == pytest.approx(10.2, abs=0.05)
    assert notes["form_by_our_rule"] == "chunked_decompressed"
    assert notes["first_chunks_by_our_rule"] == pytest.approx(3.0, abs=5e-3)
    small = mla_form.form_notes(workloads.get("mla-chunk/ctx2K_last"))
    assert small["first_chunks_by_sglang"] == pytest.approx(10.2, abs=0.05)


@pytest.mark.parametrize(
    ("name", "prefix", "form"),
    [
        ("sglang_extend", 0, "decompressed"),
        ("sglang_extend", 5, "absorbed"),
        ("triton_chunked_absorbed", 5, "chunked_absorbed"),
        ("torch_decompressed", 5, "decompressed"),
    ],
)
def test_every_prefill_implementation_has_a_form(name, prefix, form):
    assert name in mla_rocm.PREFILL_IMPLEMENTATIONS
    assert _mla.prefill_form(name, mla_rocm.MlaPrefillCase((3,), (prefix,))) == form


def test_a_kda_step_is_judged_by_its_states_too(monkeypatch):
    experiment = _mla.kda_decode_experiment(KDA)
    results = _measured(experiment)
    assert results["torch_batched"].correctness.status == "ok"
    states = 2 * 3 * 2 * 128 * 128 * 4
    assert states < results["torch_batched"].figures["hbm_bytes"] < 1.05 * states

    right = mla_rocm.KDA_DECODE_IMPLEMENTATIONS["torch_batched"]

    def bind(inputs):
        bound = right.bind(inputs)

        def fn():
            outputs = bound.fn()
            return dataclasses.replace(outputs, state=outputs.state * 1.01)

        return dataclasses.replace(bound, fn=fn)

    broken = {"torch_batched": dataclasses.replace(right, bind=bind)}
    monkeypatch.setattr(mla_rocm, "KDA_DECODE_IMPLEMENTATIONS", broken)
    [result] = _measured(_mla.kda_decode_experiment(KDA)).values()
    assert result.correctness.status == "wrong"
    assert result.correctness.detail.startswith("new states")


def test_a_kernel_that_updates_in_place_is_judged_by_its_first_call(monkeypatch):
    reference = mla_rocm.reference_kda_decode

    def bind(inputs):
        pool = inputs.state.clone()
        calls = []

        def fn():
            calls.append(None)
            stepped = reference(dataclasses.replace(inputs, state=pool))
            pool.copy_(stepped.state)
            o = stepped.o.to(inputs.packed.dtype)
            return mla_rocm.KdaDecodeOutputs(o, pool.clone())

        return mla_rocm.Bound(fn, inputs.batch, in_place=True)

    in_place = dataclasses.replace(
        mla_rocm.KDA_DECODE_IMPLEMENTATIONS["torch_batched"], name="in_place", bind=bind
    )
    monkeypatch.setattr(mla_rocm, "KDA_DECODE_IMPLEMENTATIONS", {"in_place": in_place})
    [result] = _measured(_mla.kda_decode_experiment(KDA)).values()
    assert result.correctness.status == "ok", result.correctness.detail
    assert len(result.samples_s) == 3


def test_kernels_of_a_commit_without_formulas_or_stages_are_measured_all_the_same(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(_mla, "importlib", types.SimpleNamespace(import_module=missing))
    results = _measured(_mla.decode_experiment(_decode(130)))
    assert results["torch_splitkv"].correctness.status == "ok"
    assert results["torch_splitkv"].figures is None
    old = types.SimpleNamespace(can_run=None, bind=None)
    monkeypatch.setattr(mla_rocm, "DECODE_IMPLEMENTATIONS", {"old": old})
    experiment = _mla.decode_stage_experiment(_decode(130), "stage1")
    assert "no stages apart" in experiment.unavailable["old"]


@pytest.mark.parametrize(
    ("benchmark", "method"),
    [
        (mla_decode.Decode, "device_decode"),
        (mla_decode.Stages, "device_stage"),
        (mla_prefill.Whole, "device_prefill"),
        (mla_form.LastChunk, "device_prefill"),
        (kda_decode.Decode, "device_decode"),
    ],
    ids=["decode", "stages", "prefill", "form", "kda"],
)
def test_every_benchmark_takes_its_first_parameters(benchmark, method):
    first = [choices[0] for choices in benchmark.params]
    experiment = getattr(benchmark(), method)(*first)
    known = experiment.candidates.keys() | experiment.unavailable.keys()
    assert known == set(benchmark.params[-1])
    assert benchmark.param_names[-1] == "implementation"
    assert len(benchmark.params) == len(benchmark.param_names)


def test_a_provider_without_log_sum_exps_is_judged_by_its_outputs_and_the_verdict_says_so():
    case = mla_rocm.MlaDecodeCase((70,), heads=3)
    inputs = mla_rocm.make_decode_inputs(case)
    expected = mla_rocm.reference_decode(inputs)
    right = mla_rocm.Outputs(expected.o, None)
    verdict = _mla.check_outputs(right, expected, inputs, case)
    assert verdict.status == "ok" and verdict.detail.startswith("o (no lse is returned)")
    wrong = mla_rocm.Outputs(expected.o * 1.5, None)
    assert _mla.check_outputs(wrong, expected, inputs, case).status == "wrong"
    swapped = mla_rocm.Outputs(expected.o, expected.lse + 1.0)
    assert _mla.check_outputs(swapped, expected, inputs, case).status == "wrong"
