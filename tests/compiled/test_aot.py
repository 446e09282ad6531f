"""Real compiles of toy kernels: what the compiler's text says is what the grid does."""

import dataclasses

import compiled_toys as toys
import pytest

from k3bench.compiled.tpu import CompiledError, CompilerUnavailableError
from k3bench.compiled.tpu.aot import PINNED, compile_for, compiler_versions
from k3bench.compiled.tpu.evaluate import evaluate
from k3bench.compiled.tpu.targets import TPU7X, V6E

pytest.importorskip("libtpu", reason="libtpu is the compiler under test")


def compiled(toy, target=V6E, **arguments):
    return compile_for(f"compiled_toys:{toy}", arguments, target)


def figures(outcome, target=V6E):
    return evaluate(outcome, {"implementation": "toy", "lengths": [1]}, 1 << 30, target)


@pytest.fixture(scope="module")
def streamed():
    return compiled("stream", steps=64)


@pytest.fixture(scope="module")
def guarded():
    return compiled("guarded", flags=[1] * toys.STEPS)


def test_a_streaming_kernel_moves_every_byte_once_each_way(streamed):
    result = figures(streamed)
    assert result.status == "ok"
    [kernel] = result.kernels
    assert kernel["hbm_bytes"] == 2 * 64 * toys.BLOCK_BYTES
    assert kernel["trips"] == 64 + 2  # the pipeline fills and drains
    assert result.padded_tokens == 64
    assert result.assumed == {"regions": 0, "dmas": 0}


def test_a_streaming_kernel_is_bound_by_hbm_and_its_bounds_hold(streamed):
    result = figures(streamed)
    moving_ms = 1e3 * 2 * 64 * toys.BLOCK_BYTES / V6E.hbm_bytes_per_s
    assert result.modelled_ms > moving_ms
    busiest = result.lower_bounds_ms["busiest_slot"]
    assert 0 < busiest <= 1e3 * result.kernel_cycles / V6E.clock_hz
    assert result.lower_bounds_ms["mxu"] == 0.0
    assert sum(result.breakdown.values()) == pytest.approx(1.0)
    assert result.breakdown["mxu"] == 0.0
    assert all(0.0 <= share <= 1.0 for share in result.slots.values())


def test_a_guarded_region_counts_exactly_as_often_as_the_table_says(guarded):
    def cycles(flags):
        tables = {0: tuple(flags)}
        result = figures(dataclasses.replace(guarded, tables=tables))
        assert result.assumed["regions"] == 0
        return result.kernel_cycles

    none, one, five = cycles([0] * 6), cycles([0, 0, 1, 0, 0, 0]), cycles([1, 1, 1, 0, 1, 1])
    assert one > none
    assert five - none == 5 * (one - none)


def test_a_guard_that_nothing_determines_counts_as_taken_and_says_so(guarded):
    known = figures(guarded)
    unknown = figures(dataclasses.replace(guarded, tables={}))
    assert unknown.assumed["regions"] == 1
    assert unknown.kernel_cycles == known.kernel_cycles  # all flags were set


def test_two_fresh_processes_have_the_same_fingerprint(guarded):
    again = figures(compiled("guarded", flags=[1] * toys.STEPS))
    assert again.fingerprint == figures(guarded).fingerprint
    assert again.compile_s is not None


def test_an_overflow_of_vmem_is_a_result_with_the_compilers_figures():
    outcome = compiled("too_large")
    result = figures(outcome)
    assert result.status == "oom"
    assert result.wanted_vmem_bytes == 64 << 20  # two windows of 16 MiB, twice each
    assert result.limit_vmem_bytes == V6E.scoped_vmem_bytes
    assert "vmem" in result.detail
    assert result.modelled_ms is None and result.kernels == ()


def test_a_lowering_that_is_missing_is_unsupported_with_its_reason():
    outcome = compiled("not_lowered")
    assert outcome.status == "unsupported"
    assert "cumsum" in outcome.detail


def test_an_implementation_that_refuses_is_unsupported_with_its_reason():
    outcome = compiled("refused")
    assert (outcome.status, outcome.detail) == (
        "unsupported",
        "head_dim_k is 7: must be a multiple of 128",
    )


def test_a_fault_in_the_factory_is_an_error_in_one_line():
    outcome = compiled("broken")
    assert (outcome.status, outcome.detail) == ("error", "RuntimeError: the factory is broken")


def test_plain_xla_counts_the_body_of_a_loop_as_often_as_it_runs():
    three, nine = (figures(compiled("plain_xla", steps=steps)) for steps in (3, 9))
    assert three.kernels == () and three.kernel_cycles == 0
    assert three.status == nine.status == "ok"
    assert nine.xla_ops["count"] > three.xla_ops["count"]
    assert nine.xla_ops["cycles"] > 2 * three.xla_ops["cycles"]
    assert three.breakdown["mxu"] > 0.1


def test_the_same_code_compiles_for_tpu7x():
    result = figures(compiled("guarded", target=TPU7X, flags=[1] * toys.STEPS), TPU7X)
    assert result.status == "ok"
    assert result.device == "tpu7x"
    assert result.kernel_cycles > 0
    assert result.modelled_error is None  # not judged there


def test_a_compiler_that_takes_too_long_is_ended():
    with pytest.raises(CompiledError, match="took more than 0 s"):
        compile_for("compiled_toys:refused", {}, V6E, timeout_s=0.05)


def test_another_libtpu_is_refused_unless_allowed(monkeypatch):
    other = {**PINNED, "libtpu": "0.0.99"}
    monkeypatch.setattr("k3bench.compiled.tpu.aot.version", other.__getitem__)
    with pytest.raises(CompilerUnavailableError, match=r"libtpu is 0\.0\.99, but"):
        compiler_versions()
    assert compiler_versions(allow_other=True) == other


def test_a_missing_libtpu_is_named_with_its_mend(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    def version(package):
        if package == "libtpu":
            raise PackageNotFoundError(package)
        return PINNED[package]

    monkeypatch.setattr("k3bench.compiled.tpu.aot.version", version)
    with pytest.raises(CompilerUnavailableError, match=r"pip install 'libtpu=="):
        compiler_versions(allow_other=True)
