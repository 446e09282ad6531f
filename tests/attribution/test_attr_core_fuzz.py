"""Whatever bytes come in, the reader answers with a trace or with one clear error."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3bench.attribution.blocks import parse_blocks
from k3bench.attribution.byte_stream import ReadLimits
from k3bench.attribution.errors import AttributionError, DefinitionError, TraceFormatError
from k3bench.attribution.events import Trace
from k3bench.attribution.reader import read_trace
from tests.attribution.k3_traces import dispatches, eager_events, small_specs, write_trace

LIMITS = ReadLimits(
    text_bytes=8 << 20, event_bytes=1 << 20, envelope_bytes=1 << 20, kept_events=50_000
)
SETTINGS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
)  # NaN and infinities too: Python writes them, Kineto has
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
fields = st.sampled_from(["cat", "name", "pid", "tid", "ts", "dur", "args", "ph", "id"])
categories = st.sampled_from(
    ["kernel", "gpu_memcpy", "cuda_runtime", "python_function", "user_annotation", "cpu_op", ""]
)
events = st.fixed_dictionaries(
    {"cat": categories},
    optional={
        "name": st.text(max_size=20) | st.just("hipLaunchKernel"),
        "pid": st.integers(0, 3) | st.text(max_size=8),
        "tid": st.integers(0, 3),
        "ts": st.floats(0, 1e6),
        "dur": st.floats(0, 1e3),
        "args": st.dictionaries(
            st.sampled_from(["correlation", "device", "stream", "kernel", "kind", "grid"]), values
        ),
    },
) | st.dictionaries(fields, values, max_size=5)


def read(path: Path) -> Trace | str:
    """The trace, or the reason why there is none; anything else is a failure of the test."""
    try:
        return read_trace(path, limits=LIMITS, require_device_work=False)
    except TraceFormatError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
        return str(error)


@SETTINGS
@given(data=st.binary(max_size=2000), zipped=st.booleans())
def test_random_bytes(data: bytes, zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(data) if zipped else data)
    read(path)


@SETTINGS
@given(data=st.binary(max_size=300))
def test_random_bytes_within_the_events(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [' + data)
    read(path)
    path.write_bytes(b'{"traceEvents": [{"name": "' + data + b'"}, {"cat": "kernel"}]}')
    read(path)


@SETTINGS
@given(made=st.lists(events, max_size=8))
def test_events_of_any_content(made: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": made}), encoding="utf-8")
    found = read(path)
    if isinstance(found, Trace):
        assert sum(found.categories.values()) == len(made)
        assert (found.device.duration_us >= 0).all()


@SETTINGS
@given(made=st.lists(events, max_size=6), cut=st.floats(0, 1), indent=st.none() | st.just(2))
def test_a_cut_anywhere_never_makes_an_event_up(
    made: list[dict[str, Any]], cut: float, indent: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    text = json.dumps({"traceEvents": made, "z": 1}, indent=indent)
    path.write_text(text, encoding="utf-8")
    whole = read(path)
    path.write_text(text[: int(len(text) * cut)], encoding="utf-8")
    part = read(path)
    if isinstance(whole, Trace) and isinstance(part, Trace):
        assert part.cut_off or cut == 1
        assert sum(part.categories.values()) <= sum(whole.categories.values())
        assert set(part.strings) <= set(whole.strings)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    work = dispatches(small_specs(), 1)[:60]
    path = tmp_path_factory.mktemp("fuzz") / "sound.json"
    return write_trace(path, eager_events(work)).read_bytes()


@SETTINGS
@given(at=st.floats(0, 1), byte=st.integers(0, 255), zipped=st.booleans())
def test_one_byte_changed(at: float, byte: int, zipped: bool, sound: bytes, tmp_path: Path) -> None:
    data = bytearray(gzip.compress(sound, mtime=0) if zipped else sound)
    data[int(at * (len(data) - 1))] = byte
    path = tmp_path / "t.json"
    path.write_bytes(bytes(data))
    read(path)


@SETTINGS
@given(text=st.text(max_size=200) | st.binary(max_size=99).map(lambda b: b.decode("latin-1")))
def test_definitions_of_any_text(text: str) -> None:
    for written in (text, f'name = "x"\n[blocks.a]\n{text}'):
        try:
            parse_blocks(written, "own.toml")
        except DefinitionError as error:
            assert str(error).startswith("own.toml")


@SETTINGS
@given(data=values)
def test_maps_of_any_content(data: Any, tmp_path: Path) -> None:
    from k3bench.attribution.block_map import FORMAT, VERSION, load_map

    path = tmp_path / "map.json"
    sound = {"format": FORMAT, "version": VERSION, "definition": "x", "scope": "graph"}
    sound |= {"steps": 1, "sources": [], "checks": []}
    for written in (data, {**sound, "names": data}, {**sound, "names": [], "sources": data}):
        path.write_text(json.dumps(written), encoding="utf-8")
        try:
            load_map(path)
        except AttributionError as error:
            assert str(error).startswith("map.json")
