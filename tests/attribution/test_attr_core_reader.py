"""What the reader accepts, what it flags, and what it refuses, with the reason."""

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from k3bench.attribution.byte_stream import ReadLimits
from k3bench.attribution.errors import EmptyTraceError, TraceFormatError
from k3bench.attribution.events import KERNEL, MEMCPY, MEMSET
from k3bench.attribution.reader import read_trace


def kernel(number: int, **changes: Any) -> dict[str, Any]:
    event = {
        "ph": "X", "cat": "kernel", "name": f"kernel_{number % 3}", "pid": 0, "tid": 3,
        "ts": 1000.0 + number, "dur": 4.125,
        "args": {"device": 0, "stream": 3, "correlation": number, "grid": [1, 12, 128]},
    }  # fmt: skip
    return {**event, **changes}


def launch(number: int, **changes: Any) -> dict[str, Any]:
    event = {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 77, "tid": 77,
        "ts": 10.0 + number, "dur": 2.0, "args": {"correlation": number},
    }  # fmt: skip
    return {**event, **changes}


def write(path: Path, events: list[Any], **envelope: Any) -> Path:
    data = json.dumps({**envelope, "traceEvents": events, "traceName": "t"}).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write(tmp_path / "plain.json", [kernel(n) for n in range(40)])


def test_both_spellings_of_a_trace_are_read_alike(tmp_path: Path) -> None:
    events = [e for n in range(5) for e in (launch(n), kernel(n))]
    as_object = write(tmp_path / "object.json", events)
    as_array = tmp_path / "array.json"
    as_array.write_text(json.dumps(events, indent=2))
    zipped = write(tmp_path / "zipped.json.gz", events)
    for path in (as_object, as_array, zipped):
        trace = read_trace(path)
        assert trace.device.duration_us.tolist() == [4.125] * 5
        assert trace.launches.correlation.tolist() == list(range(5))
        assert not trace.cut_off


def test_copies_and_sets_are_device_work(tmp_path: Path) -> None:
    events = [
        kernel(0),
        kernel(1, cat="gpu_memcpy", name="Memcpy DtoD (Device -> Device)"),
        kernel(2, cat="gpu_memset", name="Memset (Device)"),
        {"ph": "X", "cat": "gpu_user_annotation", "name": "r", "pid": 0, "ts": 1, "dur": 9},
    ]
    trace = read_trace(write(tmp_path / "t.json", events))
    assert trace.device.kind.tolist() == [KERNEL, MEMCPY, MEMSET]


@pytest.mark.parametrize(
    "name",
    [
        *("hipGraphLaunch", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipLaunchKernel"),
        *("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"),
        *("cudaGraphLaunch", "hipMemcpyAsync", "cudaMemsetAsync", "hipMemcpyWithStream"),
    ],
)
def test_every_launching_call_is_kept(tmp_path: Path, name: str) -> None:
    events = [kernel(1), launch(1, name=name), launch(2, name="cudaDeviceSynchronize")]
    trace = read_trace(write(tmp_path / "t.json", events))
    assert trace.names(trace.launches.name) == [name]


def test_device_platform_and_rank_come_from_the_envelope(tmp_path: Path) -> None:
    trace = read_trace(
        write(
            tmp_path / "t.json",
            [kernel(1)],
            deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
            cupti_version=26,
            distributedInfo={"rank": 5},
            baseTimeNanoseconds=17,
        )
    )
    assert (trace.device_name, trace.platform, trace.rank, trace.base_ns) == (
        *("NVIDIA H200", "cuda", 5, 17),
    )


def test_cuda_graph_kernels_are_known_by_their_node_id(tmp_path: Path) -> None:
    args = {"device": 0, "correlation": 9, "graph id": 2, "graph node id": 9}
    trace = read_trace(write(tmp_path / "t.json", [kernel(1), kernel(2, args=args)]))
    assert trace.device.graph.tolist() == [0, 1]


def test_module_ranges_keep_their_class_alone(tmp_path: Path) -> None:
    host = {"ph": "X", "pid": 7, "tid": 7, "ts": 1, "dur": 50}
    events = [
        kernel(1),
        {**host, "cat": "python_function", "name": "nn.Module: Qwen3MLP_12"},
        {**host, "cat": "python_function", "name": "linear.py(3): forward"},
        {**host, "cat": "user_annotation", "name": "K3/moe"},
    ]
    trace = read_trace(write(tmp_path / "t.json", events))
    assert list(zip(trace.names(trace.ranges.name), trace.ranges.module, strict=True)) == [
        ("Qwen3MLP", 1),
        ("K3/moe", 0),
    ]
    assert trace.categories["python_function"] == 2


def test_events_inside_events_do_not_confuse_the_cuts(tmp_path: Path) -> None:
    # Longer than a batch, and full of text that looks like the end of an event.
    nested = [{"a": {"x": 1}}, {"b": "}, {"}] * 40_000
    events = [kernel(0), {"ph": "X", "cat": "cpu_op", "name": "},{", "args": {"n": nested}}]
    events += [kernel(n) for n in range(1, 9)]
    trace = read_trace(write(tmp_path / "t.json", events))
    assert len(trace.device) == 9
    assert sum(trace.categories.values()) == 10


def test_what_kineto_writes_beside_json_is_read_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    good = json.dumps(kernel(1))
    odd = good[:-2] + ', "bandwidth": NaN, "other": Infinity}}'
    control = json.dumps(kernel(2)).replace("kernel_2", "kernel\t\x01_é")
    path.write_text(f'{{"traceEvents": [{good}, {odd}, {control}]}}', encoding="utf-8")
    trace = read_trace(path)
    assert len(trace.device) == 3
    assert "kernel\t\x01_é" in trace.strings
    assert "not strict JSON" in trace.notes[0]


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_cut_off_file_is_read_up_to_the_cut(tmp_path: Path, part: float, suffix: str) -> None:
    events = [kernel(n, name=f"kernel_{n * 7919 % 10007}") for n in range(9000)]
    whole = write(tmp_path / f"whole.{suffix}", events).read_bytes()
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(whole[: int(len(whole) * part)])
    trace = read_trace(path)
    assert trace.cut_off
    assert 0.15 * part < len(trace.device) / 9000 < 1.1 * part
    assert trace.strings[trace.device.name[100]] == "kernel_" + str(100 * 7919 % 10007)


def test_a_file_cut_between_two_events_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [' + json.dumps(kernel(1)) + ",")
    assert read_trace(path).cut_off
    path.write_text('{"traceEvents": [' + json.dumps(kernel(1)))
    assert len(read_trace(path).device) == 1
    assert read_trace(path).cut_off


@pytest.mark.parametrize("close", ["", ", ", ', "traceName": "t"', ', "traceName": "t'])
def test_a_file_cut_after_its_last_event_is_noticed(tmp_path: Path, close: str) -> None:
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [' + json.dumps(kernel(1)) + "]" + close)
    trace = read_trace(path)
    assert len(trace.device) == 1
    assert "after the events" in trace.cut_off


def test_zero_kernels_is_an_error_and_says_how_many_events_there_were(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [launch(n) for n in range(3)])
    with pytest.raises(EmptyTraceError, match="no kernels among 3 events"):
        read_trace(path)
    assert len(read_trace(path, require_device_work=False).launches) == 3


def labelled(rank: int, number: int) -> list[dict[str, Any]]:
    """As a merger of ranks writes them: every process under its rank's name."""
    return [
        launch(number, pid=f"[TP{rank:02d}] 77"),
        kernel(number, pid=f"[TP{rank:02d}] 0", dur=4.125 + rank),
    ]


def test_merged_ranks_are_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    events = [e for rank in (0, 1) for n in range(4) for e in labelled(rank, n)]
    path = write(tmp_path / "merged.json", events)
    with pytest.raises(TraceFormatError, match=r"2 ranks merged \(0, 1\).*--rank"):
        read_trace(path)
    chosen = read_trace(path, rank=1)
    assert chosen.device.duration_us.tolist() == [5.125] * 4
    assert len(chosen.launches) == 4
    with pytest.raises(TraceFormatError, match="no rank 7"):
        read_trace(path, rank=7)


def test_unlabelled_processes_that_both_launch_are_refused(tmp_path: Path) -> None:
    events = [launch(1), kernel(1), launch(1, pid=78), kernel(1)]
    with pytest.raises(TraceFormatError, match="processes 77, 78"):
        read_trace(write(tmp_path / "t.json", events))


def test_two_devices_are_refused(tmp_path: Path) -> None:
    second = kernel(2, args={"device": 1, "correlation": 2})
    with pytest.raises(TraceFormatError, match="devices 0, 1"):
        read_trace(write(tmp_path / "t.json", [kernel(1), second]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b"\x00" * 50, "neither JSON nor gzip"),
        (b"PK\x03\x04zip", "neither JSON nor gzip"),
        (b'{"hello": 1}', "no traceEvents array"),
        (b'{"traceEvents": {"a": 1}}', "no traceEvents array"),
        (b'{"traceEvents": [3]}', "not usable"),
        (b'{"traceEvents": [{"ts": "soon"}]}', "not usable"),
        (b'{"traceEvents": [{"ts": 1e999}]}', "not usable"),
        (b'{"traceEvents": [{"ts": NaN}]}', "not usable"),
        (b'{"traceEvents": [{"pid": {"a": 1}}]}', "not usable"),
        (b'{"traceEvents": [{"a": 1} {"b": 2}' + b" " * 40 + b"]}", "expected ','"),
        (b'{"traceEvents": [{"a": 1}, {"b" 2}' + b" " * 40 + b"]}", "byte 32"),
        (b'{"traceEvents": [{"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", "nested"),
        (b'{"traceEvents": []}{"traceEvents": []}', "second trace"),
        (b'{"traceEvents": [], "x": 1, "traceEvents": []}', "two traceEvents"),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, bytes) else "",
)
def test_malformed_files_are_refused_with_the_reason(
    tmp_path: Path, text: bytes, reason: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text)
    with pytest.raises(TraceFormatError, match=reason) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("bad.json")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dur": -3.0}, "duration -3.0"),
        ({"dur": None}, "duration None"),
        ({"args": {"correlation": 1 << 70}}, "not a 64-bit id"),
        ({"args": {"correlation": [1]}}, "not a 64-bit id"),
        ({"args": {"correlation": True}}, "not a 64-bit id"),
        ({"args": 3}, "args are not usable"),
    ],
)
def test_a_kernel_that_makes_no_sense_is_named(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    path = write(tmp_path / "t.json", [kernel(1, **changes)])
    with pytest.raises(TraceFormatError, match=reason):
        read_trace(path)


def test_odd_values_where_they_do_not_matter_are_passed_over(tmp_path: Path) -> None:
    args = {"device": "0", "stream": {"a": 1}, "correlation": "12", "grid": "wide", "kind": 7}
    trace = read_trace(write(tmp_path / "t.json", [kernel(1, args=args)]))
    assert trace.device.correlation.tolist() == [12]
    assert trace.device.grid.tolist() == [-1]


def peak_of(path: Path, limits: ReadLimits) -> tuple[str, int]:
    """The refusal and the peak of memory that Python allocated on the way there."""
    tracemalloc.start()
    try:
        with pytest.raises(TraceFormatError) as caught:
            read_trace(path, limits=limits)
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_gzip_bomb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    head = b'{"traceEvents": [{"name": "'
    path.write_bytes(gzip.compress(head + b"a" * (12 << 20), 1))
    reason, peak = peak_of(path, ReadLimits(event_bytes=1 << 20))
    assert "one event is longer" in reason
    assert peak < 20 << 20
    # A bomb of sound events is known by how far it expands.
    path.write_bytes(gzip.compress(head + b'"},' + b'{"args":"aaaaaaaaa"},' * (1 << 18), 6))
    reason, peak = peak_of(path, ReadLimits(expansion=100, expansion_from_bytes=2 << 20))
    assert "expands more than 100 times" in reason
    # Of the smallest events one batch of 1 MiB holds some 50,000.
    assert peak < 40 << 20


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (ReadLimits(text_bytes=1000), "more than 1,000 bytes of JSON"),
        (ReadLimits(kept_events=10), "more than 10 kernels"),
        (ReadLimits(name_bytes=10), "distinct names"),
    ],
    ids=["text", "events", "names"],
)
def test_each_limit_is_stated_when_it_is_met(plain: Path, limits: ReadLimits, reason: str) -> None:
    with pytest.raises(TraceFormatError, match=reason):
        read_trace(plain, limits=limits)


def test_a_long_envelope_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"a": "' + "x" * (3 << 20) + '", "traceEvents": []}')
    with pytest.raises(TraceFormatError, match="no traceEvents array within 1,048,576 bytes"):
        read_trace(path, limits=ReadLimits(envelope_bytes=1 << 20))
    path.write_text('{"traceEvents": [], "a": "' + "x" * (3 << 20) + '"}')
    with pytest.raises(TraceFormatError, match="follow the events"):
        read_trace(path, limits=ReadLimits(envelope_bytes=1 << 20))


def test_a_corrupt_gzip_stream_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json.gz", [kernel(n) for n in range(3000)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(TraceFormatError):
        read_trace(path)


def test_the_source_is_the_file_as_it_lies_on_disk(plain: Path) -> None:
    import hashlib

    source = read_trace(plain).source
    data = plain.read_bytes()
    assert (source.name, source.size_bytes) == ("plain.json", len(data))
    assert source.sha256 == hashlib.sha256(data).hexdigest()


def test_a_cpu_trace_takes_the_outermost_operators(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "pid": 7, "tid": 7}
    events = [
        {**op, "name": "aten::linear", "ts": 10, "dur": 20},
        {**op, "name": "aten::addmm", "ts": 11, "dur": 15},
        {**op, "name": "aten::relu", "ts": 30, "dur": 5},
        {**op, "name": "aten::mul", "ts": 12, "dur": 3, "tid": 8},
    ]
    trace = read_trace(write(tmp_path / "t.json", events), device="cpu")
    assert sorted(trace.names(trace.device.name)) == ["aten::linear", "aten::mul", "aten::relu"]
    assert trace.device_name == "CPU"
