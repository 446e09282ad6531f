"""The cache serves only what is still true; a sweep resumes, shares and never half-writes."""

import json
from dataclasses import replace

import joblib
import pytest

from k3bench.compiled.cache import cache_directory
from k3bench.compiled.errors import CompiledFormatError
from k3bench.compiled.tpu import CompiledError, CompiledResult, KdaPoint, cache, get_target, sweep
from k3bench.compiled.tpu.cache import ResultCache, cache_key
from k3bench.compiled.tpu.sweep import compile_points

V6E = get_target("v6e")
VERSIONS = {"jax": "1", "libtpu": "2"}
POINT = KdaPoint("original", (64, 0, 30), heads=8)


def result_for(point, status="ok"):
    return CompiledResult(
        status=status, point=point.to_json(), target="v6e", device="tpu-v6e", jax="1",
        libtpu="2", pinned=True, modelled_ms=1.5, kernel_cycles=7, compile_s=0.25,
        slots={"MXU": 0.5}, kernels=({"name": "k", "cycles": 7},),
    )  # fmt: skip


def test_a_result_survives_json_exactly():
    result = result_for(POINT)
    again = CompiledResult.from_json(json.loads(json.dumps(result.to_json())))
    assert again == result
    assert again.fingerprint == result.fingerprint
    assert again.kda_point() == POINT


def test_the_fingerprint_leaves_out_the_compile_time_and_nothing_else():
    result = result_for(POINT)
    assert replace(result, compile_s=9.0).fingerprint == result.fingerprint
    for change in ({"kernel_cycles": 8}, {"jax": "3"}, {"slots": {"MXU": 0.6}}, {"status": "oom"}):
        assert replace(result, **change).fingerprint != result.fingerprint


@pytest.mark.parametrize("damage", [{"kernel_cycles": 8}, {"extra": 1}], ids=["value", "key"])
def test_a_changed_document_is_refused(damage):
    with pytest.raises(CompiledFormatError):
        CompiledResult.from_json({**result_for(POINT).to_json(), **damage})


def test_the_key_depends_on_everything_a_result_depends_on(monkeypatch):
    keys = {
        cache_key(POINT, V6E, VERSIONS),
        cache_key(replace(POINT, heads=16), V6E, VERSIONS),
        cache_key(replace(POINT, lengths=(64, 30, 0)), V6E, VERSIONS),
        cache_key(replace(POINT, implementation="flat"), V6E, VERSIONS),
        cache_key(POINT, get_target("tpu7x"), VERSIONS),
        cache_key(POINT, replace(V6E, clock_hz=1e9), VERSIONS),
        cache_key(POINT, V6E, {**VERSIONS, "libtpu": "3"}),
    }
    monkeypatch.setattr(cache, "DUMP_FLAGS", ("--other",))
    keys.add(cache_key(POINT, V6E, VERSIONS))
    monkeypatch.setattr(cache, "PARSER_VERSION", 99)
    keys.add(cache_key(POINT, V6E, VERSIONS))
    monkeypatch.setattr(cache, "room_sha256", lambda package: "0" * 64)
    keys.add(cache_key(POINT, V6E, VERSIONS))
    assert len(keys) == 10
    assert cache_key(POINT, V6E, VERSIONS) in keys


def test_a_changed_kernel_file_changes_the_hash_of_its_room(tmp_path, monkeypatch):
    room = tmp_path / "some_room"
    (room / "deep").mkdir(parents=True)
    (room / "__init__.py").write_text("")
    (room / "deep" / "kernel.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = cache.room_sha256.__wrapped__("some_room")
    assert cache.room_sha256.__wrapped__("some_room") == before
    (room / "deep" / "kernel.py").write_text("x = 2\n")
    assert cache.room_sha256.__wrapped__("some_room") != before


def test_a_damaged_cache_file_counts_as_none(tmp_path):
    store = ResultCache(tmp_path)
    store.put("ab" * 32, result_for(POINT))
    [path] = tmp_path.rglob("*.json")
    assert store.get("ab" * 32) == result_for(POINT)
    path.write_text(path.read_text()[:-40])
    assert store.get("ab" * 32) is None
    assert not list(tmp_path.rglob("*.tmp"))


def test_errors_are_not_remembered_and_overflows_are(tmp_path):
    store = ResultCache(tmp_path)
    store.put("ab" * 32, result_for(POINT, "error"))
    assert store.get("ab" * 32) is None
    store.put("ab" * 32, result_for(POINT, "oom"))
    assert store.get("ab" * 32).status == "oom"


def test_the_cache_lies_where_the_variable_says(tmp_path):
    assert cache_directory({"K3BENCH_CACHE": str(tmp_path)}) == tmp_path
    assert cache_directory({}).parts[-2:] == (".k3bench", "compiled")


@pytest.fixture
def compiler(monkeypatch):
    """Stands in for the compiler; ``calls`` lists what it was asked for."""

    class Compiler:
        def __init__(self):
            self.calls = []
            self.fails_on = None

        def __call__(self, point, target, *, allow_other_versions):
            self.calls.append(point)
            if point == self.fails_on:
                raise CompiledError("the compiler died")
            return result_for(point)

    stand_in = Compiler()
    monkeypatch.setattr(sweep, "compile_point", stand_in)
    monkeypatch.setattr(sweep, "compiler_versions", lambda *, allow_other: VERSIONS)
    return stand_in


def points(count):
    return [replace(POINT, heads=8 + number) for number in range(count)]


def test_results_come_in_the_order_of_the_points_and_equal_points_once(tmp_path, compiler):
    wanted = [*points(3), points(3)[1]]
    results = compile_points(wanted, V6E, directory=tmp_path)
    assert [result.point["heads"] for result in results] == [8, 9, 10, 9]
    assert len(compiler.calls) == 3


def test_a_second_sweep_compiles_nothing(tmp_path, compiler):
    first = compile_points(points(3), V6E, directory=tmp_path)
    assert compile_points(points(3), V6E, directory=tmp_path) == first
    assert len(compiler.calls) == 3


def test_without_the_cache_everything_is_compiled_and_nothing_kept(tmp_path, compiler):
    compile_points(points(2), V6E, directory=tmp_path, use_cache=False)
    compile_points(points(2), V6E, directory=tmp_path, use_cache=False)
    assert len(compiler.calls) == 4
    assert list(tmp_path.rglob("*.json")) == []


def test_an_interrupted_sweep_resumes_where_it_stopped(tmp_path, compiler):
    wanted = points(5)
    compiler.fails_on = wanted[3]
    with pytest.raises(CompiledError, match="died"):
        compile_points(wanted, V6E, directory=tmp_path)
    compiler.fails_on = None
    compiler.calls.clear()
    assert len(compile_points(wanted, V6E, directory=tmp_path)) == 5
    assert compiler.calls == wanted[3:]


def test_the_backend_is_the_callers_to_choose(tmp_path, compiler):
    with joblib.parallel_backend("threading", n_jobs=2):
        results = compile_points(points(4), V6E, directory=tmp_path)
    assert [result.point["heads"] for result in results] == [8, 9, 10, 11]


def test_progress_goes_to_stderr_alone(tmp_path, compiler, capsys):
    compile_points(points(2), V6E, directory=tmp_path, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "compiling" in captured.err


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("lengths", (), "lengths is empty"),
        ("lengths", (5, -1), "lengths holds -1"),
        ("lengths", (1 << 25,), "at most"),
        ("heads", 0, "heads is 0"),
        ("dtype", "int8", "dtype is 'int8'"),
        ("gate", "open", "gate is 'open'"),
    ],
)
def test_a_point_that_cannot_be_is_refused_by_name(field, value, message):
    with pytest.raises(CompiledError, match=message):
        replace(POINT, **{field: value})


def test_an_unknown_target_names_the_known_ones():
    with pytest.raises(CompiledError, match="use one of v6e, tpu7x"):
        get_target("v9")


def test_the_required_traffic_of_the_headline_is_176_megabytes():
    headline = KdaPoint("original", (2048,) * 4, heads=16)
    assert headline.required_hbm_bytes == pytest.approx(176e6, rel=0.01)
