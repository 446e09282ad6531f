"""`k3bench compile kda` and `kda-sweep`: shapes, exit codes, JSON alone on stdout."""

import json

import pytest

from k3bench.cli import main
from k3bench.compiled.tpu import CompiledFormatError, CompilerUnavailableError, KdaPoint
from k3bench.compiled.tpu.result import CompiledResult

KEYS = {
    "status", "modelled_ms", "kernel_cycles", "stall_cycles", "slots", "spill_stores",
    "spill_fills", "vmem_bytes", "hbm_bytes", "lower_bounds_ms", "breakdown", "compile_s", "jax",
    "libtpu", "fingerprint",
}  # fmt: skip


@pytest.fixture
def call(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["compile", "kda", *arguments])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def compiler(monkeypatch):
    """Answers for the compiler; ``asked`` is what the command asked for."""

    class Compiler:
        asked = None
        answer = "ok"

        def __call__(self, points, target, *, use_cache, allow_other_versions):
            self.asked = (points[0], target.name, use_cache)
            if isinstance(self.answer, Exception):
                raise self.answer
            return [
                CompiledResult(
                    status=self.answer, point=points[0].to_json(), target=target.name,
                    device=target.device, jax="1", libtpu="2", pinned=True,
                    detail=None if self.answer == "ok" else "because", modelled_ms=1.0,
                    kernel_cycles=10, stall_cycles=1, slots={"MXU": 0.1}, busiest_slot="MXU",
                    lower_bounds_ms={"hbm": 0.1, "busiest_slot": 0.2}, breakdown={"mxu": 1.0},
                    xla_ops={"count": 1, "cycles": 2, "hbm_bytes": 3, "estimated": 0},
                    wanted_vmem_bytes=45 << 20, limit_vmem_bytes=32 << 20,
                    assumed={"regions": 0, "dmas": 0},
                )
            ]  # fmt: skip

    stand_in = Compiler()
    monkeypatch.setattr("k3bench.compiled.tpu.compile_points", stand_in)
    return stand_in


@pytest.mark.parametrize(
    ("shape", "lengths", "heads"),
    [
        (("--headline",), (2048,) * 4, 16),
        (("--headline", "--heads", "8"), (2048,) * 4, 8),
        (("--tokens", "10", "--sequences", "3"), (4, 3, 3), 24),
        (("--seqlen", "32", "--batch", "2"), (32, 32), 24),
        (("--lengths", "130,0,64"), (130, 0, 64), 24),
    ],
    ids=["headline", "headline with heads", "tokens", "grid", "lengths"],
)
def test_each_way_to_name_a_shape(call, compiler, shape, lengths, heads):
    code, _, _ = call("--implementation", "original", *shape)
    assert code == 0
    assert compiler.asked == (KdaPoint("original", lengths, heads=heads), "v6e", True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no shape given"),
        (("--headline", "--seqlen", "8", "--batch", "1"), "--headline and --seqlen given"),
        (("--tokens", "8"), "--tokens and --sequences go together"),
        (("--batch", "8"), "--seqlen and --batch go together"),
        (("--lengths", "8,x"), "counts separated by commas"),
        (("--headline", "--target", "v9"), "target 'v9'"),
        (("--headline", "--heads", "0"), "--heads"),
        (("--seqlen", "1000000", "--batch", "1000"), "at most"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_is_one_line_and_64(call, compiler, arguments, message):
    code, out, err = call("--implementation", "original", *arguments)
    assert (code, out) == (64, "")
    assert message in err and err.count("\n") == 1


def test_an_unknown_implementation_names_the_known_ones(call, compiler):
    code, _, err = call("--implementation", "fastest", "--headline")
    assert code == 64
    assert "original" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kda-gri", "--implementation", "flat"), "did you mean kda-grid"),
        (("kda-grid", "--implementation", "flat", "--implementation", "fastest"), "fastest"),
        (("kda-grid", "--implementation", "flat", "--target", "v9"), "target 'v9'"),
        (("mla-decode", "--implementation", "flat"), "no KDA workload of a single call"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_sweep_of_what_is_unknown_is_refused_before_a_compiler_starts(
    capsys, compiler, arguments, message
):
    with pytest.raises(SystemExit) as ended:
        main(["compile", "kda-sweep", *arguments])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (64, "")
    assert message in err and err.count("\n") == 1
    assert compiler.asked is None


@pytest.mark.parametrize("status", ["ok", "oom", "unsupported"])
def test_every_answer_of_the_compiler_is_0_and_json_stands_alone(call, compiler, status):
    compiler.answer = status
    code, out, err = call("--implementation", "original", "--headline", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["status"] == status
    assert document.keys() >= KEYS


def test_an_overflow_shows_the_compilers_figures(call, compiler):
    compiler.answer = "oom"
    _, out, _ = call("--implementation", "original", "--headline")
    assert "oom" in out and "45.00 MiB of 32.00 MiB" in out


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("error", 70),
        (CompilerUnavailableError("libtpu is not installed"), 69),
        (CompiledFormatError("another format"), 65),
    ],
    ids=["failed", "no compiler", "format"],
)
def test_failures_have_codes_of_their_own(call, compiler, answer, code):
    compiler.answer = answer
    assert call("--implementation", "original", "--headline")[0] == code


def test_no_cache_is_passed_on(call, compiler):
    call("--implementation", "original", "--headline", "--no-cache")
    assert compiler.asked[2] is False


def test_a_real_compile_of_a_small_point_is_deterministic(call, tmp_path, monkeypatch):
    pytest.importorskip("libtpu", reason="libtpu is the compiler under test")
    monkeypatch.setenv("K3BENCH_CACHE", str(tmp_path))
    shape = ("--implementation", "original", "--lengths", "30,70", "--heads", "8", "--json")
    code, first, _ = call(*shape)
    assert code == 0
    _, cached, _ = call(*shape)
    assert cached == first
    _, fresh, _ = call(*shape, "--no-cache")
    document = json.loads(first)
    assert json.loads(fresh)["fingerprint"] == document["fingerprint"]
    assert document["assumed"] == {"regions": 0, "dmas": 0}
    assert document["padded_tokens"] == 192
    assert sum(document["breakdown"].values()) == pytest.approx(1.0)
    assert document["modelled_ms"] > document["lower_bounds_ms"]["busiest_slot"]
