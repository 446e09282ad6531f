"""The table of implementations, who can run where, and that importing touches no device."""

import subprocess
import sys

import pytest
import torch

from mla_rocm import (
    DECODE_IMPLEMENTATIONS,
    IMPLEMENTATIONS,
    PREFILL_IMPLEMENTATIONS,
    MlaDecodeCase,
    MlaPrefillCase,
)

A_CASE = {"decode": MlaDecodeCase((64,)), "prefill": MlaPrefillCase((64,))}


def test_the_tables_hold_every_implementation_under_its_name():
    assert {**DECODE_IMPLEMENTATIONS, **PREFILL_IMPLEMENTATIONS} == IMPLEMENTATIONS
    assert len(IMPLEMENTATIONS) == len(DECODE_IMPLEMENTATIONS) + len(PREFILL_IMPLEMENTATIONS)
    for name, implementation in IMPLEMENTATIONS.items():
        assert implementation.name == name
        assert implementation.summary and "\n" not in implementation.summary
    assert {i.operation for i in DECODE_IMPLEMENTATIONS.values()} == {"decode"}
    assert {i.operation for i in PREFILL_IMPLEMENTATIONS.values()} == {"prefill"}


@pytest.mark.parametrize("name", [name for name in IMPLEMENTATIONS if name.startswith("torch_")])
def test_torch_forms_run_on_the_cpu_and_on_a_gpu_that_torch_is_built_for(name, monkeypatch):
    implementation = IMPLEMENTATIONS[name]
    case = A_CASE[implementation.operation]
    assert implementation.can_run("cpu", case).ok
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert implementation.can_run("rocm", case).ok
    without_cuda = implementation.can_run("cuda", case)
    assert not without_cuda.ok and "built without CUDA" in without_cuda.reason
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    assert implementation.can_run("cuda", case).ok
    without_rocm = implementation.can_run("rocm", case)
    assert not without_rocm.ok and "built without ROCm" in without_rocm.reason
    elsewhere = implementation.can_run("tpu", case)
    assert not elsewhere.ok and "'tpu' is not one of cpu, cuda, rocm" in elsewhere.reason


FORKED = """
import multiprocessing, sys
import mla_rocm, torch

def child(queue):
    inputs = mla_rocm.make_decode_inputs(mla_rocm.MlaDecodeCase((40, 0)))
    outputs = mla_rocm.DECODE_IMPLEMENTATIONS["torch_splitkv"].bind(inputs).fn()
    queue.put(mla_rocm.max_abs_error(outputs, mla_rocm.reference_decode(inputs)))

assert not torch.cuda.is_initialized()
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
assert queue.get(timeout=60) < 0.04
process.join(60)
assert process.exitcode == 0
assert not torch.cuda.is_initialized()
"""


def test_a_process_may_fork_after_the_import_and_compute_in_the_child():
    finished = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
