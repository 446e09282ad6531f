"""The study's measurements on a local server: what is sent, what is kept, what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attribution.fake_server import KERNEL, RANGE, FakeServer

from k3bench.attribution.live.results import ResultsError, StudyResults
from k3bench.attribution.live.server import ServerClient, ServerError
from k3bench.attribution.live.study import (
    CONFIGS,
    Measurement,
    PointResult,
    StudyError,
    StudyOptions,
    TraceDirectory,
    check_server,
    measure_point,
)
from k3bench.attribution.live.traces import TraceError

OPTIONS = StudyOptions(steps=4, itl_tokens=10, repeats=3, trace_timeout_s=1.5)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def take(
    server: FakeServer,
    config: str,
    measurement: Measurement,
    directory: Path | None = None,
    *,
    tokens: int = 16,
    dialect: Any = "sglang",
    ranks: int = 1,
) -> PointResult:
    return measure_point(
        ServerClient(server.url, dialect=dialect, model="toy"),
        CONFIGS[config],
        measurement,
        tokens,
        OPTIONS,
        traces=None if directory is None else TraceDirectory(str(directory), directory),
        ranks=ranks,
    )


def test_ttft_keeps_the_warm_up_apart_and_every_sample(server: FakeServer) -> None:
    point = take(server, "graph", "ttft")
    assert len(point.warmup_s) == 1
    assert len(point.samples_s) == 3
    assert point.to_json()["best_s"] == min(point.samples_s)
    assert server.paths() == ["/flush_cache", "/generate"] * 4
    prompts = [tuple(body["input_ids"]) for _, path, body in server.requests if path == "/generate"]
    assert len(set(prompts)) == 4, "a prompt that comes twice can come from a cache"
    assert all(len(prompt) == 16 for prompt in prompts)


def test_itl_is_one_stream_of_gaps(server: FakeServer) -> None:
    point = take(server, "graph", "itl")
    assert len(point.samples_s) == 9
    assert len(point.warmup_s) == 1
    assert point.dropped_samples == 0


def test_itl_of_a_server_that_bundles_tokens_is_refused(server: FakeServer) -> None:
    server.behaviour.coalesce = 3
    with pytest.raises(StudyError, match="came alone"):
        take(server, "graph", "itl")


@pytest.mark.parametrize("dialect", ["sglang", "openai"])
def test_decode_is_profiled_from_after_the_first_token(
    server: FakeServer, tmp_path: Path, dialect: str
) -> None:
    server.behaviour.first_token_s = 0.1
    server.behaviour.token_s = 0.02
    point = take(server, "eager-ranges", "decode-profile", tmp_path, dialect=dialect)
    assert [(trace.kernels, trace.ranges) for trace in point.traces] == [(1, 1)]
    assert point.steps == 4
    assert server.tokens_when_profiled[0] >= 1
    profile = next(body for _, path, body in server.requests if path == "/start_profile")
    assert profile.get("num_steps") == (4 if dialect == "sglang" else None)
    assert ("/stop_profile" in server.paths()) == (dialect == "openai")


def test_an_eager_server_without_ranges_is_profiled_on_the_device_alone(
    server: FakeServer, tmp_path: Path
) -> None:
    server.behaviour.events = (KERNEL,)
    take(server, "eager", "decode-profile", tmp_path)
    profile = next(body for _, path, body in server.requests if path == "/start_profile")
    assert profile["activities"] == ["GPU"]


def test_prefill_is_profiled_whole_after_a_warm_up(server: FakeServer, tmp_path: Path) -> None:
    take(server, "graph-ranges", "prefill-profile", tmp_path)
    assert server.paths() == [
        *("/flush_cache", "/generate", "/flush_cache"),
        *("/start_profile", "/generate", "/stop_profile"),
    ]


def test_a_server_that_profiles_nothing_is_an_error(server: FakeServer, tmp_path: Path) -> None:
    server.behaviour.events = (RANGE,)
    with pytest.raises(TraceError, match="holds no kernel"):
        take(server, "eager-ranges", "decode-profile", tmp_path)


def test_a_trace_without_ranges_from_a_server_said_to_have_them_is_an_error(
    server: FakeServer, tmp_path: Path
) -> None:
    server.behaviour.events = (KERNEL,)
    with pytest.raises(TraceError, match=r"holds no range K3/.*SGLANG_K3_PROF_RANGES=1"):
        take(server, "eager-ranges", "decode-profile", tmp_path)


def test_a_profiler_that_writes_no_file_is_an_error(server: FakeServer, tmp_path: Path) -> None:
    server.behaviour.write_trace = False
    with pytest.raises(TraceError, match="0 of 1 new traces"):
        take(server, "eager", "decode-profile", tmp_path)


def test_a_missing_rank_is_an_error(server: FakeServer, tmp_path: Path) -> None:
    server.behaviour.ranks = 2
    with pytest.raises(TraceError, match="2 of 8 new traces"):
        take(server, "eager", "decode-profile", tmp_path, ranks=8)


def test_a_trace_that_stays_cut_off_is_an_error(server: FakeServer, tmp_path: Path) -> None:
    server.behaviour.truncate_trace = True
    with pytest.raises(TraceError, match="cut off"):
        take(server, "eager", "decode-profile", tmp_path)


def test_an_older_trace_is_not_taken_for_the_new_one(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "old.trace.json.gz").write_bytes(b"anything")
    point = take(server, "eager", "decode-profile", tmp_path)
    assert [trace.name for trace in point.traces] == [
        "eager-decode-profile-16-1-TP-0.trace.json.gz"
    ]


def test_the_profiler_is_stopped_when_the_prefill_fails(server: FakeServer, tmp_path: Path) -> None:
    client = ServerClient(server.url)
    real, calls = client.generate, []

    def second_fails(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise ServerError("gone", "unavailable")
        return real(*arguments)

    client.generate = second_fails  # type: ignore[method-assign]
    with pytest.raises(ServerError, match="gone"):
        measure_point(
            client,
            CONFIGS["graph-ranges"],
            "prefill-profile",
            16,
            OPTIONS,
            traces=TraceDirectory(str(tmp_path), tmp_path),
        )
    assert server.paths()[-1] == "/stop_profile"


@pytest.mark.parametrize("config", ["eager-ranges", "graph-ranges"])
def test_no_wall_clock_from_a_server_with_ranges(server: FakeServer, config: str) -> None:
    with pytest.raises(StudyError, match="ranges perturb the wall clock"):
        take(server, config, "ttft")
    assert server.requests == []


def test_a_cached_prompt_is_refused(server: FakeServer) -> None:
    server.behaviour.cached_tokens = 12
    with pytest.raises(StudyError, match="12 of 16 prompt tokens came from a cache"):
        take(server, "graph", "ttft")


@pytest.mark.parametrize("config", CONFIGS)
def test_a_server_that_contradicts_its_configuration_is_refused(
    server: FakeServer, config: str
) -> None:
    client = ServerClient(server.url)
    graphs = CONFIGS[config].graphs
    server.behaviour.info = {"disable_cuda_graph": not graphs, "tp_size": 8, "api_key": "secret"}
    found = check_server(client, CONFIGS[config])
    assert found["tp_size"] == 8
    assert "api_key" not in found
    server.behaviour.info = {"disable_cuda_graph": graphs}
    with pytest.raises(StudyError, match="restart it"):
        check_server(client, CONFIGS[config])


def test_a_study_resumes_where_it_stopped(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    results = StudyResults.open(path, CONFIGS["graph"])
    results.describe_server({"tp_size": 1})
    assert not results.has("itl", 16)
    point = take(server, "graph", "itl")
    results.add(point)
    again = StudyResults.open(path, CONFIGS["graph"])
    again.describe_server({"tp_size": 1})
    assert again.has("itl", 16)
    assert not again.has("itl", 32)
    assert not again.has("ttft", 16)
    assert again.to_json()["points"][0]["samples_s"] == list(point.samples_s)
    assert list(tmp_path.iterdir()) == [path], "a temporary file was left"


def test_a_study_does_not_resume_on_another_server(server: FakeServer, tmp_path: Path) -> None:
    results = StudyResults.open(tmp_path / "r.json", CONFIGS["graph"])
    results.describe_server({"tp_size": 1})
    results.add(take(server, "graph", "itl"))
    again = StudyResults.open(tmp_path / "r.json", CONFIGS["graph"])
    with pytest.raises(ResultsError, match="tp_size was 1, this server says 8"):
        again.describe_server({"tp_size": 8})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "holds no study"),
        ('{"format": "other"}', "holds no study"),
        (json.dumps({"format": "k3bench-study-1", "config": "eager"}), "one file for each"),
        (
            json.dumps({"format": "k3bench-study-1", "config": "graph", "points": [1]}),
            "array of objects",
        ),
    ],
    ids=["cut", "array", "format", "config", "points"],
)
def test_a_foreign_result_file_is_refused_and_kept(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(ResultsError, match=message):
        StudyResults.open(path, CONFIGS["graph"])
    assert path.read_text() == content


def test_a_result_file_that_could_not_be_written_is_refused_before_measuring(
    tmp_path: Path,
) -> None:
    with pytest.raises(ResultsError, match="no directory to write to"):
        StudyResults.open(tmp_path / "absent" / "r.json", CONFIGS["graph"])


def test_each_configuration_measures_what_the_study_took_on_it() -> None:
    assert {name: config.measurements for name, config in CONFIGS.items()} == {
        "eager-ranges": ("decode-profile",),
        "eager": ("decode-profile",),
        "graph-ranges": ("prefill-profile",),
        "graph": ("itl", "ttft"),
    }
