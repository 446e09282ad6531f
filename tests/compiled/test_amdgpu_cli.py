"""`k3bench compile mla-decode|mla-prefill|kda-decode`: shapes, exit codes, JSON alone on stdout."""

import json

import pytest

from k3bench.cli import main
from k3bench.compiled.amdgpu import GpuPoint, GpuResult
from k3bench.compiled.tpu import CompiledError, CompiledFormatError, CompilerUnavailableError

KEYS = {
    "status", "vgpr", "agpr", "sgpr", "scratch_bytes", "lds_bytes", "occupancy",
    "resident_workgroups", "rounds", "round_trips", "bytes_in_flight_per_cu", "hbm_bytes", "flops",
    "lower_bound_us", "modelled_us", "code_sha256", "triton", "fingerprint", "kernels",
}  # fmt: skip
PATH = {
    "mfma": {"16x16x32 bf16": 44}, "load_widths": {"16": 9}, "direct_to_lds_share": 0.5,
    "data_bytes": 36864, "index_loads": 1, "mix": {"valu": 100, "mfma": 44},
}  # fmt: skip
KERNEL = {
    "name": "stage1", "vgpr": 236, "agpr": 0, "sgpr": 56, "scratch_bytes": 0, "lds_bytes": 36864,
    "scratch_operations_in_loops": 0, "occupancy": 2, "workgroups": 410,
    "resident_workgroups": 512, "rounds": 1, "round_trips": 1.0,
    "round_trips_are_of": "iteration", "bytes_in_flight_per_cu": 73728, "modelled_us": 20.0,
    "main_loop": PATH, "whole_pass": PATH,
}  # fmt: skip


@pytest.fixture
def call(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["compile", *arguments])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def compiler(monkeypatch):
    """Answers for the compiler; ``asked`` is what the command asked for."""

    class Compiler:
        asked = None
        answer = "ok"
        judged = True

        def __call__(self, points, target, *, use_cache):
            self.asked = (points[0], target.name, use_cache)
            if isinstance(self.answer, Exception):
                raise self.answer
            common = {
                "point": points[0].to_json(), "target": target.name, "device": target.device,
                "triton": "3.7.1",
            }  # fmt: skip
            if self.answer != "ok":
                return [GpuResult(status=self.answer, detail="because of LDS", **common)]
            return [
                GpuResult(
                    status="ok", hbm_bytes=100, flops=200, lower_bound_us=10.0, modelled_us=20.0,
                    modelled_error={"mean": 0.2, "worst": 0.5} if self.judged else None,
                    kernels=(KERNEL,), **common,
                )
            ]  # fmt: skip

    stand_in = Compiler()
    monkeypatch.setattr("k3bench.compiled.amdgpu.compile_gpu_points", stand_in)
    return stand_in


DECODE = ("mla-decode", "--implementation", "triton", "--batch", "2", "--context", "100")


@pytest.mark.parametrize(
    ("arguments", "point"),
    [
        (DECODE, GpuPoint("mla-decode", "triton", (100, 100))),
        (
            (*DECODE, "--splits", "21", "--heads", "16", "--page-size", "1"),
            GpuPoint("mla-decode", "triton", (100, 100), heads=16, page_size=1, num_kv_splits=21),
        ),
        (
            (*DECODE, "--compute-units", "32", "--dtype", "float16"),
            GpuPoint("mla-decode", "triton", (100, 100), compute_units=32, dtype="float16"),
        ),
        (
            (*DECODE, "--block-n", "64", "--num-warps", "2", "--num-stages", "1"),
            GpuPoint("mla-decode", "triton", (100, 100), block_n=64, num_warps=2, num_stages=1),
        ),
        (
            ("mla-prefill", "--implementation", "triton_absorbed", *DECODE[3:], "--prefix", "30"),
            GpuPoint("mla-prefill", "triton_absorbed", (100, 100), prefix_lengths=(30, 30)),
        ),
        (("kda-decode", *DECODE[1:5]), GpuPoint("kda-decode", "triton", (1, 1))),
        (("kda-decode", *DECODE[1:]), GpuPoint("kda-decode", "triton", (1, 1))),
    ],
    ids=["decode", "splits", "partition", "instead", "prefill", "kda", "kda with a context"],
)
def test_each_command_names_its_point(call, compiler, arguments, point):
    code, _, err = call(*arguments)
    assert (code, err) == (0, "")
    assert compiler.asked == (point, "gfx950", True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (DECODE[:-2], "--context"),
        ((*DECODE[:3], "--context", "5"), "--batch"),
        ((*DECODE, "--target", "gfx90a"), "use one of gfx950"),
        ((*DECODE, "--splits", "0"), "--splits"),
        (("mla-decode", "--implementation", "fast", *DECODE[3:]), "use one of triton"),
        ((*DECODE, "--dtype", "int8"), "--dtype"),
    ],
    ids=["no context", "no batch", "target", "splits", "implementation", "dtype"],
)
def test_bad_usage_is_one_line_and_64(call, compiler, arguments, message):
    code, out, err = call(*arguments)
    assert (code, out) == (64, "")
    assert message in err and err.count("\n") == 1


@pytest.mark.parametrize("status", ["ok", "oom", "unsupported"])
def test_every_answer_of_the_compiler_is_0_and_json_stands_alone(call, compiler, status):
    compiler.answer = status
    code, out, err = call(*DECODE, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["status"] == status
    assert document.keys() >= KEYS


def test_the_table_says_that_modelled_time_is_no_gate(call, compiler):
    _, out, _ = call(*DECODE)
    assert "model error 20% on average, 50% at worst" in out
    assert "no gate" in out
    assert "44 x 16x16x32 bf16" in out
    assert "72" in out and "1 per" in out
    compiler.judged = False
    assert "the model was not judged on this target" in call(*DECODE)[1]


def test_an_overflow_says_why(call, compiler):
    compiler.answer = "oom"
    _, out, _ = call(*DECODE)
    assert "oom" in out and "because of LDS" in out


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("error", 70),
        (CompilerUnavailableError("triton is not installed"), 69),
        (CompiledFormatError("another format"), 65),
        (CompiledError("the answer is not JSON"), 70),
    ],
    ids=["failed", "no compiler", "format", "other"],
)
def test_failures_have_codes_of_their_own(call, compiler, answer, code):
    compiler.answer = answer
    assert call(*DECODE)[0] == code


def test_no_cache_is_passed_on(call, compiler):
    call(*DECODE, "--no-cache")
    assert compiler.asked[2] is False
