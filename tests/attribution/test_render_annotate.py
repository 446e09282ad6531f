"""The annotated trace: still the same trace, valid JSON, with a track for every block."""

import gzip
import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from attribution.compositions import HOSTILE
from shared_data import shared_file

from k3bench.attribution.block_map import learn_from_capture
from k3bench.attribution.blocks import BlockDefinition, load_blocks, parse_blocks
from k3bench.attribution.reader import read_trace
from k3bench.attribution.render.annotate import (
    Annotated,
    BlockTracks,
    annotate,
    tracks_by_map,
    tracks_by_pairing,
    tracks_by_ranges,
)
from k3bench.attribution.render.names import RenderError

DEFINITION = parse_blocks(
    """
    name = "two"
    title = "Two blocks"
    residual = "other"
    [blocks.kda]
    ranges = ["K3/kda"]
    [blocks.moe]
    ranges = ["K3/moe"]
    [collectives]
    kernels = ["reduce"]
    """,
    "two",
)


def event(category: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    host = category in ("user_annotation", "cuda_runtime")
    place = {"pid": 10, "tid": 11} if host else {"pid": 0, "tid": 7}
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, **place, "args": args}


def eager_events(kernel: str = "k") -> list[dict[str, Any]]:
    """kda kda | moe (a collective within) moe | other, one stream."""
    events = [
        event("user_annotation", "K3/kda", 100.0, 50.0),
        event("user_annotation", "K3/moe", 200.0, 80.0),
    ]
    plan = [(110, kernel), (120, "k2"), (210, "m1"), (220, "all_reduce"), (230, "m2"), (300, "o")]
    for n, (launch, name) in enumerate(plan):
        events.append(event("cuda_runtime", "hipModuleLaunchKernel", launch, 2.0, correlation=n))
        args = {"correlation": n, "device": 0, "stream": 7}
        events.append(event("kernel", name, 1000.5 + 10 * n, 9.25, **args))
    return events


def written(tmp_path: Path, document: Any, name: str = "in.json") -> Path:
    path = tmp_path / name
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def annotated(source: Path, destination: Path) -> tuple[Annotated, dict[str, Any]]:
    trace = read_trace(source)
    report = annotate(source, destination, trace, tracks_by_ranges(trace, DEFINITION))
    content = destination.read_bytes()
    text = gzip.decompress(content) if destination.suffix == ".gz" else content
    return report, json.loads(text)


def block_slices(document: dict[str, Any]) -> list[tuple[str, float, float, int]]:
    return [
        (e["name"], e["ts"], e["dur"], e["args"]["kernels"])
        for e in document["traceEvents"]
        if e.get("cat") == "k3bench_block"
    ]


@pytest.mark.parametrize("name", ["in.json", "in.json.gz"])
@pytest.mark.parametrize("out", ["out.json", "out.json.gz"])
def test_the_copy_has_every_event_and_a_slice_per_run_of_a_block(
    tmp_path: Path, name: str, out: str
) -> None:
    events = eager_events()
    head = {"schemaVersion": 1, "note": 'a "traceEvents": [ in a string', "deviceProperties": [{}]}
    source = written(tmp_path, {**head, "traceEvents": events, "traceName": "x"}, name)
    report, document = annotated(source, tmp_path / out)
    assert document["traceEvents"][-len(events) :] == events
    assert {key: document[key] for key in head} == head
    assert document["traceName"] == "x"
    assert sorted(block_slices(document)) == [
        ("collective", 1030.5, 9.25, 1),
        ("kda", 1000.5, 19.25, 2),
        ("moe", 1020.5, 9.25, 1),
        ("moe", 1040.5, 9.25, 1),
        ("other", 1050.5, 9.25, 1),
    ]
    assert report.slices == 5
    assert report.tracks == ("kda", "moe", "other", "collective")
    threads = {e["args"]["name"] for e in document["traceEvents"] if e.get("name") == "thread_name"}
    assert threads == {"kda", "moe", "other", "collective"}


def test_the_bare_array_form_is_annotated_too(tmp_path: Path) -> None:
    source = written(tmp_path, eager_events())
    trace = read_trace(source)
    annotate(source, tmp_path / "out.json", trace, tracks_by_ranges(trace, DEFINITION))
    events = json.loads((tmp_path / "out.json").read_text())
    assert events[-len(eager_events()) :] == eager_events()


def test_slices_of_one_track_never_overlap_when_streams_do(tmp_path: Path) -> None:
    events = eager_events()
    for n, e in enumerate(e for e in events if e["cat"] == "kernel"):
        e["dur"] = 25.0
        e["tid"] = e["args"]["stream"] = n % 2
    _, document = annotated(written(tmp_path, {"traceEvents": events}), tmp_path / "out.json")
    by_track: dict[str, list[tuple[float, float]]] = {}
    for name, ts, dur, _ in sorted(block_slices(document), key=lambda s: s[1]):
        by_track.setdefault(name, []).append((ts, ts + dur))
    for slices in by_track.values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices))
    assert sum(s[3] for s in block_slices(document)) == 6


def test_hostile_names_stay_strings(tmp_path: Path) -> None:
    events = eager_events(HOSTILE)
    source = written(tmp_path, {"traceEvents": events})
    trace = read_trace(source)
    tracks = tracks_by_ranges(trace, DEFINITION)
    evil = BlockTracks((HOSTILE, *tracks.names[1:]), tracks.rows, tracks.index)
    annotate(source, tmp_path / "out.json", trace, evil)
    text = (tmp_path / "out.json").read_text()
    document = json.loads(text)
    assert document["traceEvents"][-len(events) :] == events
    (first, *_) = block_slices(document)
    assert "\\u202e" in first[0], "shown, not obeyed"
    assert "\u202e" not in text


def test_a_cut_off_trace_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": eager_events()})
    source = written(tmp_path, text[: len(text) - 40])
    trace = read_trace(source)
    with pytest.raises(RenderError, match="would not open"):
        annotate(source, tmp_path / "out.json", trace, tracks_by_ranges(trace, DEFINITION))
    assert list(tmp_path.iterdir()) == [source]


def test_a_trace_is_not_annotated_in_place(tmp_path: Path) -> None:
    source = written(tmp_path, {"traceEvents": eager_events()})
    trace = read_trace(source)
    with pytest.raises(RenderError, match="in place"):
        annotate(source, source, trace, tracks_by_ranges(trace, DEFINITION))
    assert json.loads(source.read_text())["traceEvents"] == eager_events()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path, {"traceEvents": eager_events()})
    trace = read_trace(source)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("k3bench.attribution.render.annotate._copy_with", full)
    with pytest.raises(OSError, match="No space"):
        annotate(source, tmp_path / "out.json", trace, tracks_by_ranges(trace, DEFINITION))
    assert list(tmp_path.iterdir()) == [source]


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """Most of a real trace is Python's stack; 24 MB of it must pass through without being kept."""
    stack = event("python_function", "f" * 200, 1.0, 1.0)
    filler = ",".join([json.dumps(stack)] * 80_000)
    events = ",".join(json.dumps(e) for e in eager_events())
    source = written(tmp_path, f'{{"traceEvents": [{filler},{events}]}}')
    assert source.stat().st_size > 20e6
    trace = read_trace(source)
    tracks = tracks_by_ranges(trace, DEFINITION)
    tracemalloc.start()
    annotate(source, tmp_path / "out.json", trace, tracks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6e6, f"{peak:,} bytes at the peak"
    assert (tmp_path / "out.json").stat().st_size > source.stat().st_size


def generic() -> BlockDefinition:
    return load_blocks("generic-decoder")


def test_a_paired_replay_gets_its_blocks_by_position(tmp_path: Path) -> None:
    capture_path = shared_file("traces/sglang_decode_mi300x/capture.json.gz")
    replay_path = shared_file("traces/sglang_decode_mi300x/replay.json.gz")
    capture = read_trace(capture_path, require_device_work=False)
    replay = read_trace(replay_path)
    tracks = tracks_by_pairing(capture, replay, generic())
    report = annotate(replay_path, tmp_path / "out.json.gz", replay, tracks)
    document = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    with gzip.open(replay_path) as stream:
        original = json.load(stream)
    assert document["traceEvents"][-len(original["traceEvents"]) :] == original["traceEvents"]
    kernels: dict[str, int] = {}
    for name, _, _, count in block_slices(document):
        kernels[name] = kernels.get(name, 0) + count
    assert kernels == {"attention": 360, "mlp": 108, "norm": 72, "outside": 4}
    assert set(report.tracks) == set(kernels)


def test_a_name_of_several_blocks_has_a_track_that_says_so() -> None:
    capture = read_trace(
        shared_file("traces/sglang_decode_mi300x/capture.json.gz"), require_device_work=False
    )
    replay = read_trace(shared_file("traces/sglang_decode_mi300x/replay.json.gz"))
    learned = learn_from_capture(capture, generic(), replay)
    tracks = tracks_by_map(replay, learned, generic())
    expected = {" or ".join(u.block for u in entry.uses) for entry in learned.shared_names}
    assert {name for name in tracks.names if " or " in name} == expected
    assert expected
